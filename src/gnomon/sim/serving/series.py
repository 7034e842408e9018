"""A run over time: what ran, waited and was held, as means over equal bins.

Integrals over a bin are exact for whole spans of equal steps (`log`), and taken in proportion to time inside one:
its tokens leave evenly, and its blocks grow along a line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.sim.serving.log import RunLog, StepRows
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.workload import Floats

BINS = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunSeries:
    """Columns of equal length, a place for each bin; NaN where there is nothing to take a mean of."""

    start_s: Floats
    """When each bin begins, on the clock of the arrivals."""
    bin_s: float
    arrivals_per_s: Floats
    running: Floats
    """Sequences in a step."""
    waiting: Floats
    """Requests that have arrived and not run yet, and those that were preempted and are not back."""
    kv_blocks: Floats
    cache_hit_rate: Floats
    """Of the prompt tokens of requests that first ran here, those found in the prefix cache."""
    output_tokens_per_s: Floats
    prefill_share: Floats
    """Of the time, steps with prompts; these may have decodes too."""
    decode_share: Floats
    """Of the time, steps without."""
    dynamic_w: Floats
    """Of one chip, beyond its constant draw."""
    clock: Floats
    """Of the highest, over the time in steps."""


def bin_edges(run: ServingRun, bins: int = BINS) -> Floats:
    """From the first arrival to the last token."""
    return np.linspace(float(run.requests.arrival_s[0]), float(run.finish_s.max()), bins + 1)


def run_series(run: ServingRun, log: RunLog, edges: Floats) -> RunSeries:
    """Over bins between edges."""
    requests, rows = run.requests, log.rows()
    bins, width = edges.size - 1, float(edges[1] - edges[0])
    lasted = rows.end_s - rows.start_s

    def mean(totals: Floats) -> Floats:
        return _spread(rows, totals, edges) / width

    slowed = mean(_since(rows.slowed_s) if log.governed else lasted)
    busy, prompts = mean(lasted), mean(np.where(rows.prompts > 0, lasted, 0.0))
    scheduled = np.clip(np.searchsorted(edges, run.scheduled_s, side="right") - 1, 0, bins - 1)
    found, prompt = (np.bincount(scheduled, some, bins) for some in (run.cached_tokens, requests.input_tokens))
    arrived = np.histogram(requests.arrival_s, edges)[0]
    never_ran = (_waited(requests.arrival_s, edges) - _waited(run.scheduled_s, edges)) / width
    with np.errstate(invalid="ignore", divide="ignore"):
        return RunSeries(
            start_s=edges[:-1],
            bin_s=width,
            arrivals_per_s=arrived / width,
            running=mean((rows.decodes + rows.prompts) * lasted),
            waiting=never_ran + mean(rows.preempted * lasted),
            kv_blocks=mean(_held(rows, log) * lasted),
            cache_hit_rate=np.where(prompt > 0, found / prompt, np.nan),
            output_tokens_per_s=mean(rows.outputs * rows.steps),
            prefill_share=prompts,
            decode_share=busy - prompts,
            dynamic_w=mean(_since(rows.joules)),
            clock=np.where(slowed > 0, np.minimum(busy / slowed, 1.0), np.nan),
        )


def step_shares(makespan_s: float, log: RunLog) -> dict[str, float]:
    """Of the time from the first arrival to the last token: steps with prompts, steps without, and none."""
    rows = log.rows()
    lasted = rows.end_s - rows.start_s
    prefill, busy = float(lasted[rows.prompts > 0].sum()), float(lasted.sum())
    shares = {"prefill": prefill / makespan_s, "decode": (busy - prefill) / makespan_s}
    return shares | {"idle": max(1.0 - sum(shares.values()), 0.0)}


def _held(rows: StepRows, log: RunLog) -> Floats:
    """Mean blocks during each row: its decodes grow by a token a step."""
    grown = rows.decodes * (rows.steps - 1) / log.limits.block_tokens
    held: Floats = log.limits.kv_blocks - rows.free_blocks - grown / 2
    return held


def _since(total: Floats) -> Floats:
    """What each row adds to a total."""
    return np.diff(total, prepend=0.0)


def _spread(rows: StepRows, totals: Floats, edges: Floats) -> Floats:
    """The share of each span's total that falls between edges; spans follow one another."""
    times = np.column_stack([rows.start_s, rows.end_s]).ravel()
    before = np.concatenate([[0.0], np.cumsum(totals)])
    sums = np.column_stack([before[:-1], before[1:]]).ravel()
    return np.diff(np.interp(edges, times, sums))


def _waited(since_s: Floats, edges: Floats) -> Floats:
    """Seconds between edges since each of some moments, together."""
    since = np.sort(since_s)
    sums = np.concatenate([[0.0], np.cumsum(since)])
    passed = np.searchsorted(since, edges)
    return np.diff(passed * edges - sums[passed])
