"""What `plan train` looks for, and the limits that a run must keep to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.errors import InputError, unknown_name
from gnomon.spec.questions.base import flag
from gnomon.spec.questions.training import TrainingQuestion

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.spec.cluster import Pool
    from gnomon.spec.model import Model

FASTEST, FEWEST, CHEAPEST, TOKENS, CONTEXT, LARGEST = OBJECTIVES = (
    "fastest", "fewest-gpus", "cheapest", "most-tokens", "longest-context", "largest-model",
)  # fmt: skip
OBJECTIVE_HELP = (
    "fastest (the default), fewest-gpus (what --deadline asks for), cheapest (what --deadline asks for where there are "
    "several clusters), most-tokens (what --budget asks for without --tokens), longest-context (sequences of so many "
    "times --seq) or largest-model (of a list, MODEL,MODEL,…; of one model, that model with more heads and layers)."
)
CLUSTER_HELP = "The chips to train on: CHIP:N. H100:512,H200:256 are clusters to choose from."
DEADLINE_HELP = "How long the full run may take: 30d. Needs --tokens, or the objective most-tokens."
BUDGET_HELP = "What the full run may cost: 1M$, 500k or 2e6, in dollars."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTrainingQuestion(TrainingQuestion):
    """The best way to train a model on a cluster, how long it takes, and what it needs."""

    cluster: str | Pool | Sequence[str | Pool] = flag("--cluster", "chips", "CHIP:N", CLUSTER_HELP)
    objective: str | None = flag("--objective", "text", "WHAT", OBJECTIVE_HELP, default=None)
    deadline_s: float | None = flag("--deadline", "duration", "TIME", DEADLINE_HELP, default=None)
    budget_usd: float | None = flag("--budget", "money", "DOLLARS", BUDGET_HELP, default=None)
    fewest_gpus: bool = flag("--fewest-gpus", "switch", "", "The same as --objective fewest-gpus.", default=False)
    longest_context: bool = flag(
        "--longest-context", "switch", "", "The same as --objective longest-context.", default=False
    )

    def __post_init__(self) -> None:
        TrainingQuestion.__post_init__(self)
        if self.objective is not None and self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES, where="--objective")
        self._check_one_objective()
        self._check_limits()
        self._check_mixed()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of chips of one cluster that has two of them."""
        mixed = [one for one in self.clusters if isinstance(one, str) and "+" in one]
        return tuple(part.strip() for part in mixed[0].split("+")) if mixed else ()

    @property
    def run_tokens(self) -> float | None:
        return math.inf if self.goal == TOKENS else self.tokens

    @property
    def clusters(self) -> tuple[str | Pool, ...]:
        """Those to choose from, as they were written."""
        several: Any = self.cluster if isinstance(self.cluster, (list, tuple)) else (self.cluster,)
        return tuple(part for one in several for part in (_listed(one) if isinstance(one, str) else (one,)))

    @property
    def models(self) -> tuple[str | Path | Model, ...]:
        """Those to choose from where the largest is looked for; else the one."""
        several = self.goal == LARGEST and isinstance(self.model, str)
        return tuple(_listed(str(self.model))) if several else (self.model,)

    @property
    def goal(self) -> str:
        """The objective, as it was named or as its limits say."""
        named = self._named
        if named:
            return named[0]
        if self.budget_usd is not None and self.tokens is None:
            return TOKENS
        if self.deadline_s is None:
            return FASTEST
        return CHEAPEST if len(self.clusters) > 1 else FEWEST

    @property
    def _named(self) -> list[str]:
        short = [FEWEST] * self.fewest_gpus + [CONTEXT] * self.longest_context
        return [*([self.objective] if self.objective else []), *short]

    def _check_one_objective(self) -> None:
        named = self._named
        if len(set(named)) > 1:
            raise InputError(f"{' and '.join(named)} are two objectives", where="--objective", hint="Give one of them.")
        if self.goal in (CONTEXT, LARGEST) and len(self.clusters) > 1:
            raise InputError(f"{self.goal} is looked for on one cluster", where="--cluster", hint="Give one of them.")

    def _check_mixed(self) -> None:
        """What is not planned on two kinds of chips together."""
        if not self.kinds:
            return
        if len(self.kinds) > 2 or len(self.clusters) > 1:
            raise InputError("names more than two kinds of chips together", where="--cluster", hint="Give A:N+B:M.")
        given = {
            "--objective": self.goal != FASTEST, "--budget": self.budget_usd is not None,
            "--failures": self.failures is not None, "--with": bool(self.techniques),
            "--lengths": self.lengths is not None,
        }  # fmt: skip
        for flag_given in (name for name, value in given.items() if value):
            message = "is not planned on two kinds of chips together"
            raise InputError(message, where=flag_given, hint="Give one kind, or kinds to choose from: A:N,B:M.")

    def _check_limits(self) -> None:
        """A limit that nothing could keep, or that nothing would depend on."""
        for name, value in (("--deadline", self.deadline_s), ("--budget", self.budget_usd)):
            if value == 0:
                raise InputError("'0' is not above zero", where=name)
            if value is not None and self.tokens is None and self.goal != TOKENS:
                hint = "Give the tokens of the full run, such as --tokens 300B."
                raise InputError("does nothing without --tokens", where=name, hint=hint)
        if self.goal == TOKENS and self.tokens is not None:
            raise InputError("is what most-tokens looks for", where="--tokens", hint="Leave it out.")
        if self.goal == TOKENS and self.deadline_s is None and self.budget_usd is None:
            hint = "Give --budget 1M$ or --deadline 30d."
            raise InputError("most-tokens needs a limit", where="--objective", hint=hint)
        if self.goal == CHEAPEST and self.tokens is None:
            hint = "Give the tokens of the full run, such as --tokens 300B."
            raise InputError("cheapest needs the run that is paid for", where="--objective", hint=hint)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]
