"""Inter-token latency of a run: the gaps between consecutive output tokens of a request, as its client sees them.

`vllm bench serve` takes its ITL of all gaps of all requests. Here they are not walked token by token: a span of
equal steps has its first gap, its last one, and those in between, of which up to POINTS stand for all where there are
more (they lie on a line from the first to the last). Gaps go into a histogram whose bins are 0.02% wide and know their
mean, so that the mean of all is exact, a quantile is within half of that, and exact where a bin has one value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.sim.serving.log import RunLog
from gnomon.spec.workload import Floats, Ints

POINTS = 8
RESOLUTION = 1 / 4096
"""Width of a bin, as a share of its gaps."""
LEAST_S, MOST_S = 1e-7, 1e6
"""Gaps beyond are counted with these."""
ROWS = 1 << 16
"""Rows of a log that are turned into gaps at once, so that memory stays bounded."""


class GapHistogram:
    """Gaps with their counts."""

    __slots__ = ("_counts", "_sums")

    def __init__(self) -> None:
        bins = int(np.log(MOST_S / LEAST_S) / RESOLUTION) + 2
        self._counts, self._sums = np.zeros(bins), np.zeros(bins)

    def add(self, gaps: Floats, counts: Floats) -> None:
        at: Ints = (np.log(np.clip(gaps, LEAST_S, MOST_S) / LEAST_S) / RESOLUTION).astype(np.int64)
        self._counts += np.bincount(at, counts, self._counts.size)
        self._sums += np.bincount(at, gaps * counts, self._sums.size)

    def include(self, other: GapHistogram) -> None:
        """Those of another one, too."""
        self._counts += other._counts
        self._sums += other._sums

    @property
    def count(self) -> float:
        return float(self._counts.sum())

    @property
    def mean(self) -> float:
        return float(self._sums.sum() / self.count) if self.count else float("nan")

    def quantiles(self, shares: Floats) -> Floats:
        """As numpy's, on a line between the two gaps that are nearest."""
        known = self._counts > 0
        if not known.any():
            return np.full(shares.size, np.nan)
        means, through = self._sums[known] / self._counts[known], np.cumsum(self._counts[known])
        place = shares * (through[-1] - 1)
        below = np.floor(place + 1e-9)
        low, high = (
            means[np.minimum(np.searchsorted(through, at, side="right"), means.size - 1)] for at in (below, below + 1)
        )
        cuts: Floats = low + (high - low) * np.maximum(place - below, 0.0)
        return cuts


@dataclass(frozen=True, slots=True)
class _StepSpan:
    """Rows with decodes: of each, times as the client sees them."""

    before_s: Floats
    first_s: Floats
    """When the tokens of its first step are there."""
    last_s: Floats
    between_s: Floats
    """From those of its first step to those of its last one, as the engine makes them: in a front end that is busy the
    client sees less."""
    end_s: Floats
    """The last of these gaps."""
    slope_s: Floats
    """By how much one gap of them is longer than the one before it."""
    steps: Floats
    decodes: Floats


def token_gaps(log: RunLog) -> GapHistogram:
    """All gaps of a run that is over."""
    found = GapHistogram()
    for one in log.ranks or [log]:
        _add_gaps(found, one)
    return found


def _add_gaps(found: GapHistogram, log: RunLog) -> None:
    others = np.array(log.others, float).reshape(-1, 3)
    before, left = _times(log)
    for first in range(0, len(log), ROWS):
        here = slice(first, first + ROWS)
        span = _span(log, first, before[here], left[here])
        row, last, paused = others[(others[:, 0] >= first) & (others[:, 0] < first + ROWS)].T
        at: Ints = row.astype(np.int64) - first
        own = span.decodes - np.bincount(at, paused, span.decodes.size)
        found.add(span.first_s[at] - log.through(last), np.ones(at.size))
        known = own > 0
        found.add((span.first_s - span.before_s)[known], own[known])
        _add_later(found, span)


def _times(log: RunLog) -> tuple[Floats, Floats]:
    """Of each row: when the tokens before those of its first step leave the engine, and when those of its last do."""
    left = log.rows().left_s.copy()
    left[list(log.late_s)] += list(log.late_s.values())
    before = np.concatenate([[0.0], left[:-1]])
    before[list(log.before_s)] = list(log.before_s.values())
    return before, left


def _span(log: RunLog, first: int, before: Floats, left: Floats) -> _StepSpan:
    rows = log.rows(first, first + ROWS)
    steps, last, lasted, late = rows.steps, rows.last_s, rows.end_s - rows.start_s, left - rows.left_s
    several = steps > 1
    # Steps of a span lie on a line, so the first and the last are twice the mean.
    first_step = np.where(several, np.clip(2 * lasted / steps - last, 0.0, lasted - last), last)
    between = np.where(several, lasted - first_step + late, 0.0)
    return _StepSpan(
        before_s=log.through(before),
        first_s=log.through(np.where(several, np.maximum(left - between, before), left)),
        last_s=log.through(left),
        between_s=between,
        end_s=last + late,
        slope_s=(last - first_step) / np.maximum(steps - 1, 1),
        steps=steps,
        decodes=rows.decodes,
    )


def _add_later(found: GapHistogram, span: _StepSpan) -> None:
    """The gaps after the first one of each span."""
    at = np.flatnonzero((span.steps > 1) & (span.decodes > 0) & (span.between_s > 0))
    seen = (span.last_s - span.first_s)[at] / span.between_s[at]
    end, decodes, inner = span.end_s[at], span.decodes[at], span.steps[at] - 2
    found.add(end * seen, decodes)
    points = np.minimum(inner, POINTS).astype(np.int64)
    of = np.repeat(np.arange(at.size), points)
    place = np.arange(of.size) - np.repeat(np.cumsum(points) - points, points)
    middle = (span.between_s[at] - end)[of] / inner[of]
    beside = ((place + 0.5) / points[of] - 0.5) * inner[of] * span.slope_s[at][of]
    found.add(np.maximum(middle + beside, 0.0) * seen[of], decodes[of] * (inner / np.maximum(points, 1))[of])
