"""Whatever is broken: exit code 2 and one line that names the place, and nothing of it is ever run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.corpus import commands, fuzzed, hand, measured
from tests.corpus.bases import BASES, BESIDE
from tests.corpus.case import Case

from gnomon.cli.run import run

CASES = [*hand.cases(), *measured.cases(), *commands.cases(), *fuzzed.cases()]


def test_there_are_hundreds_of_them() -> None:
    """No two are the same command on the same files."""
    told = {(case.words, tuple((name, repr(content)) for name, content in case.files.items())) for case in CASES}
    assert len(told) == len(CASES) == len({case.name for case in CASES})
    assert len(CASES) >= 200
    assert sum(not case.name.startswith("fuzzed") for case in CASES) >= 200


@pytest.mark.parametrize("kind", BASES)
def test_unbroken_each_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text, words = BASES[kind]
    Case(name=kind, words=words, place="", files={**BESIDE, file: text}).write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(words) == 0, capsys.readouterr().err


@pytest.mark.battery(10)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_line_names_the_place(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))  # some cases write there
    before = sorted({*(path.name for path in tmp_path.iterdir()), "home"})
    code = run([*case.words, "--json"])
    out, err = capsys.readouterr()
    assert code == 2, (code, out[-2000:], err[-2000:])
    assert err.startswith("error: "), err
    assert err.count("\n") == 1, err
    assert len(err) < 1000
    assert case.place in err, err
    assert err.rstrip("\n").isprintable(), err
    error = json.loads(out)["error"]
    assert set(error) == {"message", "where", "hint"}
    assert error["message"]
    assert sorted({*(path.name for path in tmp_path.iterdir()), "home"}) == before


@pytest.mark.battery(8)
@pytest.mark.parametrize("case", CASES[::10], ids=lambda case: case.name)
def test_without_json_nothing_stands_on_stdout(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))  # some cases write there
    assert run(case.words) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
