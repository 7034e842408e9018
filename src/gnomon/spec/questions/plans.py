"""`export`, `compare`, `tune` and `papers apply`: a plan as the files of another program, plans beside each other, what
to change in one, and which techniques help it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.spec.questions.base import Question, argument, flag
from gnomon.spec.questions.serving import SLO_HELP, LoadQuestion

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.answers import Result
    from gnomon.spec.cluster import Pool
    from gnomon.spec.plan import Plan
    from gnomon.spec.questions.serving import Goals

MOST_JOBS = 1024
PLAN_HELP = "A plan's file, a run's id, or `last`."
COMPARED_HELP = "Two or more: a plan's file, a run's id, `last`, an answer's .json, or what `gnomon import` takes."
TUNED_HELP = "A plan's file, a run's id, `last`, or what `gnomon import` takes, as a command in quotes."
COMMANDS_ON_HELP = "The chips of commands that do not say it; with N, of all replicas."
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
class SharedLoadQuestion(LoadQuestion):
    """A load that plans are put under, in the place of their own."""

    seed: int | None = flag("--seed", "size", "S", "Seed of the draw.", default=None, least=0)

    @property
    def load(self) -> dict[str, Any]:
        """What was said of a load."""
        named = {name: getattr(self, name) for name in ("trace", "rate", "input", "output", "requests", "seed")}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class CompareQuestion(SharedLoadQuestion):
    """Plans, or answers of one command, side by side.

    Serving plans are simulated under one load, the first one's where none is given; training plans do the first one's
    job.
    """

    plans: tuple[str | Path | Plan | Result, ...] = argument("plans", "A B…", COMPARED_HELP)
    on: str | Pool | None = flag("--on", "chips", "CHIP[:N]", COMMANDS_ON_HELP, default=None)


@dataclass(frozen=True, kw_only=True)
class TuneQuestion(SharedLoadQuestion):
    """What to change in a deployment, each change simulated.

    One knob, degree or format at a time, then the best plan on the same chips, under the load and the goals, which are
    the plan's own where none are given.
    """

    plan: str | Path | Plan = argument("plain", "PLAN_OR_COMMAND", TUNED_HELP)
    on: str | Pool | None = flag("--on", "chips", "CHIP[:N]", COMMANDS_ON_HELP, default=None)
    slo: Goals | None = flag("--slo", "goals", "GOALS", SLO_HELP, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyQuestion(Question):
    """Which techniques help a plan most: its work planned again on its chips with each, and with pairs."""

    plan: str | Path | Plan = argument("plain", "PLAN", PLAN_HELP)
