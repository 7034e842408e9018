"""Tables that time the host, or beat the chip, are not tested on; fits are tested by size and on chips not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnomon.accuracy.operators import by_family, operators
from gnomon.accuracy.scores import LeftOut
from gnomon.accuracy.unseen import unseen_chips
from gnomon.calibrate.truth import Table
from gnomon.calibrate.usable import cut, picked, unfit
from gnomon.cost.kernels import kernel_model
from gnomon.cost.rows import shape_of
from gnomon.load import chip

H100, A100 = chip("H100"), chip("A100-SXM-80GB")
DRAW = np.random.default_rng(5)
SIZES = {name: 2.0 ** DRAW.integers(8, 15, 2500) for name in ("m", "n", "k")} | {"batch": np.ones(2500)}
COEFFICIENTS = {name: first for name, (first, _, _) in kernel_model("gemm").ranges.items()}


def table(on: str = "H100-SXM-80GB", *, floor_us: float = 0.0, quicker: float = 1.0) -> Table:
    """What the formula says, with a little noise."""
    seconds = kernel_model("gemm").seconds(shape_of("gemm", SIZES), "bf16", chip(on), COEFFICIENTS)
    times = np.maximum(seconds * 1e6 / quicker * np.exp(np.random.default_rng(1).normal(0, 0.02, 2500)), floor_us)
    about = {"source": "x", "chip": on, "framework": "vllm", "version": "1", "kind": "gemm", "dtype": "bf16"}
    return Table(**about, columns=SIZES | {"time_us": times}, kernels=())


def long(made: Table) -> Table:
    return picked(made, np.flatnonzero(made.columns["time_us"] >= 20))


def test_tables_that_are_left_out() -> None:
    assert (table().columns["time_us"] >= 20).sum() >= 500, "the drawn sizes are too small for this test"
    assert unfit(table(), H100) == ""
    assert unfit(table(floor_us=60.0), H100) == "held back by the host: never under 60 us"
    assert "beat the chip's peak" in unfit(table(quicker=2), H100)
    assert unfit(cut(table(), 400), H100) == "fewer than 500 rows above 20 us"


def test_a_table_is_cut_the_same_every_time() -> None:
    first, second = cut(table(), 100), cut(table(), 100)
    assert first.rows == 100
    assert (first.columns["time_us"] == second.columns["time_us"]).all()


@pytest.mark.heavy
def test_errors_by_table_and_by_size() -> None:
    found = operators([(long(table()), H100)], LeftOut())
    (row,) = found["tables"]
    assert row["mean_error"] < 0.04
    assert len(row["deciles"]) == 10
    assert sum(part["rows"] for part in row["deciles"]) == row["rows"]
    ends = [part["to_s"] for part in row["deciles"]]
    assert ends == sorted(ends)
    assert 0.8 <= row["inside"] / row["banded"] <= 0.97
    (family,) = by_family(found["tables"])
    assert (family["source"], family["kind"], family["mean_error"]) == ("published", "gemm", row["mean_error"])


def test_a_table_that_no_fit_takes_is_counted() -> None:
    left = LeftOut()
    assert operators([(cut(long(table()), 8), H100)], left)["tables"] == []
    assert "too few to fit" in left.listed()[0]["why"]


def test_chips_not_seen() -> None:
    pair = [(long(table("H100-SXM-80GB")), H100), (long(table("A100-SXM-80GB")), A100)]
    found = unseen_chips(pair, LeftOut())
    assert [(row["chip"], row["from"]) for row in found] == [
        ("A100-SXM-80GB", ["H100-SXM-80GB"]), ("H100-SXM-80GB", ["A100-SXM-80GB"]),
    ]  # fmt: skip
    assert all(row["mean_error"] < 0.08 for row in found), "the same physics on both, but for the tiles of each"
    assert unseen_chips(pair[:1], LeftOut()) == []


@pytest.mark.parametrize("shape", [(10, 1), (9, 0)])
def test_newest_table_of_a_chip_counts(shape: tuple[int, int]) -> None:
    rows, version = 100 * shape[0] // 10, str(shape[1])
    pair = [(long(table("H100-SXM-80GB")), H100), (cut(long(table("A100-SXM-80GB")), rows), A100)]
    older = (replace(pair[1][0], version=version), A100)
    found = {row["chip"]: row["version"] for row in unseen_chips([*pair, older], LeftOut())}
    assert found["A100-SXM-80GB"] == "1"


def test_a_kind_without_a_formula_is_counted() -> None:
    """Tables of what has no kernel model yet do not end the others."""
    strange = [(replace(long(table(name)), kind="abacus"), chip(name)) for name in ("H100-SXM-80GB", "A100-SXM-80GB")]
    left = LeftOut()
    assert operators(strange, left)["tables"] == []
    assert unseen_chips(strange, left) == []
    assert len(left.listed()) == 4


@pytest.mark.slow
def test_several_processes_find_the_same() -> None:
    pair = [(cut(long(table(name)), 60), chip(name)) for name in ("H100-SXM-80GB", "A100-SXM-80GB")]
    assert operators(pair, LeftOut(), jobs=2) == operators(pair, LeftOut())
