"""What was measured in the lab beside what Gnomon says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnomon.lab.predicted import told_again
from gnomon.papers.executed import LAB, executed

CLOSE = 0.20
"""How far the headline gains may be from what is predicted."""
HEADLINES = {
    "deep-optimizer-states": ("update phase, stride 2", "update phase, stride 3", "update phase, stride 4"),
    "gptq": ("m 1, n 8192, k 8192", "m 1, n 28672, k 8192", "m 1, n 4096, k 14336"),
    "datastates-llm": ("iteration with a checkpoint, lazy", "iteration with a checkpoint, asynchronous"),
}


def stored(slug: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(LAB, f"{slug}.json").read_text())
    return found


def test_every_stored_run_has_its_headlines() -> None:
    assert executed() == set(HEADLINES)


@pytest.mark.parametrize("slug", HEADLINES)
def test_measured_gains_are_near_those_predicted(slug: str) -> None:
    outcome = stored(slug)
    rows = {row["what"]: row for row in told_again(outcome)["compared"]}
    assert outcome["ok"] and outcome["device"] == "NVIDIA H200"
    for what in HEADLINES[slug]:
        assert abs(rows[what]["gain"] / rows[what]["predicted_gain"] - 1) <= CLOSE


@pytest.mark.parametrize("slug", HEADLINES)
def test_stored_predictions_are_todays(slug: str) -> None:
    """`make lab-results` writes them again."""
    for row in told_again(outcome := stored(slug))["compared"]:
        before = next(each for each in outcome["compared"] if each["what"] == row["what"])
        told, today = before["predicted_gain"], row["predicted_gain"]
        assert (told is None) == (today is None) and (told or 0) == pytest.approx(today or 0, rel=1e-6)


def test_chips_nobody_knows_are_not_predicted() -> None:
    outcome = stored("gptq") | {"device": "Some Card"}
    assert {row["predicted_gain"] for row in told_again(outcome)["compared"]} == {None}
