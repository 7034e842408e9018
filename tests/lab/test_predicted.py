"""What was measured in the lab beside what Gnomon says of it."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import pytest

from gnomon.lab import experiment
from gnomon.lab.experiments.datastates_llm import sustained
from gnomon.lab.predicted import updated_outcome
from gnomon.papers.executed import FILE, executed
from gnomon.papers.index import file_of

CLOSE = 0.20
"""How far gains may be from what is predicted, or fitted, of the kernel that ran."""


def stored(slug: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_of(slug, FILE).read_text())
    return found


SLUGS = sorted(executed())


@pytest.mark.parametrize("slug", SLUGS)
def test_measured_gains_are_near_those_predicted(slug: str) -> None:
    outcome = stored(slug)
    assert outcome["ok"] and outcome["device"] == "NVIDIA H200"
    for row in updated_outcome(outcome)["compared"]:
        told = row["prediction"]
        if told and told["kind"] != "other kernel":
            assert abs(row["gain"] / told["gain"] - 1) <= CLOSE


@pytest.mark.parametrize("slug", SLUGS)
def test_stored_predictions_are_todays(slug: str) -> None:
    """`make lab-results` writes them again."""
    outcome = stored(slug)
    today = updated_outcome(outcome)
    assert outcome["comparable"] == today["comparable"] and outcome["notes"] == today["notes"]
    for before, row in zip(outcome["compared"], today["compared"], strict=True):
        assert {name: value for name, value in before.items() if name not in ("prediction", "predicted_gain")} == {
            name: value for name, value in row.items() if name not in ("prediction", "predicted_gain")
        }
        told, now = before["prediction"], row["prediction"]
        assert (told is None) == (now is None)
        if told:
            assert (told["by"], told["kind"]) == (now["by"], now["kind"])
            assert told["gain"] == pytest.approx(now["gain"], rel=1e-6)


def test_a_fit_to_a_run_is_no_prediction_of_it() -> None:
    outcome = stored("deep-optimizer-states")
    kinds = {row["prediction"]["kind"] for row in outcome["compared"] if row["prediction"]}
    assert kinds == {"fit"} and all(row["predicted_gain"] is None for row in outcome["compared"])
    later = updated_outcome(outcome | {"date": "2027-01-01"})["compared"]
    assert {row["prediction"]["kind"] for row in later if row["prediction"]} == {"prediction"}


def test_only_the_kernel_that_ran_is_predicted() -> None:
    for row in stored("gptq")["compared"]:
        unfolded = row["shape"]["way"].startswith("unfolded")
        assert (row["predicted_gain"] is not None) == unfolded
        assert ("Marlin" in row["prediction"]["by"]) != unfolded


def test_what_follows_from_a_runs_own_times_is_not_predicted() -> None:
    assert not any(row["prediction"] for row in updated_outcome(stored("datastates-llm"))["compared"])


def test_sustained_checkpoints_follow_from_the_stored_writes() -> None:
    """A burst of as many checkpoints as buffers says nothing of a run: its disk does."""
    outcome = stored("datastates-llm")
    modes, (headline, *_) = outcome["facts"]["modes"], outcome["compared"]
    assert headline["what"] == "iteration with a checkpoint, lazy" and headline["burst"]
    for row in outcome["compared"]:
        mode = modes[row["shape"]["mode"]]
        found = sustained(mode["iteration_s"], mode["write_s"], outcome["sizes"]["buffers"])
        without = 0.0 if row["what"].startswith("iteration") else median(modes["none"]["iteration_s"])
        assert row["sustained"]["how"] == found.how and found.how.startswith("derived")
        assert row["sustained"]["seconds"] == pytest.approx(found.seconds - without)
        assert row["deferred_s"] == mode["left_to_write_s"] > 10
        assert row["gain"] < 2 < 10 < row["burst_gain"]
    lazy, plain = (modes[mode] for mode in ("lazy", "synchronous"))
    drained = sum(plain["iteration_s"]) / (sum(lazy["iteration_s"]) + lazy["left_to_write_s"])
    assert headline["gain"] == pytest.approx(drained, rel=0.02), "the same run with its writes"


def test_a_run_with_more_checkpoints_than_buffers_measures_what_it_sustains() -> None:
    steps = [0.2, 0.2, 4.1, 4.4, 4.3]
    assert sustained(steps, [4.0] * 5, 2).seconds == 4.3
    assert sustained(steps, [4.0] * 5, 2).how.startswith("measured")
    assert sustained(steps[:2], [4.0] * 2, 2).seconds == 4.0
    assert sustained([0.2, 0.2], [0.1, 0.1], 2).seconds == 0.2, "a fast disk bounds nothing"
    sizes = {size.name: size.default for size in experiment("datastates-llm").sizes}
    assert sizes["checkpoints"] >= sizes["buffers"] + 3, "by default there are enough to see"


def test_chips_nobody_knows_are_not_predicted() -> None:
    outcome = stored("gptq") | {"device": "Some Card"}
    assert {row["prediction"] for row in updated_outcome(outcome)["compared"]} == {None}
