"""GLM-130B's tables beside ours: what fits, what is pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.index.glm_130b.figures import HOLDS
from gnomon.papers.reproduce import figures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Figure]:
    return {each.what: each for each in figures("glm-130b")}


DECODED_S = {
    "8 x A100-SXM-40GB": [8.018, 32.22, 64.54, 129.5],
    "4 x A100-SXM-80GB": [11.96, 47.99, 96.11, 192.8],
    "8 x V100-SXM2-32GB": [13.04, 52.34, 104.8, 210.3],
    "4 x V100-SXM2-32GB": [25.52, 102.3, 205.0, 411.3],
    "8 x RTX-3090": [13.66, 54.80, 109.8, 220.2],
    "4 x RTX-3090": [25.81, 103.5, 207.2, 415.7],
    "8 x RTX-2080Ti": [19.67, 78.88, 158.0],
}


def ours(found: dict[str, Figure], part: str) -> list[float]:
    return [each.ours for what, each in found.items() if part in what]


def test_the_headline_holds(found: dict[str, Figure]) -> None:
    """Four RTX 3090, or eight RTX 2080 Ti."""
    four = [each for what, each in found.items() if "hold it in four bits" in what]
    assert [each.ours for each in four] == [1, 1]
    assert found["weights in four bits"].ours == pytest.approx(67.33, rel=1e-3)


def test_what_fits(found: dict[str, Figure]) -> None:
    assert ours(found, "hold it") == [1.0] * len(HOLDS)
    assert ours(found, "room for") == [1.0] * 5


def test_wide_decodes_agree(found: dict[str, Figure]) -> None:
    assert ours(found, "16 bits: decoding") == pytest.approx([15.82, 31.74, 63.91], rel=5e-3)
    assert all(each.within for what, each in found.items() if "16 bits: decoding" in what)


@pytest.mark.parametrize("machine", DECODED_S)
def test_decodes_with_every_matrix_written_out(found: dict[str, Figure], machine: str) -> None:
    decodes = [
        each.ours for what, each in found.items() if what.startswith(f"{machine}: decoding") and each.unit == "s"
    ]
    assert decodes == pytest.approx(DECODED_S[machine], rel=1e-3)


def test_misses_say_why(found: dict[str, Figure]) -> None:
    assert len(found) == 75
    assert all(bool(each.note) is not each.within for each in found.values())
    assert {each.tolerance for each in found.values()} == {0.0, 0.05, 0.1, 0.3}
