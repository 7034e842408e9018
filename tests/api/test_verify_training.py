"""Measured training steps as files: read, compared, written back, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import GnomonError, InputError, UnwrittenError
from gnomon.execution.measured_training import compare, read_training
from gnomon.load.plan import plan_from_dict, plan_from_file
from gnomon.spec import EngineChoice, Plan
from gnomon.spec.training_job import TrainingJob

FOLDER = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
FILES = sorted(FOLDER.glob("train-*.json"))
FILE = FOLDER / "train-llama-3.2-1b-2048-none.json"


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_makes_the_round_trip(file: Path, tmp_path: Path) -> None:
    measured = read_training(file)
    assert measured.to_dict() == json.loads(file.read_text())
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(measured.to_dict()))
    assert gnomon.verify(copy).to_dict() == compare(measured).to_dict()


def test_parts() -> None:
    answer = gnomon.verify(FILE).to_dict()
    assert answer["schema"] == "gnomon.verify/1"
    json.dumps(answer, allow_nan=False)
    step, memory = answer["parts"]
    predicted = simulate_training(
        "llama-3.2-1b", on="H200", seq=2048, global_batch=8, micro_batch=4, engine="torch", dtype="bf16"
    )
    assert (step["what"], step["unit"], step["measured"]) == ("step time", "s", median(content()["step_s"]))
    assert step["predicted"] == predicted.step_time_s.value
    assert (step["low"], step["high"]) == (predicted.step_time_s.low, predicted.step_time_s.high)
    assert (memory["what"], memory["unit"], memory["measured"]) == ("peak memory", "bytes", 47085865984)
    assert memory["predicted"] == predicted.peak_memory_bytes.value
    for part in (step, memory):
        assert part["error"] == part["predicted"] / part["measured"] - 1
    assert answer["conditions"]["torch"] == content()["versions"]["torch"]
    assert answer["measured"]["steps"] == 8


def test_the_fullest_rank_counts(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content() | {"peak_memory_bytes": [1e9, 5e10, 2e9]}))
    assert gnomon.verify(path).to_dict()["parts"][1]["measured"] == 5e10


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Stands in for the GPUs: every step takes 0.3 s. The plans it is asked to run are kept."""
    asked: list[Plan] = []

    def run(job: TrainingJob, plan_text: str, tell: Callable[[str], None]) -> dict[str, Any]:
        asked.append(plan_from_file(yaml.safe_load(plan_text), "plan.yaml"))
        tell("step 1 of 2")
        known = {"date": "2026-01-02T03:04:05", "versions": {"torch": "2.11.0"}, "device": "NVIDIA H200"}
        told = {"techniques": [{"spill": {"bytes": 12}}]}
        return known | told | {"step_s": [0.3, 0.31], "peak_memory_bytes": [4e10], "sm_clock_mhz": {"before": 1980}}

    monkeypatch.setattr("gnomon.engines.torch.runner.run", run)
    return asked


def test_a_plan_is_run_and_kept(runner: list[Plan], tmp_path: Path) -> None:
    said: list[str] = []
    plan, out = plan_from_dict(content()["plan"]), tmp_path / "out.json"
    answer = gnomon.verify(plan, out=out, progress=said.append)
    assert runner == [plan]
    assert said == ["step 1 of 2"]
    assert answer.to_dict()["parts"][0]["measured"] == pytest.approx(0.305)
    assert answer.to_dict() == gnomon.verify(out).to_dict()
    assert answer.measured["techniques"] == {"spill": {"bytes": 12}}
    kept = json.loads(out.read_text())
    assert (kept["schema"], kept["date"], kept["step_s"]) == ("gnomon.measured.train/1", "2026-01-02", [0.3, 0.31])


def test_what_was_measured_is_answered_though_its_file_fails(runner: list[Plan]) -> None:
    plan = plan_from_dict(content()["plan"])
    with pytest.raises(UnwrittenError, match="/dev/full: cannot be written: No space left") as caught:
        gnomon.verify(plan, out="/dev/full")
    assert caught.value.answer.to_dict() == gnomon.verify(plan).to_dict()


def test_a_plan_for_another_engine_is_held_against_the_one_that_ran(runner: list[Plan]) -> None:
    plan = plan_from_dict(content()["plan"])
    other = replace(plan, engine=EngineChoice(name="megatron", settings=plan.engine.settings))
    assert gnomon.verify(other).to_dict()["parts"] == gnomon.verify(plan).to_dict()["parts"]
    assert len(runner) == 2


def test_a_training_plan_has_no_requests(runner: list[Plan]) -> None:
    plan = plan_from_dict(content()["plan"])
    asked: list[dict[str, Any]] = [{"rates": [1.0]}, {"probe": True}]
    for words in asked:
        with pytest.raises(InputError, match=r"--rate: .*no requests to replay"):
            gnomon.verify(plan, **words)
    assert runner == []


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"step_s": []}, "step_s"),
    "steps that are none": ({"step_s": [0.3, 0.0]}, "step_s"),
    "a word for a step": ({"step_s": ["0.3"]}, "step_s"),
    "steps as one number": ({"step_s": 0.3}, "step_s"),
    "a switch for a step": ({"step_s": [True]}, "step_s"),
    "no memory": ({"peak_memory_bytes": [None]}, "peak_memory_bytes"),
    "a plan that is none": ({"plan": {}}, "plan"),
    "a plan of another kind": ({"plan": content()["plan"] | {"load": {"trace": "t"}}}, "plan|kv_dtype|load"),
    "versions in a list": ({"versions": ["2.11"]}, "versions"),
    "no date": ({"date": None}, "date"),
    "an unknown setting": (
        {"plan": content()["plan"] | {"engine": {"name": "torch", "settings": {"micro": 1}}}},
        "micro",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, case: str) -> None:
    change, message = BROKEN[case]
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content() | change))
    with pytest.raises(GnomonError, match=message):
        gnomon.verify(path)


def test_a_time_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content() | {"step_s": [float("inf")]}))
    with pytest.raises(GnomonError, match=r"m\.json"):
        gnomon.verify(path)


def test_a_serving_file_is_no_training_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a measured training step"):
        read_training(FOLDER / "verify-llama-3.1-8b.json")
