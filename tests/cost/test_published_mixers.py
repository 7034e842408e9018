"""Latents and windows beside published operator tables, on chips that no profile of ours was measured on."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tests.cost.machines import machine
from tools.published import tables

from gnomon.graph import Attention, Op
from gnomon.graph.mixer_ops import LatentDecode
from gnomon.graph.windows import Window
from gnomon.spec import Batch

FOLDER = tables()
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="the published tables are not here; GNOMON_TRUTH can name their folder"
)
Row = dict[str, str]


@cache
def rows() -> tuple[Row, ...]:
    assert FOLDER is not None
    with gzip.open(FOLDER / "kernels_attention.csv.gz", "rt", newline="") as file:
        return tuple(row for row in csv.DictReader(file) if row["gpu"].startswith(("H100", "H800")))


def some(**match: str) -> Iterator[Row]:
    return (row for row in rows() if all(row[name].startswith(word) for name, word in match.items()))


def size(row: Row, name: str) -> int:
    return int(float(row[name] or 0))


def ratios(chip: str, cases: Iterator[tuple[Row, Op, Batch]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Predicted over measured."""
    on = machine(chip)
    return np.array([float(on.op_seconds(op, batch)[0]) * 1e6 / float(row["time_us"]) for row, op, batch in cases])


def latents(**match: str) -> Iterator[tuple[Row, Op, Batch]]:
    for row in some(attn_type="mla", phase="decode", **match):
        op = LatentDecode(
            name="x", phase="decode", heads=size(row, "num_heads"), kv_rank=512, rope_dim=64, kv_dtype="bf16"
        )
        yield row, op, Batch.decode(size(row, "batch_size"), size(row, "kv_len") - 1)


def windows(phase: str, length: int) -> Iterator[tuple[Row, Op, Batch]]:
    for row in some(kernel="vllm_flash_attn_fa3", phase=phase, kv_cache_dtype="bfloat16"):
        if size(row, "window_size") != length:
            continue
        op = Attention(
            name="x",
            phase=phase,  # type: ignore[arg-type]
            heads=size(row, "num_heads"),
            kv_heads=size(row, "num_key_value_heads"),
            head_dim=size(row, "head_dim"),
            kv_dtype="bf16",
            window=Window(length) if length else None,
        )
        n, new, keys = (size(row, name) for name in ("batch_size", "isl", "kv_len"))
        yield row, op, Batch.decode(n, keys - 1) if phase == "decode" else Batch.prefill(n, new, keys - new)


def test_latents_of_flash_mla() -> None:
    """InferSim's table of an H800: 5% off at the median. It fills the waves that FlashAttention-3's splits run over."""
    found = ratios("H800", latents(gpu="H800", framework="FlashMLA"))
    assert found.size == 41
    assert np.median(np.abs(found - 1)) < 0.08
    assert 0.5 < found.min() < found.max() < 1.6


def test_latents_of_flash_attention() -> None:
    """AIConfigurator's of an H100 under SGLang: 10% off at the median, near which the formula starts."""
    found = ratios("H100", latents(gpu="H100", framework="sglang", kv_cache_dtype="bfloat16"))
    assert found.size == 700
    assert np.median(np.abs(found - 1)) < 0.15
    assert abs(np.median(found) - 1) < 0.1


def test_prompts_of_latents() -> None:
    """InferSim's of an H800, heads of 192 and 128: within a fifth up to 32,768 tokens."""
    op = Attention(name="x", phase="prefill", heads=128, kv_heads=128, head_dim=192, value_dim=128, kv_dtype="bf16")
    cases = ((row, op, Batch.prefill(1, size(row, "isl"))) for row in some(kernel="mla 128-128", phase="prefill"))
    found = ratios("H800", cases)
    assert found.size == 5
    assert np.all(np.abs(found - 1) < 0.2)


@pytest.mark.heavy
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_windows_are_priced_as_well_as_attention_without(phase: str) -> None:
    """AIConfigurator's of an H100 under vLLM, whose prices are the H200's scaled."""
    without = np.median(ratios("H100", windows(phase, 0)))
    for length in (128, 1024, 8192):
        found = ratios("H100", windows(phase, length))
        assert found.size > 40
        assert np.median(found) == pytest.approx(without, rel=0.15)
