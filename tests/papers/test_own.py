"""Papers of a user's own: read as data, listed beside the others, and run where their Python is allowed to."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.errors import GnomonError, InputError
from gnomon.papers.answers import cite, listed, new, search, show
from gnomon.papers.answers import run as run_papers
from gnomon.papers.entries import papers
from gnomon.papers.reproduce import run_all

Out = pytest.CaptureFixture[str]
ENTRY = """
title: "Marmalade: Sticky Weights"
authors: [Ada Qwertzuiop]
ids: {arxiv: "2612.00001"}
shelf: own
mechanisms: [streamed-weights]
topics: [training, offload]
hardware: [H100]
idea: Weights of marmalade layers stick to the host.
technique: They are copied ahead of their use.
claims: [{what: step time, value: "2x faster"}]
feasibility: A
"""
LISTED = "status: listed\nwhy: Not computed.\n"
REPRODUCTION = """
reproduction:
  kind: predicted
  setting: one GPU
  source: section 1
  expected: [{what: speed, claimed: 2, unit: x, claim: 1}]
"""
FIGURES = 'from pathlib import Path\n\nPath(r"{mark}").touch()\n\n\ndef figures():\n    yield "speed", 2.1\n'


class Mine:
    """A folder of papers, and a file that is there once their Python has run."""

    def __init__(self, folder: Path, mark: Path) -> None:
        self.folder, self.mark = folder, mark
        self.write("paper.yaml", ENTRY + LISTED)

    def write(self, name: str, text: str, slug: str = "marmalade") -> Path:
        path = self.folder / slug / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compute(self) -> None:
        self.write("paper.yaml", ENTRY + REPRODUCTION)
        self.write("figures.py", FIGURES.format(mark=self.mark))


@pytest.fixture(params=["given", "at home"])
def mine(request: pytest.FixtureRequest, tmp_path: Path, own_history: Path) -> tuple[Mine, dict[str, Any]]:
    """In a folder that is named, or in Gnomon's own, which needs no name."""
    given = request.param == "given"
    folder = tmp_path / "mine" if given else own_history / "papers"
    return Mine(folder, tmp_path / "ran"), {"folder": folder} if given else {}


def test_they_are_listed_found_and_cited(mine: tuple[Mine, dict[str, Any]]) -> None:
    _, where = mine
    rows = {row["slug"]: row for row in listed(**where).papers}
    assert len(rows) == len(papers()) + 1 and rows["marmalade"]["folder"].endswith("marmalade")
    assert rows["marmalade"]["clusters"] == ("offload-tiers",) and rows["gptq"]["folder"] == ""
    for words in ("marmalade", "sticky weights", "2612.00001", "Qwertzuiop"):
        assert [row["slug"] for row in search(words, **where).papers][:1] == ["marmalade"]
    shown = show("marmalade", **where)
    assert shown.closest and shown.closest["technique"].startswith("offload-") and shown.needs
    assert "eprint        = {2612.00001}" in cite("marmalade", **where).bibtex
    if where:
        with pytest.raises(GnomonError, match="unknown paper 'marmalade'"):
            show("marmalade")


def test_their_python_runs_where_it_is_allowed_alone(mine: tuple[Mine, dict[str, Any]]) -> None:
    own, where = mine
    own.compute()
    assert listed(**where).papers and search("marmalade", **where).papers
    shown = show("marmalade", **where)
    assert shown.result is None and shown.not_run and [one["what"] for one in shown.expected] == ["speed"]
    with pytest.raises(InputError, match=r"figures.py: is Python of your own paper.*Add --allow-code"):
        run_papers("marmalade", **where)
    assert not own.mark.exists()
    found = run_papers("marmalade", **where, allow_code=True)
    assert own.mark.exists() and found.results[0].headline == {"checked": 1, "within": 1, "left_out": 0}
    assert show("marmalade", **where, allow_code=True).result == found.results[0]


