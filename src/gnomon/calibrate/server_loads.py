"""Short loads on vLLM's server path, request by request and step by step.

Bursts of short prompts, and short requests at rising rates: what the front end, the engine's core and its host add
shows in them, since the GPU has little to do. A load's record has each request's stages (arrival, queued, scheduled,
first token made, first and last token received) and each step's end, outputs and prompts, in whole microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.replay import MeasuredRun
from gnomon.engines.vllm.runner import VllmRunner
from gnomon.spec import Requests

SHORT = (64, 16)
"""Tokens in and out of requests at rates."""
PROMPT = 128
"""Tokens of a prompt of a burst."""
RATE_S = 4.0
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    name: str
    requests: Requests
    about: Mapping[str, float] = field(default_factory=dict)


def together(count: int, tokens: int, output: int) -> Requests:
    return Requests(np.zeros(count), np.full(count, tokens, np.int64), np.full(count, output, np.int64))


def arriving(arrivals: Numbers, tokens: int, output: int) -> Requests:
    count = len(arrivals)
    return Requests(arrivals, np.full(count, tokens, np.int64), np.full(count, output, np.int64))


def renewal(rate_per_s: float, seconds: float, cv: float, seed: int) -> Numbers:
    """Arrivals whose gaps are Gamma distributed with this coefficient of variation; 1 is Poisson."""
    shape = 1 / cv**2
    draw = np.random.default_rng(seed)
    gaps = draw.gamma(shape, 1 / (rate_per_s * shape), int(3 * rate_per_s * seconds + 100))
    times = np.cumsum(gaps)
    return np.asarray(times[times < seconds] - times[0])


def bursts() -> Iterator[Load]:
    for count in (1, 8, 32, 128, 256, 512):
        for output in (1, 16):
            for again in range(2):
                about = {"count": count, "again": again}
                yield Load(name="burst", requests=together(count, PROMPT, output), about=about)


def rates(per_s: Sequence[float], seconds: float = RATE_S) -> Iterator[Load]:
    for rate in per_s:
        arrivals = renewal(rate, seconds, 1.0, int(rate))
        yield Load(name="rate", requests=arriving(arrivals, *SHORT), about={"rate_per_s": rate})


class StepLog:
    """Outputs of the engine core as they come in, noted on their way to the front end."""

    COLUMNS = ("core_us", "received_us", "outputs", "prompts", "prompt_tokens", "running", "waiting")

    def __init__(self, core: Any) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._get = core.get_output_async
        core.get_output_async = self._noted

    async def _noted(self) -> Any:
        got = await self._get()
        now = time.monotonic()
        stats = got.scheduler_stats
        prefills = [one.prefill_stats for one in got.outputs if one.prefill_stats is not None]
        tokens = sum(prefill.num_computed_tokens for prefill in prefills)
        running, waiting = (stats.num_running_reqs, stats.num_waiting_reqs) if stats else (-1, -1)
        self.rows.append((got.timestamp, now, len(got.outputs), len(prefills), tokens, running, waiting))
        return got

    def columns(self, begin_s: float) -> dict[str, list[int]]:
        """Ends of steps as differences, the first from `begin_s`; what the front end had them after."""
        if not self.rows:
            return {name: [] for name in self.COLUMNS}
        table = np.array(self.rows)
        core, received = table[:, 0] - begin_s, table[:, 1] - table[:, 0]
        ends = np.diff(np.round(core * 1e6), prepend=0.0)
        whole = [ends, np.round(received * 1e6), *table[:, 2:].T]
        return {name: column.astype(int).tolist() for name, column in zip(self.COLUMNS, whole, strict=True)}


def request_columns(run: MeasuredRun) -> dict[str, Any]:
    """Each stage from the one before it: arrival, queued, scheduled, made, first, finish."""
    stages = (run.requests.arrival_s, run.queued_s, run.scheduled_s, run.made_s, run.first_token_s, run.finish_s)
    names = ("arrival_us", "queued_us", "scheduled_us", "made_us", "first_us", "finish_us")
    micro = [np.round(np.nan_to_num(stage, nan=-1.0) * 1e6) for stage in stages]
    gaps = [micro[0], *(later - earlier for earlier, later in pairwise(micro))]
    columns: dict[str, Any] = {name: gap.astype(int).tolist() for name, gap in zip(names, gaps, strict=True)}
    for name, values in (("input_tokens", run.requests.input_tokens), ("output_tokens", run.requests.output_tokens)):
        columns[name] = int(values[0]) if np.all(values == values[0]) else values.tolist()
    return columns


class Recorded:
    """An engine whose loads are recorded."""

    def __init__(self, runner: VllmRunner) -> None:
        self._runner, self._log, self._count = runner, StepLog(runner.core), 0

    def run(self, load: Load) -> tuple[dict[str, Any], MeasuredRun]:
        """A load's record, and its run."""
        self._log.rows.clear()
        front = time.process_time()
        run = self._runner.replay(load.requests, seed=self._count)
        front = time.process_time() - front
        self._count += 1
        first = next(row[0] for row in self._log.rows if row[2])
        begin = first - float(np.nanmin(run.made_s))
        row = {
            "name": load.name, **load.about, "requests": len(load.requests), "begin_s": round(begin, 4),
            "wall_s": round(float(np.max(run.finish_s)), 4), "front_cpu_s": round(front, 3),
            "each": request_columns(run), "steps": self._log.columns(begin),
        }  # fmt: skip
        return row, run
