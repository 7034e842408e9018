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
    "8 x A100-SXM-40GB": [4.288, 17.30, 34.70, 69.83],
    "4 x A100-SXM-80GB": [7.025, 28.26, 56.66, 113.9],
    "8 x V100-SXM2-32GB": [4.983, 20.11, 40.38, 81.43],
    "4 x V100-SXM2-32GB": [8.479, 34.15, 68.64, 138.6],
    "8 x RTX-3090": [4.761, 19.22, 38.59, 77.86],
    "4 x RTX-3090": [7.735, 31.17, 62.64, 126.6],
    "8 x RTX-2080Ti": [6.181, 24.93, 50.10],
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
    assert ours(found, "16 bits: decoding") == pytest.approx([19.46, 39.02, 78.47], rel=5e-3)
    assert all(each.within for what, each in found.items() if "16 bits: decoding" in what)


@pytest.mark.parametrize("machine", DECODED_S)
def test_decodes_that_read_packed_weights(found: dict[str, Figure], machine: str) -> None:
    decodes = [
        each.ours for what, each in found.items() if what.startswith(f"{machine}: decoding") and each.unit == "s"
    ]
    assert decodes == pytest.approx(DECODED_S[machine], rel=1e-3)


def test_misses_say_why(found: dict[str, Figure]) -> None:
    assert len(found) == 75
    assert all(bool(each.note) is not each.within for each in found.values())
    assert {each.tolerance for each in found.values()} == {0.0, 0.05, 0.1, 0.3}
