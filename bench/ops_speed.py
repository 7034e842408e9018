"""Operators priced a second, on tables of columns and of rows.

python bench/ops_speed.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import gnomon

ROWS = 1_000_000
SLOW_ROWS = 20_000
CHIP = "H200"


def sizes(rng: np.random.Generator, low: float, high: float, count: int) -> Any:
    return np.round(np.exp(rng.uniform(np.log(low), np.log(high), count)))


def tables(count: int) -> dict[str, dict[str, Any]]:
    """Columns of shapes drawn evenly in their logarithm."""
    rng = np.random.default_rng(0)
    draw = lambda low, high: sizes(rng, low, high, count)  # noqa: E731
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128, "batch": draw(1, 64)}
    keys = draw(128, 32768)
    gemm = {"m": draw(1, 16384), "n": draw(64, 32768), "k": draw(64, 16384)}
    streams = {"bytes_read": draw(1e3, 1e9), "bytes_written": draw(1e3, 1e9)}
    decode = heads | {"kv_len": keys}
    prefill = decode | {"q_len": np.minimum(draw(16, 8192), keys)}
    found: dict[str, dict[str, Any]] = {
        "gemm bf16": {"op": "gemm", "dtype": "bf16"} | gemm,
        "gemm fp8": {"op": "gemm", "dtype": "fp8"} | gemm,
        "attention_decode": {"op": "attention_decode", "dtype": "bf16"} | decode,
        "attention_prefill": {"op": "attention_prefill", "dtype": "bf16"} | prefill,
        "elementwise": {"op": "elementwise", "dtype": "bf16"} | streams,
    }
    kinds = np.array(["gemm", "attention_decode", "attention_prefill", "elementwise"])
    mixed = {"op": kinds[rng.integers(0, len(kinds), count)], "dtype": "bf16"}
    found["mixed"] = mixed | gemm | prefill | streams | {"batch": 1.0}
    return found


def cpu_s(table: Any) -> float:
    """Least of three runs: the others waited for somebody else's work."""
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        gnomon.ops(table, on=CHIP)
        best = min(best, time.process_time() - began)
    return float(best)


def as_rows(table: dict[str, Any], count: int) -> list[dict[str, Any]]:
    columns = {name: np.broadcast_to(np.asarray(values), (ROWS,))[:count].tolist() for name, values in table.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gnomon.ops({"op": "gemm", "dtype": "bf16", "m": 1, "n": 1, "k": 1}, on=CHIP)
    found = {name: ROWS / cpu_s(table) for name, table in tables(ROWS).items()}
    found["mixed, as rows"] = SLOW_ROWS / cpu_s(as_rows(tables(ROWS)["mixed"], SLOW_ROWS))
    if options.json:
        json.dump({"schema": "gnomon.bench.ops/1", "per_cpu_s": found}, sys.stdout, indent=2)
        return 0
    for name, rate in found.items():
        print(f"{name:20} {rate / 1e6:8.2f} million operators a CPU second")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
