"""GLM-130B's tables beside ours: what fits, what is pinned, and the misses known."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.derived.glm_130b import DERIVATION, HOLDS


@pytest.fixture(scope="module")
def found() -> dict[str, Figure]:
    return {each.what: each for each in DERIVATION.figures()}


def missed(found: dict[str, Figure], part: str) -> set[str]:
    return {what for what, each in found.items() if part in what and not each.within}


def test_the_headline_holds(found: dict[str, Figure]) -> None:
    """Four RTX 3090, or eight RTX 2080 Ti."""
    four = [each for what, each in found.items() if "hold it in four bits" in what]
    assert [each.ours for each in four] == [1, 1]
    assert found["weights in four bits"].ours == pytest.approx(67.33, rel=1e-3)


def test_what_fits(found: dict[str, Figure]) -> None:
    assert sum("hold it" in what for what in found) == len(HOLDS)
    assert missed(found, "hold it") == {"8 x V100-SXM2-32GB hold it in 16 bits (1 for yes)"}
    assert (
        missed(found, "room for")
        == {what for what in found if "room for" in what}
        == {
            "4 x RTX-3090: room for encoding 1024 tokens (1 for yes)",
            "4 x RTX-3090: room for encoding 2048 tokens (1 for yes)",
            "8 x RTX-2080Ti: room for encoding 1024 tokens (1 for yes)",
            "8 x RTX-2080Ti: room for encoding 2048 tokens (1 for yes)",
            "8 x RTX-2080Ti: room for decoding 2048 tokens (1 for yes)",
        }
    )


def test_wide_decodes_agree(found: dict[str, Figure]) -> None:
    ours = [each.ours for what, each in found.items() if "16 bits: decoding" in what]
    assert ours == pytest.approx([15.82, 31.74, 63.91], rel=5e-3)
    assert not missed(found, "16 bits: decoding")


def test_decodes_are_not_written_out_there(found: dict[str, Figure]) -> None:
    """Every matrix written out takes longer than printed, on every machine: FasterTransformer's are not."""
    decodes = [each for what, each in found.items() if "decoding" in what and each.unit == "s" and ":" in what]
    runner = [each for each in decodes if "library" not in each.what and "16 bits" not in each.what]
    assert len(runner) == 27
    assert all(0.5 < each.error < 2.3 for each in runner)


def test_misses_say_why(found: dict[str, Figure]) -> None:
    assert len(found) == 75
    assert sum(each.within for each in found.values()) == 12
    assert all(bool(each.note) is not each.within for each in found.values())
    assert {each.tolerance for each in found.values()} == {0.0, 0.1, 0.3}
    assert all(given.source and given.value for given in DERIVATION.inputs)
