"""Tables of latents and scans are read and fitted like any others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.calibrate.test_fit import write

from gnomon import catalog
from gnomon.calibrate.pooled import families
from gnomon.calibrate.table import read_table
from gnomon.cost.kernels import MODELS
from gnomon.cost.rows import shape_of
from gnomon.errors import CalibrationError
from gnomon.graph.mixer_ops import MIXINGS

H200 = catalog.chip("H200")
DRAW = np.random.default_rng(0)


def latent_rows(count: int = 200) -> list[dict[str, Any]]:
    of = ([1, 4, 16, 40, 64, 128, 256], [16, 64, 128], [512, 1500, 4096, 12000, 32768])
    sizes = zip(*(DRAW.choice(values, count) for values in of), strict=True)
    common = {"op": "mla_decode", "dtype": "bf16", "kv_rank": 512, "rope_dim": 64}
    return [common | {"batch": batch, "heads": heads, "kv_len": keys} for batch, heads, keys in sizes]


def scan_rows(phase: str, mixer: str, count: int = 60) -> list[dict[str, Any]]:
    common = {"op": f"scan_{phase}", "mixer": mixer, "dtype": "bf16", "head_dim": 64, "state_dim": 128, "groups": 8}
    rows = []
    for _ in range(count):
        n = int(DRAW.choice([1, 4, 64]))
        tokens = n if phase == "decode" else n * int(DRAW.choice([100, 1024, 5000]))
        rows.append(common | {"sequences": n, "tokens": tokens, "heads": int(DRAW.choice([16, 128])), "chunk": 128})
    return rows


def timed(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that coefficients a third up their ranges would measure."""
    model = MODELS[kind]
    truth = {name: low + 0.3 * (high - low) for name, (_, low, high) in model.ranges.items()}
    names = [name for name in rows[0] if name not in ("op", "mixer", "dtype")]
    columns = {name: np.array([float(row[name]) for row in rows]) for name in names}
    seconds = model.seconds(shape_of(kind, columns), "bf16", H200, truth)
    return [row | {"time_us": took * 1e6} for row, took in zip(rows, seconds, strict=True)]


@pytest.mark.parametrize(
    "kind", ["mla_decode", *(f"scan_{phase}_{mixer}" for phase in ("prefill", "decode") for mixer in MIXINGS)]
)
def test_a_fit_finds_what_a_table_was_made_with(kind: str, tmp_path: Path) -> None:
    rows = latent_rows() if kind == "mla_decode" else scan_rows(*kind.removeprefix("scan_").split("_", 1))
    found = families(write(tmp_path / "kernels.csv", timed(kind, rows)).parent, H200)
    assert list(found) == [f"{kind}.bf16"]
    assert found[f"{kind}.bf16"]["held_out"]["p90"] < 0.02


def test_mixers_of_one_table_are_fitted_apart(tmp_path: Path) -> None:
    rows = [*timed("scan_decode_mamba2", scan_rows("decode", "mamba2"))]
    rows += timed("scan_decode_gated_delta", scan_rows("decode", "gated_delta"))
    assert {kind for kind, _ in read_table(write(tmp_path / "t.csv", rows))} == {
        "scan_decode_mamba2",
        "scan_decode_gated_delta",
    }


def test_an_unknown_mixer_is_refused(tmp_path: Path) -> None:
    rows = [row | {"time_us": 1.0} for row in scan_rows("decode", "mamba3")]
    with pytest.raises(CalibrationError, match="unknown operator 'scan_decode_mamba3'"):
        read_table(write(tmp_path / "t.csv", rows))


def test_value_heads_and_wide_states_where_rows_have_them(tmp_path: Path) -> None:
    prompt = {"op": "attention_prefill", "dtype": "bf16", "batch": 1, "heads": 16, "kv_heads": 16, "q_len": 100}
    rows = [prompt | {"kv_len": 100, "head_dim": 192, "value_dim": 128, "time_us": 9.0}]
    rows += [prompt | {"kv_len": 100, "head_dim": 64, "time_us": 5.0}]
    columns = read_table(write(tmp_path / "t.csv", rows))["attention_prefill", "bf16"]
    assert columns["value_dim"].tolist() == [128, 64]
    assert shape_of("attention_prefill", columns)["value_dim"].tolist() == [128, 64]
    states = [row | {"time_us": 1.0, "state_bytes": 4} for row in scan_rows("decode", "mamba2", 3)]
    wide = read_table(write(tmp_path / "s.csv", states))["scan_decode_mamba2", "bf16"]
    assert shape_of("scan_decode_mamba2", wide)["state_bytes"].tolist() == [4, 4, 4]
