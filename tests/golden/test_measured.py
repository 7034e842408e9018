"""Predictions beside what an H200 really did under vLLM 0.24: the accuracy we stand by."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gnomon.api.results import Verified
from gnomon.api.verify import Measured, compare, read_measured

FOLDER = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b")
LEAST_REQUESTS = 500
TPOT, TTFT, BLOCKS, DECODE_ALONE = 0.08, 0.15, 0.05, 0.06
"""Errors of the medians of time per token and time to first token, of the KV blocks, and of even decode batches."""


@cache
def measured(model: str) -> Measured:
    return read_measured(FOLDER / f"verify-{model}.json")


@cache
def verified(model: str) -> Verified:
    return compare(measured(model))


def errors(model: str, part: str, statistic: str = "") -> dict[str, float]:
    """By load or by probe, the error of every figure of a part."""
    found = {}
    for row in verified(model).parts:
        if row["part"] == part and row["what"].endswith(statistic):
            found[f"{row['rate_per_s']} {row['what']}"] = row["error"]
    return found


@pytest.mark.parametrize("model", MODELS)
def test_three_loads_of_enough_requests(model: str) -> None:
    assert len(measured(model).loads) == 3
    assert all(len(load.requests) >= LEAST_REQUESTS for load in measured(model).loads)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("part", "limit"), [("decode", TPOT), ("ttft", TTFT)])
def test_medians_under_load(model: str, part: str, limit: float) -> None:
    found = errors(model, part, "p50")
    assert len(found) == 3
    assert {what: error for what, error in found.items() if abs(error) > limit} == {}


@pytest.mark.parametrize("model", MODELS)
def test_blocks(model: str) -> None:
    (error,) = errors(model, "memory").values()
    assert abs(error) <= BLOCKS


@pytest.mark.parametrize("model", MODELS)
def test_even_decode_batches(model: str) -> None:
    found = list(errors(model, "decode alone").values())
    assert len(found) >= 20
    assert np.mean(np.abs(found)) <= DECODE_ALONE
