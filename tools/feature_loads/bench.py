"""Runs loads on one engine and keeps what is measured."""

from __future__ import annotations

import gzip
import json
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tools.feature_loads.runner import FeatureRunner
from tools.feature_loads.steps import Steps
from tools.feature_loads.works import Maker, Work
from tools.server_loads import core_cpu_s

from gnomon.calibrate.server_loads import request_columns
from gnomon.engines.replay import MeasuredRun
from tools import host_times


class Bench:
    """One engine, and what was measured on it so far, kept on disk."""

    def __init__(self, runner: FeatureRunner, maker: Maker, facts: dict[str, Any], out: Path, until_s: float) -> None:
        self._runner, self.make, self._out, self._until_s = runner, maker, out, until_s
        self.host: Path | None = None
        """Where the worker notes what its host takes for each step."""
        self._found = facts | {"loads": []}
        self._steps = Steps(runner.core)
        self._keep()

    def _keep(self) -> None:
        with gzip.open(self._out, "wt", compresslevel=5) as file:
            json.dump(self._found, file, separators=(",", ":"))

    def warm(self, **options: Any) -> None:
        """Have kernels compiled that the loads would else wait for."""
        for count, lengths in ((32, (512, 32)), (256, (128, 8)), (8, (2048, 8))):
            self._runner.send(self.make.plain("warm", 0.0, count, lengths, greedy=0.5, **options), 60.0)

    def run(self, work: Work) -> float:
        """Requests per second that the load finished with; 0 where it did not run."""
        span = float(np.max(work.requests.arrival_s))
        left = self._until_s - time.monotonic() - span
        if left < 2.0:
            print(f"{work.name}: out of time", file=sys.stderr, flush=True)
            self._found["loads"].append({"name": work.name, **work.about, "error": "out of time"})
            self._keep()
            return 0.0
        try:
            if work.fresh:
                self._runner.forget()
            row = self._measured(work, span + min(left, 60.0))
        except Exception as reason:
            traceback.print_exc()
            self._found["loads"].append({"name": work.name, **work.about, "error": str(reason)[:300]})
            self._keep()
            return 0.0
        self._found["loads"].append(row)
        self._keep()
        return float(row["requests"] / row["wall_s"])

    def _measured(self, work: Work, limit_s: float) -> dict[str, Any]:
        self._steps.clear()
        core, front = core_cpu_s(), time.process_time()
        begin, seen = self._runner.send(work, limit_s)
        front, core = time.process_time() - front, core_cpu_s() - core
        run = MeasuredRun(
            requests=work.requests,
            first_token_s=np.array([one.first for one in seen]) - begin,
            finish_s=np.array([one.last for one in seen]) - begin,
            scheduled_s=np.array([one.scheduled for one in seen]) - begin,
            queued_s=np.array([one.queued for one in seen]) - begin,
            made_s=np.array([one.made for one in seen]) - begin,
        )
        cached = [self._steps.cached.get(one.name, (-1, -1)) for one in seen]
        more = {
            "cached_tokens": [one.cached for one in seen], "local_cached": [local for local, _ in cached],
            "external_cached": [external for _, external in cached], "pieces": [one.pieces for one in seen],
        }  # fmt: skip
        wrong = [i for i, one in enumerate(seen) if one.tokens != work.requests.output_tokens[i]]
        errors = sorted({one.error for one in seen if one.error})
        if not np.any(np.isfinite(run.finish_s)):
            raise RuntimeError(f"no request was answered: {errors}")
        steps = self._steps.columns(begin)
        row = {
            "name": work.name, **work.about, "requests": len(seen), "begin_s": round(begin, 4),
            "wall_s": round(float(np.nanmax(run.finish_s)), 4), "front_cpu_s": round(front, 3),
            "core_cpu_s": round(core, 3), "incomplete": wrong, "errors": errors,
            "accepted_at": self._steps.accepted_at.tolist(), "transfers": self._steps.transfers[:],
            "each": request_columns(run) | work.columns() | more, "steps": steps,
        }  # fmt: skip
        if self.host is not None:
            time.sleep(2 * host_times.FLUSH_S)
            row["host"] = host_times.rows(self.host, begin)
        print(summary(row, run), file=sys.stderr, flush=True)
        return row


def summary(row: Mapping[str, Any], run: MeasuredRun) -> str:
    steps, each = row["steps"], row["each"]
    first, late = np.nanquantile(run.ttft_s, (0.5, 0.9)) * 1e3
    tokens = max(1, int(run.requests.input_tokens.sum()))
    hits = sum(max(0, cached) for cached in each["cached_tokens"]) / tokens
    return (
        f"{row['name']} {row.get('rate_per_s', 0):.3g}/s: {row['requests']} requests in {row['wall_s']:.2f} s "
        f"({row['requests'] / row['wall_s']:.2f}/s), TTFT p50 {first:.1f} p90 {late:.1f} ms, "
        f"TPOT p50 {np.nanmedian(run.tpot_s) * 1e3:.2f} ms, {len(steps['core_us'])} steps, cached {hits:.1%}, "
        f"external {sum(steps['external_cached'])}, drafted {sum(steps['drafted'])} accepted {sum(steps['accepted'])}, "
        f"incomplete {len(row['incomplete'])} {row['errors']}"
    )
