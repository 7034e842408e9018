"""`gnomon calibrate --engine`: from measured steps to figures that predictions use, on an engine that is played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.calibrate import engine_run
from gnomon.cli.run import run
from gnomon.engines.torch.eager.lower import FORWARD_S, HOST_SOURCE, EagerHost
from gnomon.engines.torch.eager.lower import host as host_of
from gnomon.engines.vllm.overheads import FILE
from gnomon.errors import CalibrationError, InputError
from gnomon.load.overheads import forget_own, own_overheads, own_path

ROW = {"kind": "decode", "sequences": 1, "context": 128, "step_s": 10e-3, "device_s": 2e-3, "kernels": 400}
OWN = "schema: gnomon.overheads/1\nengine: transformers\nversion: '5'\ndate: d\n"
STEPS: dict[str, Any] = {
    "schema": "gnomon.engine-rows/1",
    "engine": "transformers",
    "date": "2026-11-15",
    "versions": {"transformers": "5.17.0", "torch": "2.11.0"},
    "host": "16 cores",
    "models": {"llama-3.2-1b": {}},
    "rows": [ROW | {"graph_launch_s": 30e-6}, ROW | {"step_s": 12e-3}, ROW | {"device_s": 11e-3}],
}


def host() -> EagerHost:
    return host_of(own_overheads("transformers"))


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    forget_own()
    yield
    forget_own()


def test_launches_follow_from_steps_that_waited_for_the_host() -> None:
    made = engine_run.launches(STEPS)
    assert made["figures"] == {"eager": {"call_us": 27.5, "graph_us": 30.0}}
    busy = STEPS | {"rows": [ROW | {"device_s": 9.9e-3}]}
    with pytest.raises(CalibrationError, match="no step waited for the host"):
        engine_run.launches(busy)


def test_a_host_that_was_measured_launches_as_it_does(tmp_path: Path) -> None:
    assert (host().forward_s, host().source) == (FORWARD_S, HOST_SOURCE)
    (tmp_path / "steps.json").write_text(json.dumps(STEPS))
    found: Any = gnomon.calibrate(source=tmp_path / "steps.json")
    assert found.profile == str(own_path("transformers"))
    assert host().forward_s == pytest.approx(27.5e-6)
    assert host().graph_s == pytest.approx(30e-6)
    assert host().source == "launches on your own host, 2026-11-15"
    own_path("transformers").write_text(OWN + "figures: {eager: {}}\n")
    forget_own()
    with pytest.raises(CalibrationError, match="is not valid"):
        host()


def test_an_engine_is_measured_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(model: str, tell: Any) -> Any:
        tell("measuring")
        return STEPS, engine_run.launches(STEPS)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(engine_run.ENGINES, "transformers", played)
    assert run(["calibrate", "--engine", "transformers", "--model", "llama-3.2-1b"]) == 0
    text = capsys.readouterr().out
    assert "transformers 5.17.0 on this host" in text
    assert "27.5 us" in text
    assert json.loads((tmp_path / "engine.json").read_text()) == STEPS


def test_a_check_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.calibrate.test_results import VLLM

    (tmp_path / "r.json").write_text(json.dumps(VLLM))
    assert run(["calibrate", "--from", str(tmp_path / "r.json"), "--on", "H200"]) == 0
    text = capsys.readouterr().out
    assert "simulated at the same rate" in text
    assert "30.00 ms" in text
    assert "stored as a check" in text


def test_wrong_words() -> None:
    with pytest.raises(InputError, match="unknown engine to measure 'sglan'"):
        gnomon.calibrate(engine="sglan", model="llama-3.2-1b")
    with pytest.raises(InputError, match="measured with a model"):
        gnomon.calibrate(engine="vllm")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--engine vllm --families gemm", "--families: applies to operators"),
        ("--engine vllm --budget 3m", "--budget: applies to operators"),
        ("--from a.json --engine vllm", "--engine: nothing is measured with --from"),
        ("--from a.csv --force", "--force: nothing is measured with --from"),
    ],
)
def test_flags_that_do_not_go_together(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *words.split()]) == 2
    assert reason in capsys.readouterr().err


CALLS = {"nan": ".nan", "negative": "-5", "a word": "x", "nothing": "null", "huge": "1e15", "a truth": "true"}


@pytest.mark.parametrize("name", CALLS)
def test_figures_of_a_host_out_of_their_range(tmp_path: Path, name: str) -> None:
    path = own_path("transformers")
    path.parent.mkdir(parents=True)
    path.write_text(OWN + f"figures: {{eager: {{call_us: {CALLS[name]}}}}}\n")
    with pytest.raises(CalibrationError, match=r"eager has call_us .*, not 0\.5 to 10000"):
        host()


def _vllm_file(**changed: Any) -> None:
    shipped = yaml.safe_load(FILE.read_text())
    path = own_path("vllm")
    path.parent.mkdir(parents=True)
    dense = shipped["figures"]["dense"] | changed.pop("dense", {})
    path.write_text(yaml.safe_dump(shipped | changed | {"figures": {"dense": dense}}))


FIGURES = [
    ("gap_us", float("nan")), ("gap_us", -5000), ("gap_us", 1e12), ("gap_us", True), ("spread", float("nan")),
    ("spread", -1), ("spread", 50), ("spread", "x"), ("decode_base_us", -1e9), ("captured_base_us", 1e15),
    ("ingress_us", -1e9), ("egress_us", float("inf")), ("idle_start_us", None),
]  # fmt: skip


@pytest.mark.parametrize(("figure", "value"), FIGURES)
def test_figures_of_vllm_out_of_their_range(figure: str, value: Any) -> None:
    _vllm_file(dense={figure: value})
    with pytest.raises(CalibrationError, match=f"dense has {figure} .*, not ") as refused:
        gnomon.predict("llama-3.1-8b", on="H200", batch=4, context=128)
    assert refused.value.where == str(own_path("vllm"))


def test_overheads_of_another_engine_or_with_other_figures() -> None:
    _vllm_file(engine="torch")
    with pytest.raises(CalibrationError, match="is of engine 'torch', not vllm"):
        gnomon.predict("llama-3.1-8b", on="H200", batch=4, context=128)
    own_path("vllm").unlink()
    own_path("vllm").parent.rmdir()
    forget_own()
    _vllm_file(dense={"zorp_us": 1.0})
    with pytest.raises(CalibrationError, match="'zorp_us', which is not a figure of this engine"):
        gnomon.predict("llama-3.1-8b", on="H200", batch=4, context=128)


VLLM: dict[str, Any] = json.loads((Path(__file__).parents[2] / "measurements/h200-2026-11-15/engine.json").read_text())


def _first(kind: str, **cells: Any) -> dict[str, Any]:
    rows = [dict(row) for row in VLLM["rows"]]
    place = next(number for number, row in enumerate(rows) if row["kind"] == kind)
    rows[place] |= cells
    return VLLM | {"rows": rows}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a date of numbers": (VLLM | {"date": 20261115}, "has no date"),
    "another engine": (VLLM | {"engine": "../vllm"}, "engine '../vllm' is none of"),
    "no version": (VLLM | {"versions": {"torch": "2"}}, "versions have no vllm"),
    "no host": (VLLM | {"host": 5}, "has no host"),
    "a length of words": (VLLM | {"max_model_len": "16384"}, "max_model_len is '16384'"),
    "a model of words": (VLLM | {"models": {"a": "b"}}, "models: 'a' has no configuration"),
    "a time of zero": (_first("decode", time_s=0), "time_s is '0', not a number from"),
    "a time of words": (_first("prompt", time_s="a"), "time_s is 'a', not a number from"),
    "a time without end": (_first("prompt", least_s=1e300), "least_s is '1e+300'"),
    "nan": (_first("frontend", egress_s=float("nan")), "row 1: egress_s is 'nan'"),
    "half a sequence": (_first("decode", sequences=2.5), "sequences is '2.5', not a whole number"),
    "half a row": (VLLM | {"rows": [{"kind": "decode", "model": "a"}]}, "row 1: has no sequences"),
    "another kind": (VLLM | {"rows": [{"kind": ["x"]}]}, "row 1: kind '['x']' is none of frontend"),
    "another model": (_first("decode", model="zz"), "is of model 'zz', which is not among"),
    "no kernels": (STEPS | {"rows": [ROW | {"kernels": 0}]}, "row 1: kernels is '0'"),
    "no step": (STEPS | {"rows": [{"kind": "decode"}]}, "row 1: has no step_s"),
    "a start of words": (STEPS | {"rows": [ROW | {"graph_launch_s": "x"}]}, "graph_launch_s is 'x'"),
    "launches of seconds": (STEPS | {"rows": [ROW | {"step_s": 100.0, "kernels": 1}]}, "eager has call_us"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_steps_that_are_broken(tmp_path: Path, name: str) -> None:
    data, reason = BROKEN[name]
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(data))
    with pytest.raises(CalibrationError) as refused:
        gnomon.calibrate(source=path, on="H200")
    assert reason in str(refused.value)
    assert str(path) in str(refused.value)
    assert not (tmp_path / "home").exists()


def test_steps_that_no_overheads_explain(tmp_path: Path) -> None:
    rows = [row | {"time_s": 40 * row["time_s"]} if row["kind"] == "decode" else row for row in VLLM["rows"]]
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(VLLM | {"rows": rows}))
    with pytest.raises(CalibrationError, match="no overheads explain the decode steps: they stay off by") as refused:
        gnomon.calibrate(source=path, on="H200")
    assert refused.value.where == str(path)


def test_a_broken_file_is_mended_by_calibrating_again(tmp_path: Path) -> None:
    path = own_path("transformers")
    path.parent.mkdir(parents=True)
    path.write_text(OWN.replace("engine: transformers", "engine: torch") + "figures: {}\n")
    with pytest.raises(CalibrationError, match=r"is of engine 'torch'.* calibrate again"):
        host()
    (tmp_path / "steps.json").write_text(json.dumps(STEPS))
    gnomon.calibrate(source=tmp_path / "steps.json")
    assert host().forward_s == pytest.approx(27.5e-6)
    path.write_text(OWN.replace("overheads/1", "overheads/2"))
    forget_own()
    with pytest.raises(CalibrationError, match="written by a newer Gnomon"):
        gnomon.calibrate(source=tmp_path / "steps.json")
