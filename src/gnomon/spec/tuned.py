"""What to change in a deployment that runs."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.spec.answers import NotModelled, PlanScore, Result
from gnomon.spec.workload import Goal


@dataclass(frozen=True, kw_only=True)
class PlanChange(Result):
    """A change of the running plan, simulated under the same load and goals."""

    what: str
    flags: tuple[str, ...]
    """Flags of the engine to set; none for what no flag says, as the number of replicas."""
    dropped: tuple[str, ...]
    """Flags to leave out."""
    price: float
    """Price per hour relative to the running plan's."""
    rate: float | None
    """The highest rate that meets the goals relative to the running plan's; null where one of them has none."""
    score: PlanScore


@dataclass(frozen=True, kw_only=True)
class TunedPlan(Result):
    """The running plan, the single changes that help most, and the best plan on the same chips."""

    SCHEMA = "tune"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    """Options of the command that change what it does and none of these figures."""
    goals: tuple[Goal, ...]
    now: PlanScore
    changes: tuple[PlanChange, ...]
    """Those that meet the goals first, the cheapest of them, then by the highest rate."""
    best: PlanScore | None
    """The best plan of a search on the same chips."""
    best_change: PlanChange | None
    why_no_best: str
    tried: int
    no_benefit: int
    refused: int
    """Changes that the engine or the chip refuses."""
    unfit: int
    """Changes that leave no room for a request."""
