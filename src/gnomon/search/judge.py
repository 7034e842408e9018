"""Verdicts on runs: which part of one is steady, how sure a goal is met, does its queue grow, is it lost already, would
other limits have changed it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gnomon.spec import Goal, ServingLimits
from gnomon.spec.workload import QUANTILES, Floats

GROWTH = 0.02
"""Share of the arriving requests that must stay behind before a queue counts as growing."""
SIGMAS = 3.0
STEADY = 1.25
"""A load whose last quarter comes in faster than its second by more than this is no steady one."""
ENDING = (0.3, 0.8)
"""Shares of the requests between whose ends an overloaded run's throughput is taken."""
WARM_UP, COOL_DOWN, SETTLED = 2.0, 1.0, 6.0
"""In lifetimes of a request (the 90th percentile from arrival to last token): what is left out at the beginning, while
the batch of an empty engine fills, and at the end, where no requests follow; and how long a run must be at least."""
SECTIONS = (5, 10, 20)
"""Numbers of parts that a run is cut into to see how far its figures wander; the widest error counts, since
neighbours in a queue share their fate for longer than a short part lasts."""
LEAST_STEADY = 2 * max(SECTIONS)
"""Requests that a steady part has at least."""
BEYOND = 6.0
"""Independent requests beyond a quantile from which on a run has seen its tail; the error of fewer is widened."""
INSTANT_S = 1e-9
WINDOWS = 8
"""Parts of a run that are tried for the one that is judged, where lifetimes are not known."""
BINS = 200
SURE = 1.645
"""Standard errors between a figure and its goal from which on it is met with 95% confidence."""


def lifetime_s(arrival_s: Floats, finish_s: Floats) -> float:
    """What all but a tenth of the requests take from their arrival to their last token."""
    return quantile(finish_s - arrival_s, 0.9)


def is_settled(arrival_s: Floats, finish_s: Floats) -> bool:
    """Whether a run lasts for enough lifetimes of its requests, and has enough of them, to have a steady part."""
    if float(arrival_s[-1] - arrival_s[0]) < SETTLED * lifetime_s(arrival_s, finish_s):
        return False
    part = _between(arrival_s, finish_s)
    return int(part.stop - part.start) >= LEAST_STEADY


def _between(arrival_s: Floats, finish_s: Floats) -> slice:
    life = lifetime_s(arrival_s, finish_s)
    return slice(*np.searchsorted(arrival_s, [arrival_s[0] + WARM_UP * life, arrival_s[-1] - COOL_DOWN * life]))


