"""Versions of engines are as far off as their tables say, on rows that nothing was fitted to."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gnomon.accuracy import truth
from gnomon.engines.deepspeed.releases import BY_VERSION
from gnomon.engines.fastertransformer.engine import LAYER_S, REDUCE_S
from gnomon.engines.vllm.releases import described
from tools import deepspeed_versions, fastertransformer, gptfast, vllm_early


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.3", "0.14"])
def test_deepspeed(version: str) -> None:
    found = deepspeed_versions.errors(deepspeed_versions.rows(version, "check"))
    stated = re.search(r"mean error (\d+)%", BY_VERSION[version].tested_on)
    assert stated
    assert np.abs(np.expm1(found)).mean() == pytest.approx(int(stated[1]) / 100, abs=0.01)


@pytest.mark.slow
def test_fastertransformer() -> None:
    found = fastertransformer.errors(fastertransformer.rows("check"), LAYER_S, REDUCE_S)
    assert np.abs(np.expm1(found)).mean() == pytest.approx(0.071, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "low", "high"), [("readme", -0.27, -0.03), ("ladder", -0.01, 0.22)])
def test_gptfast(source: str, low: float, high: float) -> None:
    found = [gptfast.error(row) for row in gptfast.rows() if row["id"].startswith(source)]
    assert [min(found), max(found)] == pytest.approx([low, high], abs=0.01)


@pytest.mark.slow
@pytest.mark.skipif(truth.folder() is None, reason="no tables of measurements here (GNOMON_TRUTH)")
@pytest.mark.parametrize("version", list(vllm_early.SOURCES))
def test_vllm(version: str) -> None:
    """On the chip that nothing was fitted to; on the other one within a tenth."""
    fitted, other = (
        vllm_early.checked(vllm_early.cases(version, chip), version) for chip in (vllm_early.FIT, vllm_early.CHECK)
    )
    stated = re.search(r"(\d+)%", described()[version].tested_on)
    assert stated
    assert np.abs(other).mean() == pytest.approx(int(stated[1]) / 100, abs=0.01)
    assert np.abs(fitted).mean() < 0.1


def test_rows_to_fit_and_rows_to_check_are_apart() -> None:
    for module in (deepspeed_versions, fastertransformer):
        path = module.ROWS
        parts = [line.rpartition(",")[2] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        assert {"fit", "check"} == set(parts) and parts.count("check") >= 4
