"""A shell script that runs the plan's steps with PyTorch alone and measures them, and the plan beside it."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.torch import launch
from gnomon.export.base import Rendered, check_trained_on, header, in_other_words, require_load
from gnomon.spec import Plan

NAME = "torchrun"
SUMMARY = "run.sh with one `torchrun` of Gnomon's own runner a node"


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    require_load(plan, NAME)
    left_out = launch.not_expressed(in_other_words(plan))
    return Rendered(
        files=launch.files(plan, header(warnings, left_out)),
        command="bash run.sh",
        engine="torch",
        version=plan.engine.version if plan.engine.name == "torch" else "",
        not_expressed=tuple(left_out),
    )


def words(plan: Plan) -> list[str]:
    """The words of the launch command on one node."""
    require_load(plan, NAME)
    return launch.command(plan)


def check(plan: Plan) -> None:
    check_trained_on(plan, "PyTorch")
