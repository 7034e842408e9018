"""The result of a simulated run: times of each request, and sums over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from gnomon.errors import unknown_name
from gnomon.spec.workload import QUANTILES, Floats, Ints, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """Sums over all steps of a run, in the terms of `gnomon.spec.workload.Batch`."""

    steps: int
    decodes: int
    decode_context: int
    prefills: int
    prefill_tokens: int
    prefill_pairs: int
    prefill_context: int

    @classmethod
    def sum(cls, each: Sequence[StepTotals]) -> StepTotals:
        """Of several runs."""
        return cls(**{one.name: sum(getattr(totals, one.name) for totals in each) for one in fields(cls)})

    @property
    def logit_rows(self) -> int:
        """The engine takes logits of one token of each sequence, also of unfinished prompts."""
        return self.decodes + self.prefills


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingRun:
    """Times in seconds on the clock of the requests, as the client sees them; arrays in request order."""

    requests: Requests
    first_token_s: Floats
    finish_s: Floats
    scheduled_s: Floats
    """When the scheduler first gave the request tokens; its step may start a little later."""
    cached_tokens: Ints
    """Prompt tokens that each request found in the cache before its first token."""
    preemptions: int
    steps: int
    busy_s: float
    """Sum of the step times, without what an idle engine needs to start."""
    peak_kv_blocks: int
    peak_sequences: int
    """Most sequences in one step; behind a pipeline, in all batches together."""
    peak_step_tokens: int
    """Most tokens in one step with a prompt."""
    totals: StepTotals
    dynamic_j: float = 0.0
    """Joules of one chip in all steps, beyond its constant draw; 0 where the step cost knows none."""
    clock_slowdown: float = 1.0
    """How much lower the clock was than the highest, on average over the busy time."""
    order: Ints | None = None
    """Where each request stands in the load, where the run has them in the order of arrivals that came of it."""

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last token."""
        return float(self.finish_s.max() - self.requests.arrival_s[0])

    @property
    def ttft_s(self) -> Floats:
        return self.first_token_s - self.requests.arrival_s

    @property
    def tpot_s(self) -> Floats:
        """Mean time of the tokens after the first; NaN where there is only one."""
        later: Floats = (self.requests.output_tokens - 1).astype(np.float64)
        later[later == 0] = np.nan
        return (self.finish_s - self.first_token_s) / later

    @property
    def e2e_s(self) -> Floats:
        return self.finish_s - self.requests.arrival_s

    @property
    def queue_s(self) -> Floats:
        return self.scheduled_s - self.requests.arrival_s

    @property
    def cache_hit_rate(self) -> float:
        """Of all prompt tokens, those that were found in the cache."""
        return float(self.cached_tokens.sum() / self.requests.input_tokens.sum())

    @property
    def output_tokens_per_s(self) -> float:
        return float(self.requests.output_tokens.sum()) / self.makespan_s

    def statistics(self, metric: str) -> dict[str, float]:
        """Mean and quantiles of `ttft`, `tpot`, `e2e` or `queue`, in seconds."""
        metrics = ("ttft", "tpot", "e2e", "queue")
        if metric not in metrics:
            raise unknown_name("metric", metric, metrics)
        values: Floats = getattr(self, f"{metric}_s")
        values = values[~np.isnan(values)]
        if not values.size:
            return {"mean": float("nan"), **dict.fromkeys(QUANTILES, float("nan"))}
        cuts = np.quantile(values, list(QUANTILES.values()))
        return {"mean": float(values.mean()), **{name: float(cut) for name, cut in zip(QUANTILES, cuts, strict=True)}}
