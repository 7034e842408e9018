"""A shell script that starts every replica with `vllm serve`, and the plan beside it."""

from __future__ import annotations

import shlex

from gnomon.engines.vllm import launch
from gnomon.errors import InputError
from gnomon.export.base import Rendered, in_other_words, require_load
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.spec import Plan

NAME = "vllm"
SUMMARY = "launch.sh with one `vllm serve` a replica"


def render(plan: Plan) -> Rendered:
    require_load(plan, NAME)
    require_vllm(plan)
    return Rendered(
        files=launch.files(plan),
        command=shlex.join(launch.command(plan)),
        engine="vllm",
        version=launch.version_of(plan),
        not_expressed=tuple(launch.not_expressed(in_other_words(plan))),
    )


def require_vllm(plan: Plan) -> None:
    """Refuse plans of other engines, and degrees that vLLM cannot cut the model into."""
    if plan.engine.name != "vllm":
        raise InputError(f"the plan is for the engine '{plan.engine.name}', not for vllm", where="engine")
    model = load_model(plan.model)
    if not unpriced(model):
        check_degrees(model, plan.strategy)
