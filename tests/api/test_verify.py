"""Measurements as files: read, compared again, written back, refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError, UnwrittenError
from gnomon.execution.measured_serving import LEAST_REQUESTS, compare, measure
from gnomon.load.measured import SCHEMA, Measured, read_measured
from gnomon.load.plan import plan_from_dict

FILE = Path(__file__).parents[2] / "measurements/h200-2026-11-15/verify-llama-3.1-8b.json"


@pytest.fixture(scope="module")
def measured() -> Measured:
    return read_measured(FILE)


def test_a_file_holds_everything(measured: Measured) -> None:
    assert measured.versions["vllm"] == "0.24.0"
    assert measured.plan.model == "llama-3.1-8b"
    assert len(measured.loads) == 3
    for load in measured.loads:
        assert len(load.requests) >= LEAST_REQUESTS
        assert (load.requests.arrival_s <= load.scheduled_s).all()
        assert (load.scheduled_s < load.first_token_s).all()
        assert (load.first_token_s <= load.finish_s).all()
        assert load.requests.rate_per_s == pytest.approx(load.rate_per_s, rel=0.2)


@pytest.mark.heavy
def test_a_file_makes_the_round_trip(measured: Measured, tmp_path: Path) -> None:
    assert measured.to_dict() == json.loads(FILE.read_text())
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(measured.to_dict()))
    assert gnomon.verify(copy).to_dict() == compare(measured).to_dict()


@pytest.mark.slow
def test_what_was_measured_is_answered_though_its_file_fails(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.execution.measured_serving.measure", lambda plan, **_: measured)
    with pytest.raises(UnwrittenError, match="/dev/full: cannot be written: No space left") as caught:
        gnomon.verify(measured.plan, out="/dev/full")
    assert caught.value.answer.to_dict() == compare(measured).to_dict()


@pytest.mark.heavy
def test_parts(measured: Measured) -> None:
    answer = compare(measured).to_dict()
    assert answer["schema"] == "gnomon.verify/1"
    json.dumps(answer, allow_nan=False)
    counted = Counter(part["part"] for part in answer["parts"])
    # Two quantiles of four parts at three loads.
    assert {name: counted[name] for name in ("queue", "prefill", "ttft", "decode")} == dict.fromkeys(
        ("queue", "prefill", "ttft", "decode"), 6
    )
    assert counted["memory"] == 1
    assert counted["decode alone"] == sum(probe["kind"] == "decode" for probe in measured.probes)
    for part in answer["parts"]:
        assert part["measured"] > 0
        assert part["error"] == pytest.approx(part["predicted"] / part["measured"] - 1)
        assert part["unit"] in ("s", "blocks")
    assert answer["conditions"]["gpu"] == "NVIDIA H200"
    assert answer["measured"]["loads"] == [load.rate_per_s for load in measured.loads]


def test_parts_of_a_request_add_up(measured: Measured) -> None:
    for load in measured.loads:
        times = load.times
        assert times["ttft"] == pytest.approx(times["queue"] + times["prefill"])


@pytest.mark.slow
def test_comparing_repeats(measured: Measured) -> None:
    assert compare(measured).to_dict() == compare(measured).to_dict() == gnomon.verify(str(FILE)).to_dict()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", f"not '{SCHEMA}'"),
        ('{"schema": "gnomon.measured/2"}', "gnomon.measured/2"),
        ("[]", "m.json"),
        ("{", "m.json"),
        (json.dumps({"schema": SCHEMA}), "m.json"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        gnomon.verify(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json"):
        gnomon.verify(tmp_path / "none.json")


def test_a_plan_without_a_load_cannot_be_measured() -> None:
    plan: dict[str, Any] = json.loads(FILE.read_text())["plan"]
    with pytest.raises(InputError, match="no load"):
        measure(plan_from_dict({key: value for key, value in plan.items() if key != "load"}))


@pytest.mark.parametrize(
    "change",
    [
        {"loads": []},
        {"loads": {}},
        {"probes": [{"kind": "decode", "sequences": 1.5, "context": 5, "time_s": 1}]},
        {"probes": [{"kind": "prompt", "tokens": 1.5, "time_s": 1}]},
        {"probes": [{"kind": "nap", "time_s": 1}]},
        {"probes": [{"kind": "decode", "sequences": 1, "context": 5, "time_s": float("nan")}]},
        {"settings": {"kv_blocks": -1}},
    ],
)
def test_figures_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    content = json.loads(FILE.read_text()) | change
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"m\.json"):
        read_measured(path)


@pytest.mark.parametrize(
    "row", [[0, 10, 10, 5, 1, 2], [0, 1.5, 10, 0, 1, 2], [0, 10, 10, 0, 3, 2], [5, 10, 10, 0, 1, 2]]
)
def test_a_row_out_of_order_is_refused(tmp_path: Path, row: list[float]) -> None:
    content = json.loads(FILE.read_text())
    content["loads"][0]["rows"] = [row]
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="cannot be"):
        read_measured(path)
