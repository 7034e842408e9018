"""`export`: a plan as the files of another program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.spec.questions.base import Question, argument, flag

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.plan import Plan

PLAN_HELP = "A plan's file, a run's id, or `last`."
TO_HELP = "vllm or kubernetes for serving, megatron or torchrun for training; by default what the plan's engine needs."
CHECKPOINT_HELP = "Weights to serve, where the model's are in another format."
FORCE_HELP = "Also a plan that would not run, with a warning inside; overwrite other files."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportQuestion(Question):
    """A plan as the files that start it. Without --out the first file is printed."""

    COMMAND = "export"
    plan: Plan | str | Path = argument("plain", "PLAN", PLAN_HELP)
    to: str | None = flag("--to", "target", "TARGET", TO_HELP, default=None)
    checkpoint: str | None = flag("--checkpoint", "plain", "NAME", CHECKPOINT_HELP, default=None)
    force: bool = flag("--force", "switch", "", FORCE_HELP, default=False)
