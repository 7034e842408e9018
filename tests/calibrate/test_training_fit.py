"""From tables of training kernels to families, the clock's law and paces: what a table was made with is found, and
the measured one gives what is shipped."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gnomon import catalog
from gnomon.calibrate import module_fit, training_fit
from gnomon.calibrate.collect import COLUMNS
from gnomon.cost.clock import ATTENTION, BURST, LIMIT
from gnomon.cost.kernels import kernel_model
from gnomon.cost.rows import shape_of
from gnomon.engines.torch.eager.forms import ROW
from gnomon.engines.torch.efficiencies import FILE as EFFICIENCIES
from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.spec.workload import Floats
from tools import ship

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
H200 = catalog.chip("H200")
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


TRUTH = {
    "gemm": {
        "rate": 0.75, "tile": 0.1, "memory": 0.8, "launch_us": 4.0, "epilogue_us": 1.0, "wave": 0.4, "overlap": 3.0,
        "split_us": 2.0, "sm_gb_s": 200.0,
    },
    "attention_forward": {
        "rate": 0.6, "exp_ps": 30.0, "memory": 0.7, "launch_us": 8.0, "overlap": 3.0, "block_us": 1.0, "diagonal": 0.8,
        "combine_us": 3.0,
    },
    "attention_backward": {
        "rate": 0.55, "exp_ps": 30.0, "memory": 0.7, "launch_us": 20.0, "overlap": 3.0, "diagonal": 0.7,
    },
}  # fmt: skip


def columns(kind: str) -> dict[str, Floats]:
    draw = np.random.default_rng(3)
    if kind == "gemm":
        return {name: draw.integers(4, 128, 140) * np.float64(128) for name in ("m", "n", "k")}
    sequences, length = draw.integers(1, 9, 150) * 1.0, draw.integers(4, 65, 150) * 128.0
    kv_heads = draw.choice([2.0, 4.0, 8.0], 150)
    shape = {"batch": sequences, "q_len": length, "kv_len": length, "kv_heads": kv_heads, "heads": 4 * kv_heads}
    return shape | {"head_dim": draw.choice([64.0, 128.0], 150)}


def table(kind: str) -> list[Row]:
    """Rows as the truth would have them, and some so short that they are not believed."""
    shapes = columns(kind)
    seconds = kernel_model(kind).seconds(shape_of(kind, shapes), "bf16", H200, TRUTH[kind])
    rows = [
        {"op": kind, "dtype": "bf16", "time_us": float(us)}
        | {name: float(values[i]) for name, values in shapes.items()}
        for i, us in enumerate(seconds * 1e6)
    ]
    return rows + [row | {"time_us": 29.0} for row in rows[:40]]


@pytest.mark.parametrize("kind", TRUTH)
def test_a_fit_finds_what_a_table_was_made_with(tmp_path: Path, kind: str) -> None:
    found = training_fit.families(write(tmp_path / "t.csv", table(kind)), H200)
    assert set(found) == {f"{kind}.bf16.torch"}
    (family,) = found.values()
    assert family["coefficients"]["rate"] == pytest.approx(TRUTH[kind]["rate"], rel=0.08)
    shapes = columns(kind)
    price = kernel_model(kind).seconds
    truth, fitted = (price(shape_of(kind, shapes), "bf16", H200, c) for c in (TRUTH[kind], family["coefficients"]))
    long = truth * 1e6 >= training_fit.LEAST_US
    assert family["rows"] == long.sum()
    np.testing.assert_allclose(fitted[long], truth[long], rtol=0.05)
    assert family["held_out"]["mean"] < 0.02


POWER = {"active_w": 120.0, "j_per_byte": 1e-10}
LAW = {LIMIT: 0.95, BURST: 9e-13, ATTENTION: 1.3}


@pytest.mark.parametrize("name", ["silu", "adamw.float32"])
def test_paces_are_found(tmp_path: Path, name: str) -> None:
    """Beside the plain kernel's streaming, launches apart; short rows waited for the host and are left out."""
    plain = {"memory": 0.85, "cached": 1.5, "launch_us": 3.0, "block_gb_s": 60.0}
    rows: list[Row] = []
    for moved, efficiency in ((1e9, 0.6), (3e9, 0.6), (5e9, 0.6), (1e6, 0.05)):
        sizes = {"bytes_read": moved, "bytes_written": 2 * moved}
        shape = {key: np.array([value]) for key, value in sizes.items()} | {"efficiency": np.array([efficiency])}
        seconds = kernel_model("elementwise").seconds(shape, "bf16", H200, plain)
        rows.append(sizes | {"op": "elementwise", "dtype": "bf16", "kernel": name, "time_us": float(seconds[0]) * 1e6})
    assert rows[-1]["time_us"] < 3 * training_fit.LEAST_US < rows[0]["time_us"]
    assert training_fit.efficiencies(write(tmp_path / "t.csv", rows), H200, plain) == {name: 0.6}


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ship.PROFILES / "h200-sxm-141gb.yaml").read_text())
    return found


@pytest.mark.slow
def test_measured_families_are_those_that_are_shipped(shipped: dict[str, Any]) -> None:
    made = training_fit.families(MEASURED / "torch.csv", H200, MEASURED / "kernels.csv")
    others = {f"{kind}.{dtype}.torch" for kind, dtype in module_fit.grouped(MEASURED / "modules.csv")}
    assert set(made) == {key for key in shipped["families"] if key.endswith(".torch")} - others | {"gemm.bf16.torch"}
    assert {key.partition(".")[0] for key in made} == {"gemm", "attention_forward", "attention_backward"}
    for key, family in made.items():
        kept = shipped["families"][key]
        assert family["rows"] == kept["rows"]
        assert family["coefficients"] == pytest.approx(kept["coefficients"], rel=0.02, abs=0.02)
        assert family["held_out"]["mean"] == pytest.approx(kept["held_out"]["mean"], rel=0.05)


def test_the_measured_paces_are_those_that_are_shipped(shipped: dict[str, Any]) -> None:
    kept = yaml.safe_load(EFFICIENCIES.read_text())
    made = ship.torch_kernels(MEASURED, shipped)
    assert {name: value for name, value in made.items() if name != "efficiencies"} == {
        name: value for name, value in kept.items() if name != "efficiencies"
    }
    assert made["efficiencies"] == pytest.approx(kept["efficiencies"], abs=2e-3)
    assert efficiencies() == kept["efficiencies"]
    assert made["efficiencies"].pop(ROW) > 1000
    assert all(0.05 < efficiency < 1.4 for efficiency in made["efficiencies"].values())
