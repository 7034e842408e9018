"""GPTQ's table beside ours: every figure pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.reproduce import figures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Figure]:
    return {each.what: each for each in figures("gptq")}


def test_gpus_that_hold_it(found: dict[str, Figure]) -> None:
    gpus = {what: each.ours for what, each in found.items() if each.unit == "GPUs"}
    assert list(gpus.values()) == [5, 1, 8, 2]
    assert found["weights in three bits"].ours == pytest.approx(62.0, rel=1e-3)
    assert found["cache of 2,048 tokens"].ours == pytest.approx(9.0, rel=1e-3)
    assert found["four bits fit one A100-80GB (1 for yes)"].ours == 0


def test_milliseconds_a_token(found: dict[str, Figure]) -> None:
    ours = [each.ours for each in found.values() if each.unit == "ms"]
    assert ours == pytest.approx([220.5, 59.6, 496.9, 107.7], rel=5e-3)


def test_misses_say_why(found: dict[str, Figure]) -> None:
    assert all(bool(each.note) is not each.within for each in found.values())
    assert {each.tolerance for each in found.values() if each.kind == "predicted"} == {0.0, 0.1}
