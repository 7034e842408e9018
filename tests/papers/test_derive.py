"""Derivations: those that ship are sound, and one that does not say where its numbers are from is refused."""

from __future__ import annotations

import pytest
from tests.papers.shelved import Shelved

from gnomon.cli.run import run as program
from gnomon.errors import InputError
from gnomon.papers import derivations
from gnomon.papers.answers import listed, run, show
from gnomon.papers.derive import run as run_one
from gnomon.papers.derive import run_all
from gnomon.papers.shelf import paper
from gnomon.techniques import for_paper, techniques

pytestmark = pytest.mark.slow


@pytest.mark.battery(5)
@pytest.mark.parametrize("slug", derivations.slugs())
def test_every_derivation_that_ships(slug: str) -> None:
    result = run_one(slug)
    assert derivations.kind(slug) == result.kind
    assert derivations.missing(slug) == result.missing == paper(slug).why
    assert set(result.techniques) <= set(techniques())
    assert bool(result.techniques) == (for_paper(slug) is not None), "`gnomon try` knows it, or it names no technique"
    for claim in result.claims:
        assert claim["within"] or claim["note"], f"{claim['what']} misses and does not say why"


def test_a_run(own: Shelved) -> None:
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


def test_listing_loads_no_derivation(own: Shelved) -> None:
    own.gpipe("DERIVATION = ", "raise AssertionError\nDERIVATION = ")
    assert {entry["slug"]: entry["status"] for entry in listed().papers}["gpipe"] == "identity"
    own.gpipe("DERIVATION = Derivation(", "DERIVATION = OTHER = Derivation(")  # loaded where the text does not say
    assert {entry["slug"]: entry["status"] for entry in listed().papers}["gpipe"] == "identity"


MISSING = [
    ('missing="One claim.",', "One claim."),
    ('missing=(\n        "One claim, "\n        "and why."\n    ),', "One claim, and why."),
    ('missing=" ".join(("One", "claim.")),', "One claim."),
    ('missing=(\n        f"{STAGES} claims."\n    ),', "8 claims."),
]


@pytest.mark.parametrize(("written", "why"), MISSING)
def test_claims_that_are_left_out(written: str, why: str, own: Shelved) -> None:
    own.gpipe("    techniques=(),", f"    {written}")
    assert {entry["slug"]: entry["why"] for entry in listed().papers}["gpipe"] == why
    assert show("gpipe").to_dict()["result"]["missing"] == why
    own.execute("gpipe")
    assert show("gpipe").to_dict()["paper"]["why"] == why


def test_progress_is_told(own: Shelved) -> None:
    own.gpipe()
    told: list[tuple[int, int, str]] = []
    run_all(lambda *words: told.append(words))
    assert told == [(0, 1, "gpipe")]


def test_a_paper_without_one(own: Shelved) -> None:
    with pytest.raises(InputError, match="'zero-offload' is not re-derived"):
        run("zero-offload")
    assert show("zero-offload").result is None


BROKEN = [
    ('slug="gpipe"', 'slug="gpipes"', ": slug 'gpipes' is not that of its file, 'gpipe'"),
    (
        '    kind="identity",\n    setting',
        '    kind="executed",\n    setting',
        ": kind 'executed' is none of predicted, identity",
    ),
    ('"8 stages, 32 micro-batches."', '" "', ": 'setting' is empty"),
    ("figures=figures", "figures=lambda: []", ": gives no figure"),
    ("tolerance=0.01", "tolerance=-0.1", ", figure 'idle share': tolerance -0.1 is below zero"),
    ("tolerance=0.01", "tolerance=float('nan')", ", figure 'idle share': tolerance nan"),
    ("ours=2.8", "ours=float('nan')", ", figure 'speed': 'ours' is nan, not a number"),
    ("claimed=3.5", "claimed=float('inf')", ", figure 'speed': 'claimed' is inf"),
    ('kind="identity")', 'kind="guess")', ", figure 'idle share': kind 'guess'"),
    ('what="speed"', 'what="idle share"', ": figure 'idle share' is given twice"),
    ('value="32", source="section 2"', 'value="32", source=""', ": input 'micro-batches' has no source"),
    ("DERIVATION =", "OTHER =", ": has no DERIVATION"),
    ("    share =", "    share = = ", " line 8: cannot be loaded: SyntaxError: "),
    ("STAGES, MICRO_BATCHES = 8, 32", "STAGES = 1 / 0", ": cannot be loaded: ZeroDivisionError: division by zero"),
    ("STAGES, MICRO", "import no_such_module\nSTAGES, MICRO", ": cannot be loaded: ModuleNotFoundError: No module"),
    ("STAGES, MICRO", "STAGES, = 1\nMICRO", ": cannot be loaded: TypeError: "),
    ("    share =", "    {}['x']\n    share =", ": its figures cannot be computed: KeyError: 'x'"),
    ("figures=figures", "figures=lambda: None", ": its figures cannot be computed: TypeError: "),
    ("figures=figures", "figures=None", ": its figures cannot be computed: TypeError: "),
    ("figures=figures", "figures=lambda: [1, 2]", ": gives 1, which is no Figure"),
    ("figures=figures", "figures=lambda: 'ab'", ": gives 'a', which is no Figure"),
    ('"8 stages, 32 micro-batches."', "None", ": 'setting' is None, not a text"),
    ('("stages are equal",)', "5", ": 'assumptions' is 5, not several"),
    ("techniques=()", "techniques=(5,)", ": one of 'techniques' is 5, not a text"),
    ('(Input(name="micro-batches", value="32", source="section 2"),)', "(3,)", ": 3 in 'inputs' is no Input"),
    ("ours=2.8", "ours='2.8'", ", figure 'speed': 'ours' is '2.8', not a number"),
    ("claimed=3.5", "claimed=None", ", figure 'speed': 'claimed' is None, not a number"),
    (
        "    share =",
        "    import gnomon\n    gnomon.fit('llama-3.1-8b', on='H1000')\n    share =",
        ", --on: unknown chip",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_what_is_wrong(old: str, new: str, message: str, own: Shelved) -> None:
    own.gpipe(old, new)
    with pytest.raises(InputError) as caught:
        run("gpipe")
    assert f"papers/derived/gpipe.py{message}" in str(caught.value)


def test_a_damaged_one_is_named_by_the_program(own: Shelved, capsys: pytest.CaptureFixture[str]) -> None:
    own.gpipe("    share =", "    share = = ")
    assert program(["papers", "show", "gpipe"]) == 2
    assert "papers/derived/gpipe.py line 8: cannot be loaded" in capsys.readouterr().err


def test_a_paper_that_was_run_and_is_not_computed(own: Shelved) -> None:
    own.execute("cuda")
    assert show("cuda").to_dict()["lab"]["device"] == "NVIDIA H200"
    with pytest.raises(InputError, match="'cuda' is not re-derived"):
        run("cuda")
