"""Requests a CPU-second that the serving simulator gets through, on some loads.

    python bench/sim_speed.py [--requests 20000] [--json]

The cost stands for an 8B model on one H100; rates are given as a share of what the replica can take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from gnomon.cost.step import Curve
from gnomon.sim.serving import simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

LIMITS = ServingLimits(kv_blocks=28_000, max_sequences=256, max_step_tokens=8192, max_context=16_384, idle_start_s=2e-3)


class Cost:
    """Seconds of a step, from weights, cache and prompt tokens."""

    def decode_curve(self, sequences: int) -> Curve:
        context = np.array([0, 512, 1024, 2048, 4096, 16_384])
        return Curve(context, 7e-3 + 2e-5 * sequences + 4e-8 * sequences * context)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = sum(new for new, _ in chunks)
        return 7e-3 + 2e-5 * decodes + 4e-8 * decode_context + 1e-4 * tokens

    def launch(self, tokens: int, sequences: int) -> float:
        return 4e-3


def load(count: int, rate_per_s: float, output: float, seed: int = 0) -> Requests:
    """Poisson arrivals; lognormal prompts of 1000 tokens and outputs of `output`, on average."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, count))
    prompt = np.clip(rng.lognormal(np.log(1000) - 0.32, 0.8, count), 1, 8000).astype(np.int64)
    tokens = np.clip(rng.lognormal(np.log(output) - 0.18, 0.6, count), 1, 4000).astype(np.int64)
    return Requests(arrival, prompt, tokens)


def measure(requests: Requests, limits: ServingLimits) -> dict[str, float]:
    began = time.process_time()
    run = simulate(requests, Cost(), limits)
    seconds = time.process_time() - began
    return {
        "requests_per_cpu_s": len(requests) / seconds,
        "cpu_s": seconds,
        "steps": run.steps,
        "preemptions": run.preemptions,
        "output_tokens_per_s": run.output_tokens_per_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    full = measure(load(5000, 1e6, 200), LIMITS)["output_tokens_per_s"] / 200
    results = {}
    for name, share, output in (
        ("light", 0.1, 200),
        ("70%", 0.7, 200),
        ("95%", 0.95, 200),
        ("overload", 1.5, 200),
        ("70%, long outputs", 0.25, 1000),
        ("overload, long outputs", 1.0, 1000),
    ):
        results[name] = measure(load(options.requests, share * full, output), LIMITS)
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        return
    for name, row in results.items():
        print(
            f"{name:24} {row['requests_per_cpu_s']:9,.0f} requests/CPU-s  "
            f"{row['steps']:9,.0f} steps  {row['preemptions']:6,.0f} preemptions"
        )


if __name__ == "__main__":
    main()
