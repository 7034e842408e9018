"""Deep Optimizer States' logs beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.derived.deep_optimizer_states import DERIVATION

UPDATES = [723.4, 723.4, 387.0]
FORWARD = [47.42, 69.60, 81.99, 86.19, 114.8, 203.9]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(DERIVATION.figures())


def test_headline_and_stride(found: list[Figure]) -> None:
    assert [each.ours for each in found[:5]] == pytest.approx([3.578, 2.897, 3.731, 1.526, 2], rel=1e-3)
    assert [each.kind for each in found[:5]] == ["predicted", "identity", "predicted", "predicted", "predicted"]


def test_updates_hold_and_passes_are_what_they_are(found: list[Figure]) -> None:
    updates = [each for each in found if each.what.endswith(": update")]
    assert [each.ours for each in updates if each.what.startswith("7B")] == pytest.approx(UPDATES, rel=1e-3)
    assert all(each.within for each in updates)
    assert all(-0.12 < each.error < 0.07 for each in updates)
    forward = [each.ours for each in found if each.what.endswith(": forward")]
    assert forward == pytest.approx([ours for ours in FORWARD for _ in range(3)], rel=1e-3)


def test_rows_that_a_pace_is_solved_from_are_identities(found: list[Figure]) -> None:
    assert [each.what for each in found[2:] if each.kind == "identity"] == [
        "7B, 80% on the host, baseline: backward",
        "7B, 80% on the host, baseline: update",
        "7B, 80% on the host, baseline: step",
        "7B, 80% on the host, flush beside: update",
        "7B on A100, flush=waits: step",
        "7B on A100, flush=beside: step",
    ]


def test_misses_say_why(found: list[Figure]) -> None:
    assert len(found) == 112
    assert all(each.note for each in found if not each.within)
    assert {each.tolerance for each in found} == {0.12}


def test_kinds_and_sources() -> None:
    assert DERIVATION.kind == "predicted" and DERIVATION.techniques == ("offload-optimizer",)
    assert all(given.source and given.value for given in DERIVATION.inputs)