def test_all_of_them_leave_out_what_may_not_run(
    mine: tuple[Mine, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, where = mine
    own.compute()
    monkeypatch.setattr("gnomon.papers.book.reproduced", lambda: ("long-context-peak",))
    found = run_papers(**where)
    assert [one.slug for one in found.results] == ["long-context-peak"] and not own.mark.exists()
    assert [one["slug"] for one in found.skipped] == ["marmalade"]
    both = run_papers(**where, allow_code=True)
    assert [one.slug for one in both.results] == ["long-context-peak", "marmalade"] and own.mark.exists()
    assert both.skipped == () and both.headline == {"checked": 1, "within": 1, "left_out": 0}


@pytest.mark.slow
def test_processes_share_them(mine: tuple[Mine, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    own, where = mine
    own.compute()
    monkeypatch.setattr("gnomon.papers.book.reproduced", lambda: ("long-context-peak", "zero-offload"))
    folder = where.get("folder")
    assert run_all(jobs=2, folder=folder, allow_code=True) == run_all(folder=folder, allow_code=True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("paper.yaml", ENTRY, "field status: is missing"),
        ("paper.yaml", "a: !!python/object/apply:os.system ['true']", "is not"),
        ("figures.py", FIGURES, "figures.py needs a 'reproduction'"),
    ],
)
def test_what_is_wrong_is_said_of_its_file(name: str, text: str, message: str, tmp_path: Path) -> None:
    own = Mine(tmp_path / "mine", tmp_path / "ran")
    own.write(name, text)
    with pytest.raises(InputError) as caught:
        listed(folder=own.folder)
    assert message in str(caught.value) and str(own.folder / "marmalade") in str(caught.value)
    assert not own.mark.exists()


def test_an_unfinished_one_is_in_nobodys_way(tmp_path: Path, own_history: Path, capsys: Out) -> None:
    """Of Gnomon's own folder; whoever asks for it is told what is wrong."""
    own = Mine(own_history / "papers", tmp_path / "ran")
    own.write("paper.yaml", ENTRY)
    own.write("paper.yaml", ENTRY + LISTED, slug="gptq")
    assert run(["papers", "show", "gptq"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("GPTQ: Accurate")
    warned = err.splitlines()
    assert all(line.startswith("warning: left out: ") for line in warned)
    assert "a paper called 'gptq' ships" in warned[0] and "field status: is missing" in warned[1]
    assert run(["papers", "show", "marmalade"]) == 2
    assert "error: " in (told := capsys.readouterr().err) and "field status: is missing" in told


def test_names_that_are_taken(tmp_path: Path, own_history: Path) -> None:
    own = Mine(tmp_path / "mine", tmp_path / "ran")
    own.write("paper.yaml", ENTRY + LISTED, slug="gptq")
    with pytest.raises(InputError, match="a paper called 'gptq' ships with Gnomon"):
        listed(folder=own.folder)
    Mine(own_history / "papers", tmp_path / "ran")
    with pytest.raises(InputError, match=r"'marmalade' is in .* too"):
        listed(folder=own.folder / "marmalade")
    for folder, message in (("absent", "is not a folder"), (str(tmp_path / "mine" / ".."), "has no papers")):
        with pytest.raises(InputError, match=message):
            listed(folder=folder)


def test_the_folder_of_one_paper_will_do(tmp_path: Path, capsys: Out) -> None:
    own = Mine(tmp_path / "mine", tmp_path / "ran")
    own.compute()
    one = str(own.folder / "marmalade")
    assert run(["papers", "--papers", one, "show", "marmalade", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slug"] == "marmalade"
    assert run(["papers", "run", "marmalade", "--papers", one]) == 2
    assert "--allow-code" in capsys.readouterr().err
    assert run(["papers", "run", "marmalade", "--papers", one, "--allow-code"]) == 0
    assert "1 of 1 checked claim holds; median error 5.0%" in capsys.readouterr().out


def test_a_paper_begins_with_a_folder(tmp_path: Path, own_history: Path, capsys: Out) -> None:
    made = new("a-paper", arxiv="2612.00002")
    assert made.files == (str(own_history / "papers" / "a_paper" / "paper.yaml"),)
    shown = show("a-paper")
    assert shown.ids["arxiv"] == "2612.00002" and shown.paper["date"] == "2026-12" and shown.status == "listed"
    assert run(["papers", "new", "b-paper", "--out", str(tmp_path)]) == 0
    assert "next: gnomon papers show b-paper" in capsys.readouterr().out
    assert show("b-paper", folder=tmp_path).ids == {"arxiv": "", "doi": ""}
    for words, message in (
        (["a-paper"], "is there already"),
        (["gptq"], "'gptq' is in the index"),
        (["A_Paper"], "'A_Paper' is not a name for a paper"),
        (["c-paper", "--arxiv", "2210.17323"], "2210.17323 is in the index as 'gptq'"),
        (["c-paper", "--arxiv", "22"], "--arxiv: '22' is not an arXiv number"),
    ):
        assert run(["papers", "new", *words]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "__init__.py").touch()
    assert len(new("d-paper", out=tmp_path).files) == 2


def test_a_technique_of_ones_own_is_tried_by_its_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder is named in the environment, and nowhere else."""
    techniques = import_module("gnomon.techniques")
    own = Mine(tmp_path / "mine", tmp_path / "ran")
    own.write(
        "technique.py",
        "from gnomon.techniques.base import SERVING, Technique, Trial\n\n\n"
        "class Marmalade(Technique):\n"
        "    work = (SERVING,)\n"
        '    name, title, idea = "marmalade", "Sticky weights", "Weights stick to the host."\n'
        '    trials = (Trial(paper="marmalade", words="marmalade"),)\n\n\n'
        "TECHNIQUES = (Marmalade(),)\n",
    )
    caches = (techniques.techniques, techniques._by_any_name, techniques._named, techniques._parsed)
    for cached in caches:
        cached.cache_clear()
    try:
        assert "marmalade" not in techniques.techniques()
        for cached in caches:
            cached.cache_clear()
        monkeypatch.setenv("GNOMON_TECHNIQUES", str(own.folder))
        answer = gnomon.try_idea("marmalade", model="llama-3.2-1b", on="H100", batch=1, context=100)
        assert answer.technique == "marmalade" and answer.paper == "marmalade"
        assert show("marmalade", folder=own.folder).techniques == ("marmalade",)
    finally:
        monkeypatch.delenv("GNOMON_TECHNIQUES", raising=False)
        for cached in caches:
            cached.cache_clear()
