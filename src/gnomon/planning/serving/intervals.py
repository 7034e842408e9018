"""Intervals of a plan's figures: a part of its load again, under draws of the step cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnomon.planning.serving.evaluator import ServingEvaluator, ServingFigures
from gnomon.search import Candidate, Score
from gnomon.search.judge import NO_PEAKS, Peaks
from gnomon.search.rate import STRAIGHT
from gnomon.spec import Estimate, Goal, Provenance
from gnomon.spec.workload import METRICS, Floats

DRAWS = 16
REQUESTS = 600
"""Requests of each drawn run; the relative spread of its figures is taken for that of the whole load."""
DECIDING = 3
"""Draws at each end, of which the outer two make the 5% and the 95% quantile of `DRAWS`: their rates are found to
`CLOSE`."""
CLOSE, TRIES = math.log(1.03), 6
"""How near a rate that is run must be to the one that is looked for, as a logarithm, and how often one is run."""
LITTLE = 0.1
"""Room, as a logarithm, that is near enough to what is wanted for a line to say the rest."""
MOST_BEYOND = 2.0
"""How far beyond what was run the next rate is, in times the distance between the last two."""
SOURCE = f"the load under {DRAWS} draws of the step cost"


@dataclass(frozen=True, slots=True)
class Spread:
    """What draws of the step cost make of a plan's figures, relative to the central ones."""

    times: Mapping[tuple[str, str], Floats]
    power: Floats
    tokens: Floats
    """Of the output tokens per second that the runs made."""
    rate: Floats | None
    """Of the highest rate that meets the goals, for a plan that is shown at it."""

    def of(self, figures: ServingFigures) -> dict[str, dict[str, Estimate]]:
        """Times by metric and statistic, each with its interval; those that nobody has are left out."""
        found: dict[str, dict[str, Estimate]] = {}
        for metric in METRICS:
            values: Mapping[str, float] = getattr(figures, f"{metric}_s")
            known = {name: value for name, value in values.items() if not np.isnan(value)}
            found[f"{metric}_s"] = {name: estimate(value, self.times[metric, name]) for name, value in known.items()}
        return found


def estimate(value: float, factors: Floats) -> Estimate:
    return Estimate(value, value * factors, Provenance.FITTED, SOURCE)


@dataclass(slots=True)
class DrawnPlan:
    """One plan at its rate: its step cost by the central estimate first, then under draws, each with its limits."""

    evaluator: ServingEvaluator
    score: Score
    costs: list[tuple[Any, ...]]
    """See `ServingEvaluator.drawn`."""
    peaks: Peaks = NO_PEAKS
    """The most that any run asked of its limits."""
    ran: dict[tuple[int, float], ServingFigures] = field(default_factory=dict)

    @classmethod
    def of(cls, evaluator: ServingEvaluator, score: Score) -> DrawnPlan:
        return cls(evaluator, score, evaluator.drawn(score.plan, DRAWS))

    def figures(self, place: int, share: float = 1.0) -> ServingFigures:
        """One of the costs at a share of the plan's rate."""
        if (place, share) not in self.ran:
            rate = share * self.score.rate_per_s
            found, peaks = self.evaluator.part(self.score.plan, rate, REQUESTS, *self.costs[place])
            self.ran[place, share], self.peaks = found, self.peaks.over(peaks)
        return self.ran[place, share]

    def shared_with(self, score: Score) -> bool:
        """Whether the runs are those of another plan too, which differs in limits that none of them met."""
        same_rate = score.rate_per_s == self.score.rate_per_s
        return same_rate and self.evaluator.alike(self.score.plan, score.plan, self.peaks)

    def spread(self, goals: tuple[Goal, ...], *, rated: bool) -> Spread:
        """Of the figures at the plan's rate, and of the rate, where it is the highest that meets the goals."""
        center, *drawn = (self.figures(place) for place in range(len(self.costs)))
        return Spread(
            times={
                (metric, name): np.array([getattr(each, f"{metric}_s")[name] for each in drawn]) / value
                for metric in METRICS
                for name, value in getattr(center, f"{metric}_s").items()
            },
            power=np.array([each.power_w for each in drawn]) / center.power_w,
            tokens=np.array([each.output_tokens_per_s for each in drawn]) / center.output_tokens_per_s,
            rate=self._rates(goals) if rated else None,
        )

    def _rates(self, goals: tuple[Goal, ...]) -> Floats:
        """The rate at which each draw leaves as much room under the goals as the central estimate does at the plan's
        own, as a share of that. It is looked for under the draws at the ends, which make the interval; the others have
        the share of their bounds, as all have without goals."""
        center, *bounds = (self.evaluator.most_per_s(self.score.plan, *cost) for cost in self.costs)
        shares = np.array(bounds) / center
        if not goals:
            return shares
        wanted = _room(self.figures(0), goals)

        def beyond(place: int) -> Callable[[float], float]:
            return lambda share: _room(self.figures(place + 1, share), goals) - wanted

        order = np.argsort([beyond(place)(1.0) for place in range(shares.size)]).tolist()
        ends = (order[:DECIDING], order[-DECIDING:])
        low, high = ([crossing(beyond(place), float(shares[place])) for place in end] for end in ends)
        rates = np.clip(shares, max(low), max(*low, *high) if min(high) < max(low) else min(high))
        rates[[*ends[0], *ends[1]]] = [*low, *high]
        return rates


