"""Operators priced per second, on tables of columns and of rows. Every run has new shapes.

python bench/ops_speed.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gnomon

ROWS = 1_000_000
SLOW_ROWS = 20_000
CHIP = "H200"
RUNS = 3
TARGET = 1e6
"""Operators per second that a mixed table must reach."""

Table = dict[str, Any]
KINDS = ("gemm", "moe", "attention_decode", "attention_prefill", "elementwise", "all_reduce", "all_gather")
GROUPS = np.array([2, 4, 8, 16, 32, 64, 128])


def columns(count: int, seed: int) -> Table:
    """Sizes of every kind of operator, drawn evenly in their logarithm."""
    rng = np.random.default_rng(seed)

    def draw(low: float, high: float) -> Any:
        return np.round(np.exp(rng.uniform(np.log(low), np.log(high), count)))

    keys, experts = draw(128, 32768), draw(8, 256)
    return {
        "m": draw(1, 16384),
        "n": draw(64, 32768),
        "k": draw(64, 16384),
        "tokens": draw(1, 16384),
        "hidden": draw(512, 8192),
        "inter": draw(256, 8192),
        "experts": experts,
        "topk": np.minimum(draw(1, 8), experts),
        "batch": draw(1, 64),
        "heads": 32.0,
        "kv_heads": 8.0,
        "head_dim": 128.0,
        "q_len": np.minimum(draw(16, 8192), keys),
        "kv_len": keys,
        "window": rng.choice([0.0, 1024.0, 4096.0], count),
        "bytes_read": draw(1e3, 1e9),
        "bytes_written": draw(1e3, 1e9),
        "bytes": draw(256, 1e9),
        "ranks": rng.choice(GROUPS, count),
    }


def of_kind(kind: str, dtype: str = "bf16") -> Callable[[int, int], Table]:
    sizes = {"attention_decode": {"q_len": 1.0}}.get(kind, {})
    return lambda count, seed: columns(count, seed) | sizes | {"op": kind, "dtype": dtype}


def mixed(count: int, seed: int) -> Table:
    """All kinds in one table, in no order."""
    rng = np.random.default_rng(seed)
    found = columns(count, seed) | {"dtype": "bf16", "op": np.array(KINDS)[rng.integers(0, len(KINDS), count)]}
    found["q_len"] = np.where(found["op"] == "attention_decode", 1.0, found["q_len"])
    return found


def as_rows(count: int, seed: int) -> list[Table]:
    table = {
        name: np.broadcast_to(np.asarray(values), (count,)).tolist() for name, values in mixed(count, seed).items()
    }
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


CASES: dict[str, tuple[int, Callable[[int, int], Any]]] = {
    "gemm bf16": (ROWS, of_kind("gemm")),
    "gemm fp8": (ROWS, of_kind("gemm", "fp8")),
    "moe": (ROWS, of_kind("moe")),
    "attention_decode": (ROWS, of_kind("attention_decode")),
    "attention_prefill": (ROWS, of_kind("attention_prefill")),
    "elementwise": (ROWS, of_kind("elementwise")),
    "all_reduce": (ROWS, of_kind("all_reduce")),
    "mixed": (ROWS, mixed),
    "mixed, as rows": (SLOW_ROWS, as_rows),
}


def per_second(make: Callable[[int, int], Any], count: int) -> float:
    """Operators per CPU second, the best of a few runs."""
    best = np.inf
    for seed in range(RUNS):
        table = make(count, seed)
        began = time.process_time()
        gnomon.ops(table, on=CHIP)
        best = min(best, time.process_time() - began)
    return float(count / best)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gnomon.ops({"op": "gemm", "dtype": "bf16", "m": 1, "n": 1, "k": 1}, on=CHIP)
    found = {name: per_second(make, count) for name, (count, make) in CASES.items()}
    if options.json:
        json.dump({"schema": "gnomon.bench.ops/1", "per_cpu_s": found}, sys.stdout, indent=2)
    else:
        for name, rate in found.items():
            print(f"{name:20} {rate / 1e6:8.2f} million operators per CPU second")
    return 0 if found["mixed"] >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
