"""`export` and `compare`: a plan as the files of another program, and plans beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import Question, argument, flag
from gnomon.spec.questions.serving import LoadQuestion

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.answers import Result
    from gnomon.spec.plan import Plan

MOST_JOBS = 1024
PLAN_HELP = "A plan's file, a run's id, or `last`."
COMPARED_HELP = "Two or more: a plan's file, a run's id, `last`, an answer's .json."
TO_HELP = "{targets}; by default what the plan's engine needs."
CHECKPOINT_HELP = "Weights to serve, where the model's are in another format."
FORCE_HELP = "Also a plan that would not run, with a warning inside; overwrite other files."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportQuestion(Question):
    """A plan as the files that start it. Without --out the first file is printed."""

    plan: Plan | str | Path = argument("plain", "PLAN", PLAN_HELP)
    to: str | None = flag("--to", "target", "TARGET", TO_HELP, default=None)
    checkpoint: str | None = flag("--checkpoint", "plain", "NAME", CHECKPOINT_HELP, default=None)
    force: bool = flag("--force", "switch", "", FORCE_HELP, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuestion(Question):
    """An earlier answer, or one of its operators, broken down."""

    what: str | Path = argument("plain", "[last|ID|FILE]", "A run's id, a JSON answer, or `last`.")
    op: str | None = flag("--op", "plain", "NAME", "Show only this operator.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepQuestion(Question):
    """Any question over lists of values, and where its answers go."""

    file: str | Path | Mapping[str, Any] = argument("plain", "FILE.yaml", "The command and its values.")
    out: str | Path = flag("--out", "plain", "FILE", "The file of answers.")
    jobs: int | None = flag("--jobs", "whole", "N", "Parallel workers.", default=None, most=MOST_JOBS)
    ray: str = flag("--ray", "plain", "ADDRESS", "A Ray cluster.", default="")
    shard: str = flag("--shard", "plain", "I/N", "Only shard I of N.", default="")
    join: Sequence[str | Path] = flag("--join", "plain", "FILE.jsonl", "Files of finished shards.", default=())


@dataclass(frozen=True, kw_only=True)
class CompareQuestion(LoadQuestion):
    """Plans, or answers of one command, side by side.

    Serving plans are simulated under one load, the first one's where none is given; training plans do the first one's
    job.
    """

    plans: tuple[str | Path | Plan | Result, ...] = argument("plans", "A B…", COMPARED_HELP)
    seed: int | None = flag("--seed", "size", "S", "Seed of the draw.", default=None, least=0)

    @property
    def load(self) -> dict[str, Any]:
        """What was said of a load."""
        named = {name: getattr(self, name) for name in ("trace", "rate", "input", "output", "requests", "seed")}
        return {name: value for name, value in named.items() if value is not None}
