"""Papers computed again: those that ship are sound, and what is wrong with one is said by its file."""

from __future__ import annotations

import pytest
from tests.papers.own_index import OwnIndex

from gnomon.cli.run import run as program
from gnomon.errors import InputError
from gnomon.papers.answers import listed, run, show
from gnomon.papers.entries import paper, reproduced
from gnomon.papers.reproduce import run as run_one
from gnomon.papers.reproduce import run_all
from gnomon.techniques import for_paper, techniques

pytestmark = pytest.mark.slow


@pytest.mark.battery(10)
@pytest.mark.parametrize("slug", reproduced())
def test_every_one_that_ships(slug: str) -> None:
    result = run_one(slug)
    assert result.missing == paper(slug).why
    assert paper(slug).status in (result.kind, "executed")
    assert set(result.techniques) <= set(techniques())
    assert bool(result.techniques) == (for_paper(slug) is not None), "`gnomon try` knows it, or it names no technique"
    for claim in result.claims:
        assert claim["within"] or claim["note"], f"{claim['what']} misses and does not say why"


def test_a_run(own: OwnIndex) -> None:
    own.gpipe()
    (result,) = run_all()
    idle, speed = result.claims
    assert idle["ours"] == pytest.approx(7 / 39)
    assert idle["error"] == pytest.approx(7 / 39 / 0.18 - 1)
    assert (idle["within"], speed["within"]) == (True, False)
    assert speed["error"] == pytest.approx(-0.2)
    assert (result.kind, speed["kind"]) == ("identity", "predicted")
    answer = run("gpipe").to_dict()
    assert answer["by_kind"] == {
        "predicted": {"figures": 1, "within": 0},
        "identity": {"figures": 1, "within": 1},
        "contradiction": {"figures": 0, "within": 0},
    }
    assert answer["results"] == [result.to_dict()]
    assert show("gpipe").to_dict()["result"] == result.to_dict()


def test_what_lists_show_needs_no_figures(own: OwnIndex) -> None:
    own.gpipe("STAGES, MICRO", "raise AssertionError\nSTAGES, MICRO")
    assert {entry["slug"]: entry["status"] for entry in listed().papers}["gpipe"] == "identity"


def test_claims_that_are_left_out(own: OwnIndex) -> None:
    own.gpipe("techniques: []", "missing: >-\n  One claim,\n  and why.")
    why = "One claim, and why."
    assert {entry["slug"]: entry["why"] for entry in listed().papers}["gpipe"] == why
    assert show("gpipe").to_dict()["result"]["missing"] == why
    own.execute("gpipe")
    assert show("gpipe").to_dict()["paper"]["why"] == why


def test_progress_is_told(own: OwnIndex) -> None:
    own.gpipe()
    told: list[tuple[int, int, str]] = []
    run_all(lambda *words: told.append(words))
    assert told == [(0, 1, "gpipe")]


def test_a_paper_without_one(own: OwnIndex) -> None:
    with pytest.raises(InputError, match="'zero-offload' is not reproduced"):
        run("zero-offload")
    assert show("zero-offload").result is None


BROKEN = [
    ("def figures", "def other", ": has no function 'figures'"),
    ("STAGES, MICRO_BATCHES = 8, 32", "STAGES = = 8", " line 2: cannot be loaded: SyntaxError: "),
    ("STAGES, MICRO_BATCHES = 8, 32", "STAGES = 1 / 0", ": cannot be loaded: ZeroDivisionError: division by zero"),
    ("STAGES, MICRO", "import no_such_module\nSTAGES, MICRO", ": cannot be loaded: ModuleNotFoundError: No module"),
    ("STAGES, MICRO", "STAGES, = 1\nMICRO", ": cannot be loaded: TypeError: "),
    ('yield "speed", 2.8', "{}['x']", ": its figures cannot be computed: KeyError: 'x'"),
    ('yield "speed", 2.8', "yield 1", ": gives 1, which is not a figure's name and its value"),
    ('yield "speed", 2.8', 'yield "ab"', ": gives 'ab', which is not a figure's name and its value"),
    ('yield "speed", 2.8', 'yield 2.8, "speed"', ": gives (2.8, 'speed'), which is not"),
    ('"speed", 2.8', '"speed", float("nan")', ": figure 'speed' is nan, not a number"),
    ('"speed", 2.8', '"speed", "2.8"', ": figure 'speed' is '2.8', not a number"),
    ('"speed", 2.8', '"speed", None', ": figure 'speed' is None, not a number"),
    ('"speed", 2.8', '"speed", True', ": figure 'speed' is True, not a number"),
    ('yield "speed", 2.8', "pass", ": gives no figure 'speed', which is expected"),
    ('"speed", 2.8', '"pace", 2.8', ": figure 'pace' is not among those expected"),
    ('"speed", 2.8', '"idle share", 2.8', ": figure 'idle share' is given twice"),
    (
        'yield "speed", 2.8',
        "import gnomon; gnomon.fit('llama-3.1-8b', on='H1000')",
        ", --on: unknown chip",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_what_is_wrong(old: str, new: str, message: str, own: OwnIndex) -> None:
    own.gpipe(old, new)
    with pytest.raises(InputError) as caught:
        run("gpipe")
    assert f"papers/index/gpipe/figures.py{message}" in str(caught.value)


def test_a_damaged_one_is_named_by_the_program(own: OwnIndex, capsys: pytest.CaptureFixture[str]) -> None:
    own.gpipe("STAGES, MICRO_BATCHES = 8, 32", "STAGES = = 8")
    assert program(["papers", "show", "gpipe"]) == 2
    assert "papers/index/gpipe/figures.py line 2: cannot be loaded" in capsys.readouterr().err


def test_a_paper_that_was_run_and_is_not_computed(own: OwnIndex) -> None:
    own.execute("cuda")
    assert show("cuda").to_dict()["lab"]["device"] == "NVIDIA H200"
    with pytest.raises(InputError, match="'cuda' is not reproduced"):
        run("cuda")
