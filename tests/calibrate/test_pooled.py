"""Attention from several tables: one fit of what was measured, and what the published tables are read as."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from gnomon import catalog
from gnomon.calibrate import pooled, truth
from gnomon.cost.kernels import kernel_model
from gnomon.cost.rows import shape_of

MEASURED = Path(__file__).parents[2] / "measurements" / "h200-2026-11-15"
H200 = catalog.chip("H200")


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def decodes(kv_lens: tuple[int, ...], window: int) -> list[dict[str, object]]:
    """Rows as the formula's own figures have them."""
    model, rows = kernel_model("attention_decode"), []
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    for batch in (1, 8, 32, 64, 200):
        for kv_len in kv_lens:
            row = {"batch": batch, "heads": 32, "kv_heads": 8, "q_len": 1, "kv_len": kv_len, "head_dim": 128}
            given = row | ({"window": window} if window else {})
            shape = shape_of("attention_decode", {name: np.array([float(size)]) for name, size in given.items()})
            took = float(model.seconds(shape, "bf16", H200, start)[0]) * 1e6
            rows.append({"op": "attention_decode", "dtype": "bf16", **given, "time_us": took})
    return rows


def test_tables_with_and_without_windows_make_one_fit(tmp_path: Path) -> None:
    write(tmp_path / "kernels.csv", decodes((64, 512, 2000, 9000), window=0))
    write(tmp_path / "attention.csv", decodes((3000, 7000), window=1024))
    found = pooled.families(tmp_path, H200)
    assert list(found) == ["attention_decode.bf16"]
    assert found["attention_decode.bf16"]["rows"] == 30
    assert found["attention_decode.bf16"]["held_out"]["mean"] < 0.02


@pytest.mark.slow
def test_the_measured_shapes() -> None:
    """An H200's, most of them drawn at random: 5.7% off for decodes, 7.4% for prompts on lengths not seen."""
    found = pooled.families(MEASURED, H200)
    assert found["attention_decode.bf16"]["held_out"]["mean"] < 0.065
    assert found["attention_prefill.bf16"]["held_out"]["mean"] < 0.085
    assert {"mla_decode", "gemm", "moe", "elementwise"} <= {key.partition(".")[0] for key in found}


PUBLISHED = {
    "source": "s", "gpu": "A100-SXM-80GB", "framework": "vllm", "framework_version": "1", "kernel": "a",
    "attn_type": "gqa/mha", "phase": "decode", "attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "batch_size": 4,
    "isl": 1, "kv_len": 4096, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "window_size": 0,
    "time_us": 50,
}  # fmt: skip


def read(tmp_path: Path, *rows: dict[str, object]) -> dict[tuple[str, str], truth.Table]:
    truth.tables.cache_clear()
    path = truth.path(tmp_path, "attention")
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(PUBLISHED))
        writer.writeheader()
        writer.writerows(PUBLISHED | row for row in rows)
    found = truth.tables(tmp_path, "attention")
    return {(table.kind, table.variant): table for table in found}


def test_kernels_of_one_framework_are_tables_of_their_own(tmp_path: Path) -> None:
    found = read(tmp_path, {}, {"kernel": "b"}, {"attn_dtype": "fp8"}, {"batch_size": 8})
    assert sorted(table.rows for table in found.values()) == [1, 1, 2]
    assert all(table.dtype == "fp8" for table in found.values())
    assert len({table.name for table in found.values()}) == 3


def test_an_old_profiler_counts_the_tokens_of_all_sequences(tmp_path: Path) -> None:
    old = {"framework": "vLLM (v0 profiler)"}
    (table,) = read(tmp_path, old, old | {"batch_size": 512}).values()
    assert table.columns["kv_len"].tolist() == [1024]


def test_latents_and_prompts_of_one_token(tmp_path: Path) -> None:
    mla = {"attn_type": "mla", "num_key_value_heads": "", "head_dim": "", "window_size": ""}
    prompt = {"phase": "prefill", "isl": 4096}
    found = read(tmp_path, mla, mla | prompt, mla | prompt | {"framework": "sglang", "gpu": "H100-SXM-80GB"},
                 prompt | {"isl": 1, "kv_len": 1}, {"phase": "mixed"})  # fmt: skip
    assert {kind for kind, _ in found} == {"mla_decode", "attention_prefill"}
    (unfolded,) = (table for table in found.values() if table.kind == "attention_prefill")
    assert unfolded.rows == 1
    assert unfolded.columns["value_dim"].tolist() == [128]
    assert unfolded.columns["kv_heads"] == pytest.approx(unfolded.columns["heads"])
