"""Experts: what routing makes of their tiles, and what was measured of it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gnomon import catalog
from gnomon.cost.kernels import kernel_model
from gnomon.cost.moe import BLOCKS, uneven_rows
from gnomon.cost.rows import shape_of
from gnomon.cost.work import work
from gnomon.graph.uneven import counts_between, visited_unevenly
from gnomon.load.profiles import profile_for
from gnomon.spec.workload import Floats

MODEL = {"hidden": 2048.0, "inter": 768.0, "experts": 128.0, "topk": 8.0}
MEASURED = Path(__file__).parents[2] / "measurements" / "h200-2026-11-15"


def times(tokens: list[float], **beside: float) -> Floats:
    """On an H200, by the formula alone: laws are those of the physics."""
    chip = catalog.chip("H200")
    sizes = {name: np.full(len(tokens), value) for name, value in (MODEL | beside).items()}
    c = profile_for(chip).family("moe", "bf16").coefficients
    return kernel_model("moe").seconds({"tokens": np.array(tokens)} | sizes, "bf16", chip, c)


TOKENS = [1.0, 3.0, 15.0, 16.0, 17.0, 64.0, 128.0, 129.0, 1000.0, 1024.0, 1025.0, 8192.0, 100_000.0]


@pytest.mark.parametrize("beside", [{}, {"skew": 0.0}, {"skew": 1.01}, {"skew": 1.2}, {"matrices": 2.0}])
def test_more_tokens_are_never_quicker(beside: dict[str, float]) -> None:
    assert np.all(np.diff(times(TOKENS, **beside)) >= 0)


def test_uneven_routing_streams_less_and_computes_more() -> None:
    few, many = [32.0], [4096.0]
    assert times(few, skew=1.2) < times(few, skew=0.0)
    assert times(many, skew=1.2) > times(many, skew=0.0)


def test_two_matrices_take_two_thirds() -> None:
    assert times([128.0], matrices=2.0)[0] / times([128.0])[0] == pytest.approx(2 / 3, abs=0.05)


def test_a_rank_of_several_moves_rows_of_absent_experts() -> None:
    assert times([512.0], absent=4096.0) > times([512.0], absent=0.0) == times([512.0])


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("skew", [1.01, 1.2])
def test_rows_of_uneven_blocks(block: int, skew: float) -> None:
    """Beside counts laid out along the law."""
    sizes = [np.array([value]) for value in (2048.0, 128.0, 8.0, skew)]
    least, most = counts_between(*sizes)
    power, even = 1 - skew, (np.arange(100_000) + 0.5) / 100_000
    counts = (least**power + even * (most**power - least**power)) ** (1 / power)
    counts *= 2048 * 8 / 128 / counts.mean()
    drawn = 128 * (np.ceil(counts / block) * block).mean()
    found = uneven_rows(np.array([2048.0 * 8]), np.array([128.0]), block, sizes[3], least, most)
    assert found[0] == pytest.approx(drawn, rel=0.03)


def test_dealt_out_evenly_blocks_fill_at_once() -> None:
    one, full, next_one = (
        float(uneven_rows(np.array([pairs]), np.array([128.0]), 64, *np.array([[0.0], [1.0], [100.0]]))[0])
        for pairs in (128.0, 128 * 64.0, 128 * 65.0)
    )
    assert one == full == 128 * 64
    assert next_one == 2 * full


def test_uneven_routing_as_measured() -> None:
    """The fit has seen even routing alone."""
    with (MEASURED / "experts_uneven.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = ("tokens", "hidden", "inter", "experts", "topk", "skew")
    shape = shape_of("moe", {name: np.array([float(row[name]) for row in rows]) for name in names})
    chip = catalog.chip("H200")
    family = profile_for(chip).family("moe", "bf16")
    found = kernel_model("moe").seconds(shape, "bf16", chip, family.coefficients)
    found = found * family.residual.factor(shape) if family.residual else found
    errors = found * 1e6 / np.array([float(row["time_us"]) for row in rows]) - 1
    assert len(errors) == 24
    assert np.abs(errors).mean() < 0.06
    assert abs(errors.mean()) < 0.03


def test_the_least_time_is_of_the_experts_that_are_visited() -> None:
    """Not of those that tokens choosing at random would visit: a skew leaves some of these out."""
    sizes = {"tokens": 64.0, "hidden": 2048.0, "inter": 768.0, "experts": 128.0, "topk": 8.0}
    shape = {name: np.array([value]) for name, value in sizes.items()}
    skew = {"skew": np.array([1.2])}
    visited = visited_unevenly(shape["tokens"], shape["experts"], shape["topk"], skew["skew"])
    drawn, skewed, said = (work("moe", "bf16", shape | each)[1] for each in ({}, skew, {"visited": visited}))
    assert skewed == said < drawn
