"""Tables of convolutions and of the kernels between them, made from known coefficients: the fit must find those."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.ship import MODULES

from gnomon import catalog
from gnomon.calibrate import module_fit
from gnomon.calibrate.collect import COLUMNS
from gnomon.cost.kernels import kernel_model
from gnomon.load.profiles import profile_for

CHIP = catalog.chip("H200")
TRUE = {name: start for name, (start, _, _) in kernel_model("conv").ranges.items()} | {"rate": 0.5, "turn": 0.25}


def conv_rows() -> list[dict[str, Any]]:
    """Whole convolutions, in three directions, with channels last and first."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(30):
        places, inner, outer = (int(rng.integers(least, most)) for least, most in ((4e3, 2e5), (32, 512), (32, 512)))
        moved = 2.0 * (places * (inner + outer) + inner * outer * 9)
        ways = {
            "forward": (places, inner, outer * 9),
            "by_input": (places, outer, inner * 9),
            "by_weight": (inner, outer * 9, places),
        }
        for way, (m, n, k) in ways.items():
            for first in (False, True):
                weights = 2.0 * inner * outer * 9
                shape = {"m": m, "n": n, "k": k, "batch": 1, "bytes": moved}
                turned = {"turned": first * (moved - weights), "turned_weights": first * weights, way: 1.0}
                arrays = {name: np.array([float(value)]) for name, value in (shape | turned).items()}
                took = float(kernel_model("conv").seconds(arrays, "bf16", CHIP, TRUE)[0])
                name = f"{way}.first" if first else way
                rows.append(shape | {"op": "conv", "dtype": "bf16", "kernel": name, "time_us": took * 1e6})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_convolutions_are_fitted(tmp_path: Path) -> None:
    found = module_fit.families(write(tmp_path / MODULES, conv_rows()), CHIP)
    assert list(found) == ["conv.bf16.torch"]
    fitted = found["conv.bf16.torch"]
    assert fitted["held_out"]["median"] < 0.01
    assert fitted["coefficients"]["rate"] == pytest.approx(0.5, rel=0.1)
    assert fitted["coefficients"]["turn"] == pytest.approx(0.25, rel=0.1)
    assert fitted["coefficients"]["by_weight"] == pytest.approx(TRUE["by_weight"], rel=0.1)


def test_products_are_told_apart_by_their_rows(tmp_path: Path) -> None:
    ways = {"forward": (64, 33, 48), "by_input": (64, 48, 33), "by_weight": (33, 48, 64), "step.forward": (8, 8, 8)}
    rows = [
        {"op": "gemm", "dtype": dtype, "kernel": way, "time_us": 10.0} | dict(zip("mnk", sizes, strict=True))
        for way, sizes in ways.items()
        for dtype in ("bf16", "tf32", "fp32")
    ]
    found = module_fit.grouped(write(tmp_path / MODULES, rows))
    assert {key: len(rows) for key, rows in found.items()} == {
        ("gemm_unaligned", "bf16"): 3,
        ("gemm_unaligned", "tf32"): 3,
        ("gemm", "fp32"): 3,
    }
    assert [row["out_aligned"] for row in found["gemm_unaligned", "bf16"]] == [2.0, 16.0, 16.0]
    assert [row["across"] for row in found["gemm", "fp32"]] == [0.0, 1.0, 2.0]


def test_paces_of_attention_are_beside_what_the_profile_says(tmp_path: Path) -> None:
    """A kernel that takes twice as long as FlashAttention, its launch aside, has half the pace."""
    families = profile_for(CHIP).families
    told = {key: {"coefficients": family.coefficients} for key, family in families.items()}
    rows = []
    for op in ("attention_forward", "attention_backward"):
        c = families[f"{op}.bf16.torch"].coefficients
        shape = {"sequences": 4.0, "tokens": 8192.0, "context": 8192.0, "pairs": 4.0 * 2048**2}
        sizes = {"heads": 16.0, "kv_heads": 16.0, "head_dim": 64.0}
        arrays = {name: np.array([value]) for name, value in (shape | sizes).items()}
        launch = c["launch_us"] * 1e-6
        took = 2 * (float(kernel_model(op).seconds(arrays, "bf16", CHIP, c)[0]) - launch) + launch
        row = {"op": op, "dtype": "bf16", "batch": 4, "q_len": 2048, "kv_len": 2048, "kernel": "attention.efficient"}
        rows.append(row | sizes | {"time_us": took * 1e6})
    rows.append({"op": "elementwise", "dtype": "bf16", "bytes_read": 1e9, "bytes_written": 1e9, "kernel": "gather"}
                | {"time_us": 1000.0})  # fmt: skip
    found = module_fit.efficiencies(write(tmp_path / MODULES, rows), CHIP, told)
    assert found["attention.efficient"] == found["attention.efficient.backward"] == pytest.approx(0.5, abs=1e-3)
    assert 0.3 < found["gather"] < 0.8


def test_a_folder_without_the_table_gives_the_profile_it_gave() -> None:
    """The shipped profile comes from a folder that has none yet, or has one: either way its families are whole."""
    folder = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
    kept = profile_for(CHIP).families
    assert ("conv.bf16.torch" in kept) == (folder / MODULES).exists()