def steady_part(arrival_s: Floats, finish_s: Floats) -> slice:
    """The requests that a run is judged by: those that found a filled batch, and after which others came. Of a run
    that never settled it is the second half."""
    count = int(arrival_s.size)
    return _between(arrival_s, finish_s) if is_settled(arrival_s, finish_s) else slice(count // 2, count)


def least_of_windows(values_s: Floats, arrival_s: Floats, name: str, life_s: float) -> float:
    """The least that a statistic can be of the part of a run that is judged, whose requests live for `life_s` or longer
    and still settle: over parts from the widest to the narrowest."""
    span = float(arrival_s[-1] - arrival_s[0])
    least = math.inf
    for life in np.geomspace(min(life_s, span / SETTLED), span / SETTLED, WINDOWS).tolist():
        edges = np.searchsorted(arrival_s, [arrival_s[0] + WARM_UP * life, arrival_s[-1] - COOL_DOWN * life])
        part = values_s[slice(*edges)]
        least = min(least, statistic(part, name) if part.size else -math.inf)
    return least


def clearance(values_s: Floats, goal: Goal) -> float:
    """Standard errors by which a goal is met (or missed, below zero) over requests in order of arrival.

    The error of the figure comes from how far it wanders between parts of the run (sectioning), as a factor, since a
    calm run wanders less; wider by Student's t for few parts, and by how few independent requests lie beyond a
    quantile: a tail that was hardly seen is not sure.
    """
    known = values_s[~np.isnan(values_s)]
    if not known.size:
        return math.inf  # nobody has such a time
    room = math.log(goal.limit_s / max(statistic(known, goal.statistic), INSTANT_S))
    if known.size < LEAST_STEADY:
        return math.copysign(0.0, room)
    error = max(_wander(known, goal.statistic, parts) for parts in SECTIONS)
    if goal.statistic != "mean":
        beyond = (1 - QUANTILES[goal.statistic]) * known.size / correlated(known)
        error *= math.sqrt(max(1.0, BEYOND / beyond))
    return room / error if error > 0 else math.copysign(math.inf, room)


def _wander(values_s: Floats, name: str, parts: int) -> float:
    figures = np.array([statistic(part, name) for part in np.array_split(values_s, parts)])
    return _spread(np.log(np.maximum(figures, INSTANT_S)))


def error_along(values: Floats) -> float:
    """The standard error of the mean of values in order of arrival, by sectioning as in `clearance`."""
    if values.size < LEAST_STEADY:
        return math.inf
    return max(_spread(np.array([part.mean() for part in np.array_split(values, parts)])) for parts in SECTIONS)


def _spread(figures: Floats) -> float:
    """The standard error of the mean of a few independent figures, wider by Student's t."""
    return float(figures.std(ddof=1)) / math.sqrt(figures.size) * student(figures.size - 1) / SURE


def student(freedom: float) -> float:
    """The quantile of Student's distribution that `SURE` is of the normal one (Cornish and Fisher's expansion)."""
    z = SURE
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def correlated(values_s: Floats) -> float:
    """How many neighbouring requests tell as much as one independent one, at least 1: by the autocorrelation of ranks
    (Geyer's initial positive sequence), which one long request among them does not decide."""
    ranks = np.empty(values_s.size)
    ranks[np.argsort(values_s, kind="stable")] = np.arange(values_s.size)
    count = min(BINS, values_s.size // 2)
    part, longer = divmod(values_s.size, count)
    sizes = part + (np.arange(count) < longer)
    means = np.add.reduceat(ranks, np.cumsum(sizes) - sizes) / sizes
    means -= means.mean()

    def covariance(lag: int) -> float:
        return float(means[: count - lag] @ means[lag:]) / count

    total = covariance(0)
    for lag in range(1, count // 3 - 1, 2):
        pair = covariance(lag) + covariance(lag + 1)
        if pair <= 0:
            break
        total += 2 * pair
    alone = float(ranks.var()) / ranks.size
    return max(1.0, total / count / alone) if alone > 0 else 1.0


def statistic(values: Floats, name: str) -> float:
    """Mean or quantile; NaN entries have no say."""
    known = values[~np.isnan(values)]
    if not known.size:
        return float("nan")
    return float(known.mean()) if name == "mean" else quantile(known, QUANTILES[name])


def quantile(values: Floats, share: float) -> float:
    """What `np.quantile` answers, for one share, without what it takes to ask it."""
    place = share * (values.size - 1)
    below = int(place)
    above, part = min(below + 1, values.size - 1), place - below
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def lost_already(values_s: Floats, total: int, goal: Goal) -> bool:
    """Whether a goal over `total` requests is missed whatever the rest brings, given those seen so far.

    The rest is taken to need no time at all. Requests still to come can only delay those already
    there, so a run of the first part alone shows times that are at most those of the whole run.
    """
    known = values_s[~np.isnan(values_s)]
    if goal.statistic == "mean":
        return float(known.sum()) > goal.limit_s * total
    # np.quantile interpolates between the order statistics around this place.
    at_or_above = total - int(np.floor(QUANTILES[goal.statistic] * (total - 1)))
    return int(np.count_nonzero(known > goal.limit_s)) >= at_or_above


def backlog_grows(arrival_s: Floats, first_token_s: Floats, finish_s: Floats) -> bool:
    """Whether one replica falls behind a steady load, which a finite run would hide.

    A request that arrives finds a number of others unfinished. Where the replica keeps up, that number
    wanders around a level that is reached after about one request's time; where it does not, it rises
    by the unserved share of every arrival, for ever. So the mean number found in the last quarter is held
    against that of the second: their middles lie half the run apart. The rise counts when it is more
    than `GROWTH` of the arrivals between and more than `SIGMAS` deviations of two Poisson counts.
    Nothing is said of runs whose first quarter is shorter than a request is served for once the batch is full
    (until then it only fills), nor of loads that speed up themselves (a trace with a late peak): there the bounds
    and the goals must do.
    """
    count = int(arrival_s.size)
    quarter = count // 4
    if quarter < 8:
        return False
    second, last = slice(quarter, 2 * quarter), slice(count - quarter, count)
    settled_s = float(np.median(finish_s[last] - first_token_s[last]))
    speeds_up = float(np.ptp(arrival_s[second])) > STEADY * float(np.ptp(arrival_s[last]))
    if speeds_up or arrival_s[quarter] - arrival_s[0] < settled_s:
        return False
    unfinished = np.arange(count) - np.searchsorted(np.sort(finish_s), arrival_s, side="right")
    before, after = float(unfinished[second].mean()), float(unfinished[last].mean())
    rise = after - before
    return rise > GROWTH * count / 2 and rise > SIGMAS * math.sqrt(before + after)


def sustained_rps(arrival_s: Floats, first_token_s: Floats, finish_s: Floats, estimate: float, *, full: bool) -> float:
    """Requests per second that are sustained, by an estimate and by what a run shows: no less than came in, where it
    lasted for several lifetimes of its requests and its queue did not grow; and just those that ended, where the queue
    grew with a `full` batch. One that is not full yet serves more as it fills."""
    count, span_s, arrived_s = int(arrival_s.size), float(finish_s.max() - arrival_s.min()), float(np.ptp(arrival_s))
    grows = backlog_grows(arrival_s, first_token_s, finish_s)
    if grows and full:
        first, last = (int(share * count) for share in ENDING)
        ends = np.sort(finish_s)
        return (last - first) / float(ends[last] - ends[first])
    lasts = arrived_s > 0 and arrived_s >= SETTLED * lifetime_s(arrival_s, finish_s)
    shown = (count - 1) / arrived_s if lasts and not grows else count / span_s if span_s > 0 else 0.0
    return max(estimate, shown)


def overloaded(
    arrival_s: Floats, first_token_s: Floats, finish_s: Floats, rates: tuple[float, float], *, endless: bool
) -> bool:
    """Whether requests come in faster than is sustained, by the two `rates`, where the load goes on like that
    (`endless`) or lasts for several lifetimes of its requests and is no single burst, or its queue grows."""
    arriving, sustained = rates
    if not math.isfinite(arriving) or arriving <= sustained:
        return False
    lasts = endless or float(np.ptp(arrival_s)) >= SETTLED * lifetime_s(arrival_s, finish_s)
    return lasts or backlog_grows(arrival_s, first_token_s, finish_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The most a run ever asked of its limits, or a little more."""

    places: int
    step_tokens: int
    kv_blocks: int
    """What was in use, and what the longest prompt would have needed beside it."""

    def over(self, *others: Peaks) -> Peaks:
        """The most of these and others."""
        each = (self, *others)
        return Peaks(
            places=max(one.places for one in each),
            step_tokens=max(one.step_tokens for one in each),
            kv_blocks=max(one.kv_blocks for one in each),
        )


NO_PEAKS = Peaks(places=0, step_tokens=0, kv_blocks=0)


def places_taken(peak_sequences: int, finish_s: Floats) -> int:
    """Places that were taken at once, at most: the sequences of the largest step, and those that keep their place
    until the outputs of the last two steps are there."""
    _, together = np.unique(finish_s, return_counts=True)
    return peak_sequences + 2 * int(together.max())


def same_schedule(ran: ServingLimits, other: ServingLimits, peaks: Peaks) -> bool:
    """Whether a run within some limits goes exactly the same way within others: each limit is the same, or was never
    met by the run and is too far away for it in the other."""
    alike, likewise = (
        replace(each, max_sequences=1, max_step_tokens=1, kv_blocks=1, max_context=1) for each in (ran, other)
    )
    if alike != likewise:
        return False
    pairs = (
        (ran.max_sequences, other.max_sequences, peaks.places),
        (ran.max_step_tokens, other.max_step_tokens, peaks.step_tokens),
        (ran.kv_blocks, other.kv_blocks, peaks.kv_blocks),
    )
    return all(one == two or most < min(one, two) for one, two, most in pairs)
