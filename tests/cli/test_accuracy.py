"""`gnomon accuracy`: the page or its JSON on stdout, or the page in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.api.accuracy import Accuracy
from gnomon.cli.run import run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Accuracy(title="Title", published=(), measured=(), profiles=("A100 today",))
    monkeypatch.setattr("gnomon.api.accuracy.accuracy", lambda: answer)


def test_the_page_on_stdout_or_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Title\n")
    path = tmp_path / "page.md"
    assert run(["accuracy", "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_text() == printed


def test_json_with_and_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"
    for words in ([], ["--out", str(path)]):
        assert run(["accuracy", "--json", *words]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["schema"], answer["profiles"]) == ("gnomon.accuracy/1", ["A100 today"])
    assert path.exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: --out: ")
