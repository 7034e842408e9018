"""A shell script that runs the plan's steps with PyTorch alone and measures them, and the plan beside it."""

from __future__ import annotations

from gnomon.engines.torch import launch
from gnomon.export.base import Rendered, in_other_words, require_load
from gnomon.spec import Plan

NAME = "torchrun"
SUMMARY = "run.sh with one `torchrun` of Gnomon's own runner a node"


def render(plan: Plan) -> Rendered:
    require_load(plan, NAME)
    return Rendered(
        files=launch.files(plan),
        command="bash run.sh",
        engine="torch",
        version=plan.engine.version if plan.engine.name == "torch" else "",
        not_expressed=tuple(launch.not_expressed(in_other_words(plan))),
    )
