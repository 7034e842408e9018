"""Requests a CPU-second that the serving simulator gets through, on some loads.

    python bench/sim_speed.py [--requests 20000] [--json]

The step costs are those of Llama-3.1-8B on one H100 under vLLM; rates are a share of what the replica can take. The
trace of conversations is found through GNOMON_TRUTH, and left out where it is not there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.errors import InputError
from gnomon.load import draw, model, parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import simulate
from gnomon.spec import ServingLoad
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

MODEL, CHIP, TRACE, FIXED = "llama-3.1-8b", "H100", "azure-conv", "fixed lengths"
TARGET = 40_000
"""Requests a CPU-second that fixed lengths and the trace must reach."""


def load(count: int, rate_per_s: float, output: float, seed: int = 0) -> Requests:
    """Poisson arrivals; lognormal prompts of 1000 tokens and outputs of `output`, on average."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, count))
    prompt = np.clip(rng.lognormal(np.log(1000) - 0.32, 0.8, count), 1, 8000).astype(np.int64)
    tokens = np.clip(rng.lognormal(np.log(output) - 0.18, 0.6, count), 1, 4000).astype(np.int64)
    return Requests(arrival, prompt, tokens)


def loads(count: int, full: float) -> dict[str, Requests]:
    """By name; `full` is the rate that fills the replica with outputs of 200 tokens."""
    found = {
        name: load(count, share * full, output)
        for name, share, output in (
            ("light", 0.1, 200),
            ("70%", 0.7, 200),
            ("95%", 0.95, 200),
            ("overload", 1.5, 200),
            ("70%, long outputs", 0.25, 1000),
            ("overload, long outputs", 1.0, 1000),
        )
    }
    fixed = ServingLoad(rate_per_s=0.5 * full, input_tokens=1024, output_tokens=256, requests=count)
    found[FIXED] = draw(fixed)
    try:
        found[TRACE] = draw(ServingLoad(trace=TRACE, requests=0))
    except InputError as missing:
        print(missing, file=sys.stderr)
    return found


def measure(requests: Requests, cost: StepCost, limits: ServingLimits) -> dict[str, float]:
    began = time.process_time()
    run = simulate(requests, cost, limits)
    seconds = time.process_time() - began
    return {
        "requests_per_cpu_s": len(requests) / seconds,
        "cpu_s": seconds,
        "steps": run.steps,
        "preemptions": run.preemptions,
        "output_tokens_per_s": run.output_tokens_per_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engine, replica = deploy(model(MODEL), parse_pool(CHIP), settings={"max_model_len": 16384})
    cost, limits = engine.step_cost(replica), engine.limits(replica)
    full = measure(load(5000, 1e6, 200), cost, limits)["output_tokens_per_s"] / 200
    results = {name: measure(each, cost, limits) for name, each in loads(options.requests, full).items()}
    met = all(row["requests_per_cpu_s"] >= TARGET for name, row in results.items() if name in (FIXED, TRACE))
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        return 0 if met else 1
    for name, row in results.items():
        print(
            f"{name:24} {row['requests_per_cpu_s']:9,.0f} requests/CPU-s  "
            f"{row['steps']:9,.0f} steps  {row['preemptions']:6,.0f} preemptions"
        )
    print(f"target {TARGET:,} for {FIXED} and {TRACE}: {'ok' if met else 'TOO SLOW'}")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
