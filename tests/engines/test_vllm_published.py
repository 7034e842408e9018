"""Spread experts beside what others have measured. Nothing here was fitted to the whole runs."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

import gnomon
from gnomon.cost.machine import Machine
from gnomon.cost.profile import profile_for
from gnomon.load import parse_pool

# MiniMax-M2.5 (the shapes of M2) in fp8 by vLLM 0.18 on 4 H100 with TP 4 and EP 4, random prompts of 0.8 to 1 x 1,024
# tokens: answers' nominal tokens, concurrency, mean milliseconds a token (SemiAnalysis InferenceX, 2026).
MINIMAX = [
    (1024, 4, 10.12),
    (8192, 4, 10.24),
    (1024, 8, 12.47),
    (8192, 8, 12.76),
    (1024, 16, 15.54),
    (8192, 16, 16.06),
    (1024, 32, 20.02),
    (8192, 32, 21.69),
    (1024, 64, 25.66),
]


def test_decode_steps_of_spread_experts() -> None:
    ratios = []
    for answer, sequences, measured in MINIMAX:
        context = int(0.9 * (1024 + answer / 2))
        words = {"tp": 4, "ep": 4, "batch": sequences, "context": context, "settings": {"max_model_len": 16384}}
        ratios.append(gnomon.predict("minimax-m2", on="H100:4", **words).time_s.value * 1e3 / measured)
    assert all(0.9 < ratio < 1.12 for ratio in ratios), ratios
    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.08


def rows(dtype: str, kernel: str) -> list[dict[str, float]]:
    """vLLM 0.24's experts on one of several ranks of H100, each chosen as often as any other."""
    folder = Path(os.environ.get("GNOMON_TRUTH", Path(__file__).parents[3] / "shared" / "truth"))
    file = folder / "kernels_moe.csv.gz"
    if not file.is_file():
        pytest.skip("the published tables are not here; GNOMON_TRUTH can name their folder")
    wanted = {"gpu": "H100-SXM-80GB", "framework": "vllm", "dtype": dtype, "distribution": "balanced"}
    sizes = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size", "time_us")
    with gzip.open(file, "rt") as lines:
        return [
            {name: float(row[name]) for name in sizes}
            for row in csv.DictReader(lines)
            if all(row[name] == value for name, value in wanted.items())
            and kernel in row["kernel"]
            and row["moe_tp_size"] == "1"
            and row["moe_ep_size"] != "1"
        ]


@pytest.mark.parametrize(
    ("dtype", "kernel", "ours", "off"),
    [("bfloat16", "triton_tritonexperts", "bf16", 0.07), ("fp8_block", "flashinfer_cutlass", "fp8", 0.14)],
)
def test_experts_of_one_rank(dtype: str, kernel: str, ours: str, off: float) -> None:
    pool = parse_pool("H100:8")
    machine, errors = Machine(pool, profile_for(pool.chip)), []
    for row in rows(dtype, kernel):
        share = 1 / row["moe_ep_size"]
        held, visits = row["num_experts"] * share, row["num_tokens"] * row["topk"] * share
        shape = {
            "tokens": row["num_tokens"],
            "hidden": row["hidden_size"],
            "inter": row["inter_size"],
            "experts": held,
            "topk": row["topk"] * share,
            "visited": min(held, max(1.0, visits)),
            "absent": row["num_tokens"] * row["topk"] * (1 - share),
        }
        found = machine.seconds("moe", ours, {name: np.array([size]) for name, size in shape.items()})[0]
        errors.append(abs(found * 1e6 / row["time_us"] - 1))
    assert len(errors) > 400
    assert np.median(errors) < off