def crossing(beyond: Callable[[float], float], share: float) -> float:
    """The share of a rate at which a falling function of it, known at 1, crosses zero: first tried at a guess, then
    where a line through the two nearest points crosses, in logarithms, until one that was tried is close."""
    points = {0.0: beyond(1.0)}
    place = math.log(share)
    if abs(place) < CLOSE:
        place = math.copysign(2 * CLOSE, points[0.0])
    for _ in range(TRIES):
        near = min(points, key=lambda known: abs(known - place))
        if abs(place - near) < CLOSE:
            first, last = _bracket(points)
            if abs(points[near]) < LITTLE or not 2 * CLOSE < last - first < math.inf:
                break
            place = (first + last) / 2  # a queue that overflows between the two: their line says little
        points[place] = beyond(math.exp(place))
        place = _next(points)
    return math.exp(place)


def _bracket(points: Mapping[float, float]) -> tuple[float, float]:
    """The last place that leaves room and the first that leaves none; infinite where none is known."""
    above = max((place for place, value in points.items() if value >= 0), default=-math.inf)
    return above, min((place for place, value in points.items() if value < 0), default=math.inf)


def _next(points: Mapping[float, float]) -> float:
    """Between the last point above zero and the first below it, on their line; beyond all points, on the line of the
    outer two, at most twice as far again."""
    above, below = _bracket(points)
    if -math.inf < above < below < math.inf:
        room, lack = min(points[above], STRAIGHT), min(-points[below], STRAIGHT)
        return above + room / (room + lack) * (below - above)
    near, far = sorted(points, reverse=math.isinf(below))[:2]
    width = abs(near - far)
    steepness = (points[near] - points[far]) / (near - far)
    step = -points[near] / steepness if steepness < 0 else math.inf
    return near + math.copysign(min(abs(step), MOST_BEYOND * width), points[near])


def _room(figures: ServingFigures, goals: tuple[Goal, ...]) -> float:
    """What is left of the goal nearest to its limit, as a logarithm."""
    values = ((getattr(figures, f"{goal.metric}_s")[goal.statistic], goal.limit_s) for goal in goals)
    return min((math.log(limit / value) for value, limit in values if value > 0), default=0.0)


@dataclass(slots=True)
class Spreads:
    """Of plans of one question; plans whose runs are the same are run once."""

    evaluator: ServingEvaluator
    goals: tuple[Goal, ...]
    rated: bool
    """Whether plans are shown at the highest rate that meets the goals."""
    known: dict[Candidate, Spread] = field(default_factory=dict)
    drawn: list[DrawnPlan] = field(default_factory=list)

    def draw(self, score: Score) -> Spread:
        if score.plan not in self.known:
            plan = next((drawn for drawn in self.drawn if drawn.shared_with(score)), None)
            if plan is None:
                plan = DrawnPlan.of(self.evaluator, score)
                self.drawn.append(plan)
            self.known[score.plan] = plan.spread(self.goals, rated=self.rated)
        return self.known[score.plan]
