"""A file beside an answer that cannot be written costs exit code 2 and a line, never the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.report import answers

from gnomon.api import verify as api_verify
from gnomon.cli import output
from gnomon.cli.run import run
from gnomon.errors import InputError, UnwrittenError
from gnomon.store import history

SERVE = "simulate serve llama-3.2-1b --on H100 --rate 4 --input 64 --output 8 --requests 5"
TRAIN = "simulate train llama-3.2-1b --on H100:2 --seq 512 --global-batch 4 --pp 2"
PLAN = (
    "plan serve llama-3.2-1b --fleet H100:1 --rate 4 --input 100 --output 8 --dtype bf16 "
    "--set max_num_seqs=64 --set max_num_batched_tokens=2048"
)
SEARCH = "plan train llama-3.2-1b --cluster H100:4 --seq 512 --global-batch 16"
FILES = {
    "requests": (SERVE, {"--requests-out": "full.csv"}),
    "steps": (SERVE, {"--trace-out": "full.json"}),
    "both": (SERVE, {"--requests-out": "full.csv", "--trace-out": "full.json"}),
    "one of two": (SERVE, {"--requests-out": "full.csv", "--trace-out": "good.json"}),
    "the other of two": (SERVE, {"--requests-out": "good.csv", "--trace-out": "full.json"}),
    "timeline": (TRAIN, {"--trace-out": "full.json"}),
    "memory": (TRAIN, {"--memory-out": "full.csv"}),
    "drawn memory": (TRAIN, {"--memory-out": "full.svg"}),
    "page of a load": (SERVE, {"--html": "full.html", "--requests-out": "good.csv"}),
    "page of a training step": (TRAIN, {"--html": "full.html"}),
    "page of a step": ("predict llama-3.2-1b --on H100", {"--html": "full.html"}),
    "page of a fit": ("fit llama-3.2-1b --on H100", {"--html": "full.html"}),
    "page of a plan": (PLAN, {"--html": "full.html"}),
    "page of a training plan": (SEARCH, {"--html": "full.html"}),
    "page of an idea": ("try gptq --model llama-3.2-1b --on H100", {"--html": "full.html"}),
    "table": ("ops ok.csv --on H100", {"--out": "full.csv"}),
    "accuracy": ("accuracy --chip H100", {"--save": "full.json"}),
}

ONLY_FILES = ("table", "accuracy")
"""Commands that show less where they write a file."""


def _flags(files: dict[str, str]) -> list[str]:
    return [word for pair in files.items() for word in pair]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Links named like files that lead to a device on which nothing can be kept."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.csv").write_text("op,dtype,m,n,k\ngemm,bf16,1,64,64\n")
    for name in ("full.csv", "full.json", "full.svg", "full.html"):
        (tmp_path / name).symlink_to("/dev/full")
    return tmp_path


@pytest.mark.battery(6)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("name", FILES)
def test_a_full_disk(
    name: str, as_json: bool, folder: Path, own_history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, files = FILES[name]
    plain = [*words.split(), *(["--json"] if as_json else [])]
    written = {flag: f"{place}{Path(file).suffix}" for place, (flag, file) in enumerate(files.items())}
    assert run([*plain, *_flags({} if name in ONLY_FILES else written)]) == 0
    answer = capsys.readouterr().out
    kept = len(history())
    for path in (own_history / "runs").glob("*"):
        path.unlink()
    assert run([*plain, *_flags(files)]) == 2
    out, err = capsys.readouterr()
    assert out == answer
    assert len(out) > 100
    assert err.count("\n") == 1
    for file in files.values():
        assert (f"{file}: cannot be written: No space left on device" in err) == file.startswith("full")
        assert file.startswith("full") or (folder / file).stat().st_size > 10
    assert len(history()) == kept
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", ["requests", "timeline", "memory", "page of a training step"])
def test_a_place_that_is_taken_during_the_work(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, files = FILES[name]
    ((flag, file),) = files.items()
    shown = output._show

    def show(payload: Any, as_json: bool) -> None:
        shown(payload, as_json)
        Path("mine", file).mkdir(parents=True)

    Path("mine").mkdir()
    monkeypatch.setattr(output, "_show", show)
    assert run([*words.split(), flag, f"mine/{file}", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"].startswith("gnomon.simulate.")
    assert f"mine/{file}: cannot be written" in err
    assert len(history()) == 1


def test_a_reader_that_is_gone_costs_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(output, "put", gone)
    assert run([*SERVE.split(), "--requests-out", "r.csv"]) == 141
    assert len(Path("r.csv").read_text().splitlines()) == 6
    assert len(history()) == 1


def test_memory_that_runs_out_while_a_file_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("gnomon.report.timeline.write_requests", short)
    assert run([*SERVE.split(), "--requests-out", "r.csv", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["requests"] == 5
    assert "out of memory while a file was written" in err
    assert not Path("r.csv").exists()


def test_a_measurement_whose_file_fails_is_still_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes on a GPU stand behind it."""

    def verify(*_: object, **__: object) -> None:
        raise UnwrittenError(InputError("cannot be written: full", where="m.json"), answers.verified())

    monkeypatch.setattr(api_verify, "answer", verify)
    assert run(["verify", "last", "--out", "m.json", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(json.dumps(answers.verified().to_dict()))
    assert err == "error: m.json: cannot be written: full\n"
    assert [entry.kind for entry in history()] == ["verify"]
