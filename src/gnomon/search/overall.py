"""How sure a goal is met over all requests: those of one kind of replica, of unlike kinds behind one router, or of a
trace that replicas see whole, each its share of it by the draws of a router.

The ups and downs of a whole trace are no doubt about its figures: they come again with every draw. What could have been
otherwise is which request went to which replica. So the error of a figure comes from how far draws of the router differ
at the same time of the trace, and not from how far one time differs from another. Where there is one draw, replicas
stand for draws, which is more than the error: what one replica gets too much, another gets too little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.search.judge import INSTANT_S, LEAST_STEADY, SECTIONS, SURE, error_along, quantile, student
from gnomon.spec import Goal
from gnomon.spec.workload import QUANTILES, Floats, Ints

LEAST_GROUPS = 2
"""Draws, or replicas of one, that have to be seen to know how far they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTimes:
    """Times of requests of one kind of replica in order of arrival; not a number where a request has none."""

    values_s: Floats
    share: float = 1.0
    """The part of all requests that is of this kind."""
    sample: bool = True
    """Whether other draws would have given other times."""
    group: Ints | None = None
    """The draw of the router that each request was seen in, or the replica of its only draw, where a whole trace was
    dealt out."""

    def known(self) -> KindTimes:
        """Only requests that have such a time."""
        kept = ~np.isnan(self.values_s)
        group = None if self.group is None else self.group[kept]
        return KindTimes(values_s=self.values_s[kept], share=self.share, sample=self.sample, group=group)

    def error(self, values: Floats) -> float:
        """The standard error of a mean over these requests."""
        if not self.sample:
            return 0.0
        return error_along(values) if self.group is None else error_between(values, self.group)


def overall_clearance(kinds: Sequence[KindTimes], goal: Goal) -> float:
    """Standard errors by which a goal is met (or missed, below zero) over the requests of all kinds.

    A mean is a mean of means. The error of a quantile is first one of the part of the requests beyond it, which adds up
    over kinds, then of the figure itself: the quantiles so much higher or lower (Woodruff's interval).
    """
    known = [each for each in (kind.known() for kind in kinds) if each.values_s.size]
    if not known:
        return math.inf  # nobody has such a time
    shares = np.array([kind.share for kind in known]) / sum(kind.share for kind in known)
    values = [kind.values_s for kind in known]
    means = goal.statistic == "mean"
    level = 0.0 if means else QUANTILES[goal.statistic]
    found = mixed_mean(values, shares) if means else mixed_quantile(values, shares, level)
    figure = max(found, INSTANT_S)
    room = math.log(goal.limit_s / figure)
    if sum(each.size for each in values) < LEAST_STEADY:
        return math.copysign(0.0, room)
    counted = values if means else [(each > figure).astype(np.float64) for each in values]
    error = math.hypot(*(part * kind.error(each) for kind, part, each in zip(known, shares, counted, strict=True)))
    if means:
        error /= figure
    else:
        other = level + math.copysign(SURE * error, room)
        if not 0 < other < 1:
            return math.copysign(0.0, room)
        error = abs(math.log(max(mixed_quantile(values, shares, other), INSTANT_S) / figure)) / SURE
    return room / error if error > 0 else math.copysign(math.inf, room)


def mixed_mean(values: Sequence[Floats], shares: Floats) -> float:
    """Over kinds with their shares of the requests."""
    return float(sum(part * each.mean() for part, each in zip(shares, values, strict=True)))


def mixed_quantile(values: Sequence[Floats], shares: Floats, level: float) -> float:
    """Over kinds with their shares of the requests."""
    if len(values) == 1:
        return quantile(values[0], level)
    pooled = np.concatenate(values)
    weights = np.repeat(shares / [each.size for each in values], [each.size for each in values])
    order = np.argsort(pooled)
    place = int(np.searchsorted(np.cumsum(weights[order]), level))
    return float(pooled[order[min(place, pooled.size - 1)]])


def error_between(values: Floats, group: Ints) -> float:
    """The standard error of a mean by how far groups differ in the same section of the trace; of several numbers of
    sections the widest, since neighbours in a queue share their fate for longer than a short section lasts."""
    return max(_error(values, group, parts) for parts in SECTIONS)


def _error(values: Floats, group: Ints, parts: int) -> float:
    """Wider by Student's t, whose degrees of freedom are few where one burst decides (Welch and Satterthwaite)."""
    groups = int(group.max()) + 1
    cell = np.arange(values.size) * parts // values.size * groups + group
    counts, sums = (
        np.bincount(cell, weights, minlength=parts * groups).reshape(parts, groups) for weights in (None, values)
    )
    means = sums.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    variances = ((sums - counts * means) ** 2).sum(axis=1) * groups / max(1, groups - 1)
    total = float(variances.sum())
    if not total:
        return 0.0
    freedom = (groups - 1) * total**2 / float((variances**2).sum())
    return math.sqrt(total) / values.size * student(freedom) / SURE
