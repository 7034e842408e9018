"""`gnomon calibrate --engine`: from measured steps to figures that predictions use, on an engine that is played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.calibrate import engine_run
from gnomon.cli.run import run
from gnomon.engines.own import forget_own, own_path
from gnomon.engines.torch.eager.lower import FORWARD_S, HOST_SOURCE, host
from gnomon.errors import CalibrationError, InputError

ROW = {"kind": "decode", "sequences": 1, "context": 128, "step_s": 10e-3, "device_s": 2e-3, "kernels": 400}
STEPS: dict[str, Any] = {
    "schema": "gnomon.engine-rows/1",
    "engine": "transformers",
    "date": "2026-11-15",
    "versions": {"transformers": "5.17.0", "torch": "2.11.0"},
    "host": "16 cores",
    "models": {"llama-3.2-1b": {}},
    "rows": [ROW | {"graph_launch_s": 30e-6}, ROW | {"step_s": 12e-3}, ROW | {"device_s": 11e-3}],
}


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
    own_path("transformers").write_text("schema: gnomon.overheads/1\nversion: '5'\ndate: d\nfigures: {eager: {}}\n")
    forget_own()
    with pytest.raises(CalibrationError, match="is not whole"):
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
    from tests.calibrate.test_readers import VLLM

    (tmp_path / "r.json").write_text(json.dumps(VLLM))
    assert run(["calibrate", "--from", str(tmp_path / "r.json"), "--on", "H200"]) == 0
    text = capsys.readouterr().out
    assert "simulated at the same rate" in text
    assert "30.00 ms" in text
    assert "kept as a check" in text


def test_wrong_words() -> None:
    with pytest.raises(InputError, match="unknown engine to measure 'sglan'"):
        gnomon.calibrate(engine="sglan", model="llama-3.2-1b")
    with pytest.raises(InputError, match="measured with a model"):
        gnomon.calibrate(engine="vllm")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--engine vllm --families gemm", "--families: is of operators"),
        ("--engine vllm --budget 3m", "--budget: is of operators"),
        ("--from a.json --engine vllm", "--engine: nothing is measured with --from"),
        ("--from a.csv --force", "--force: nothing is measured with --from"),
    ],
)
def test_flags_that_do_not_go_together(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *words.split()]) == 2
    assert reason in capsys.readouterr().err
