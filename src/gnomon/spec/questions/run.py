"""Flags about a whole training run: failures, checkpoints, restarts, spare nodes, the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.errors import InputError
from gnomon.spec.questions.base import Question, last_flag
from gnomon.spec.reliability import DETECTION_S, REPAIR_S, RESTART_S
from gnomon.units import format_duration

AUTO = "auto"
FAILURES_HELP = (
    "Failures that stop the job: default (Llama 3's rate), another published one (rsc-1, rsc-2, opt-175b, bloom, "
    "glm-130b), or a rate such as 2e-5/gpu-hour or 6.5/1000-node-days. Needs --tokens."
)
CHECKPOINT_TO_HELP = (
    "Where checkpoints go: shared[:RATE] (storage of all hosts, RATE together, such as 100GB/s) or local[:RATE] (each "
    "host's disks, uploaded in the background). shared where it is not given."
)
EVERY_HELP = "Steps (500) or time (30min) from one checkpoint to the next; auto, or not given, for the best."
MODE_HELP = (
    "What a checkpoint blocks: synchronous (copy and write), asynchronous (the copy to the host; where it is not "
    "given) or lazy (what the next passes do not overlap of the copy)."
)
SPARES_HELP = "Nodes that wait to replace one in repair; auto, or not given, for the fewest that leave hardly any wait."
GRID_HELP = "The power grid, for carbon: a cloud's region or a country, such as us-east-1 or FR."
NEEDS_FAILURES = (
    "checkpoint_to", "checkpoint_every", "checkpoint_mode", "spares", "detection_time_s", "restart_time_s",
    "repair_time_s",
)  # fmt: skip
"""Fields that say nothing without failures."""


def _after(what: str, usual_s: float) -> str:
    return f"{what}; {format_duration(usual_s)} where it is not given."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion(Question):
    """What a training run meets beside its steps."""

    failures: str | None = last_flag("--failures", "text", "NAME|RATE", FAILURES_HELP)
    checkpoint_to: str | None = last_flag("--checkpoint-to", "text", "PLACE[:RATE]", CHECKPOINT_TO_HELP)
    checkpoint_every: str | int | None = last_flag("--checkpoint-every", "text", "STEPS|TIME|auto", EVERY_HELP)
    checkpoint_mode: str | None = last_flag("--checkpoint-mode", "checkpoint_mode", "MODE", MODE_HELP)
    spares: str | int | None = last_flag("--spares", "text", "N|auto", SPARES_HELP)
    detection_time_s: float | None = last_flag(
        "--detection-time", "duration", "TIME", _after("From a failure to the restart", DETECTION_S)
    )
    restart_time_s: float | None = last_flag(
        "--restart-time", "duration", "TIME", _after("A restart without loading the checkpoint", RESTART_S)
    )
    repair_time_s: float | None = last_flag(
        "--repair-time", "duration", "TIME", _after("Until a failed node is back", REPAIR_S)
    )
    grid: str | None = last_flag("--grid", "text", "PLACE", GRID_HELP)

    @property
    def run_given(self) -> Mapping[str, Any]:
        """The fields about the run that were given, by name."""
        names = ("failures", *NEEDS_FAILURES, "grid")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def check_run(question: RunQuestion, tokens: float | None) -> None:
    """Raise InputError for an option that would do nothing."""
    flags = question.flags()
    if question.failures is None:
        for name in NEEDS_FAILURES:
            if getattr(question, name) is not None:
                where, hint = flags[name].where, "Add --failures default, or a rate of your own."
                raise InputError("does nothing without --failures", where=where, hint=hint)
    elif tokens is None:
        hint = "Give the tokens of the whole run, such as --tokens 300B."
        raise InputError("does nothing without --tokens", where="--failures", hint=hint)
