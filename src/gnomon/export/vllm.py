"""A shell script that starts every replica with `vllm serve`, and the plan beside it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gnomon.engines.vllm import launch
from gnomon.engines.vllm.platforms import not_run, refused_dtype
from gnomon.engines.vllm.script import script
from gnomon.errors import InputError
from gnomon.export.base import Rendered, header, in_other_words, require_load
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.load.plan import plan_pool, plan_to_yaml
from gnomon.spec import Plan

NAME = "vllm"


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    require_load(plan, NAME)
    require_vllm(plan)
    left_out = launch.not_expressed(in_other_words(plan))
    return Rendered(
        files={"launch.sh": script(plan, header(warnings, left_out)), "plan.yaml": plan_to_yaml(plan)},
        command=shlex.join(words(plan)),
        engine="vllm",
        version=launch.version_of(plan),
        not_expressed=tuple(left_out),
    )


def words(plan: Plan) -> list[str]:
    return launch.first_command(plan)


def check(plan: Plan) -> None:
    chip = plan_pool(plan).chip
    if why := not_run(chip):
        hint = "Plan it for a chip that vLLM runs on (`gnomon chips`)."
        raise InputError(why, where="chip", hint=hint)
    if why := refused_dtype(chip, plan.dtype):
        raise InputError(why, where="dtype", hint="Plan it in fp16.")
    if error := launch.no_weights(plan, load_model(plan.model)):
        raise error


def require_vllm(plan: Plan) -> None:
    """Refuse plans of other engines, and degrees that vLLM cannot cut the model into."""
    if plan.engine.name != "vllm":
        raise InputError(f"the plan is for the engine '{plan.engine.name}', not for vllm", where="engine.name")
    model = load_model(plan.model)
    if not unpriced(model):
        check_degrees(model, plan.strategy)
