"""CPU seconds of plan searches.

python bench/plan_speed.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

GOALS = "ttft_p90=1s,tpot_p90=50ms"
LENGTHS = {"input": 1024, "output": 256}
LARGE = {"model": "llama-3.1-70b", "fleet": "H100:16", "rate": 8, **LENGTHS}
QUESTIONS: dict[str, dict[str, Any]] = {
    "70B, 16 chips, by cost": LARGE,
    "70B, 16 chips, no rate": {"model": "llama-3.1-70b", "fleet": "H100:16", **LENGTHS},
    "70B, 16 chips, latency": LARGE | {"objective": "latency"},
    "70B, 16 chips, energy": LARGE | {"objective": "energy"},
    "8B, two pools, by cost": {"model": "llama-3.1-8b", "fleet": "H100:8,H200:8", "rate": 20, **LENGTHS},
    "8B, 1024 chips, by cost": {"model": "llama-3.1-8b", "fleet": "H100:1024", "rate": 800, **LENGTHS},
}
TRAINING: dict[str, dict[str, Any]] = {
    "GPT-3, 1024 A100": {
        "model": "gpt3-175b",
        "cluster": "A100-SXM-80GB:1024",
        "seq": 2048,
        "global_batch": 1536,
        "tokens": 300e9,
    },
    "DeepSeek-V3, 2048 H800": {
        "model": "deepseek-v3",
        "cluster": "H800:2048",
        "seq": 4096,
        "global_batch": 15360,
        "tokens": 1e12,
        "dtype": "fp8",
    },
}
"""Training plans, of which every one is bounded and few are timed."""


def measure(model: str, **question: Any) -> dict[str, Any]:
    from gnomon.api.plan import plan_serving

    began = time.process_time()
    report = plan_serving(model, slo=GOALS, **question)
    return {
        "cpu_s": time.process_time() - began,
        "plans_considered": report.plans_considered,
        "plans_fit": report.plans_fit,
        "plans_simulated": report.plans_simulated,
        "best": report.best.label,
    }


def measure_training(model: str, **question: Any) -> dict[str, Any]:
    from gnomon.api.plan_training import plan_training

    began = time.process_time()
    report = plan_training(model, **question)
    return {
        "cpu_s": time.process_time() - began,
        "plans_considered": report.plans_considered,
        "plans_fit": report.plans_fit,
        "plans_simulated": report.plans_timed,
        "best": report.label,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {name: measure(**question) for name, question in QUESTIONS.items()}
    results |= {name: measure_training(**question) for name, question in TRAINING.items()}
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        return
    for name, row in results.items():
        print(
            f"{name:26} {row['cpu_s']:6.2f} CPU-s  {row['plans_considered']:7,} plans  {row['plans_fit']:7,} fit  "
            f"{row['plans_simulated']:5,} simulated  {row['best']}"
        )


if __name__ == "__main__":
    main()
