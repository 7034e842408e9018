"""Spread experts beside what others have measured. Nothing here was fitted to the whole runs."""

from __future__ import annotations

import numpy as np
import pytest

import gnomon
from gnomon.calibrate.truth import folder
from gnomon.calibrate.truth import rows as published
from gnomon.calibrate.truth_experts import experts
from gnomon.cost.machine import Machine
from gnomon.cost.rows import shape_of
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for

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


def rank_sizes(dtype: str, kernel: str) -> tuple[list[dict[str, float]], list[float]]:
    """vLLM 0.24's experts on one of several ranks of H100, each chosen as often as any other; and microseconds."""
    place = folder()
    if place is None:
        pytest.skip("the published tables are not here; GNOMON_TRUTH can name their folder")
    wanted = {"gpu": "H100-SXM-80GB", "framework": "vllm", "dtype": dtype, "distribution": "balanced"}
    wanted |= {"moe_tp_size": "1"}
    found = [row for row in published(place, "moe") if all(row[name] == value for name, value in wanted.items())]
    several = [row for row in found if kernel in row["kernel"] and row["moe_ep_size"] != "1"]
    read = [(experts(row), float(row["time_us"])) for row in several]
    kept = [(one[2], time) for one, time in read if one is not None]
    return [sizes for sizes, _ in kept], [time for _, time in kept]


@pytest.mark.parametrize(
    ("dtype", "kernel", "ours", "off"),
    [
        ("bfloat16", "triton_tritonexperts", "bf16", 0.08),
        ("fp8_block", "flashinfer_cutlass", "fp8-blocks+flashinfer_cutlass", 0.14),
    ],
)
def test_experts_of_one_rank(dtype: str, kernel: str, ours: str, off: float) -> None:
    """By the profile of another chip, whose fit has seen neither several ranks nor these models."""
    pool = parse_pool("H100:8")
    machine = Machine(pool, profile_for(pool.chip))
    sizes, times = rank_sizes(dtype, kernel)
    columns = {name: np.array([one[name] for one in sizes]) for name in sizes[0]}
    errors = np.abs(machine.seconds("moe", ours, shape_of("moe", columns)) * 1e6 / np.array(times) - 1)
    assert len(errors) > 400
    assert np.median(errors) < off
