"""Facts of the papers that ship: spelled as the catalog spells them, dated as their arXiv numbers are, and numbers that
can be read. Nothing here needs the history of the repository."""

from __future__ import annotations

import re

import pytest
from tests.papers.own_index import FIGURES, REPRODUCTION, OwnIndex, sealed

from gnomon.catalog import chip_spellings
from gnomon.catalog.book import squash
from gnomon.errors import InputError
from gnomon.papers.answers import listed, show
from gnomon.papers.base import STATES, Expected, seal
from gnomon.papers.claims import UNITS, quantities, unit_of
from gnomon.papers.clusters import clusters, clusters_of, mechanisms
from gnomon.papers.entries import paper, papers, reproduced
from gnomon.papers.source import read, reproduction
from gnomon.techniques import techniques

OUT_OF_REACH = "D"
"""The feasibility of papers that need nothing of Gnomon that a cluster could name."""
SLIPS = {"closing-the-performance-gap-with-modern-c": 1, "cudaforge": 1, "galvatron": 1, "packet-spraying": 1}
"""Papers whose arXiv number is of a later month than their listing, by months."""


def months(date: str) -> int:
    return 12 * int(date[:4]) + int(date[5:7])


def test_hardware_is_spelled_as_the_catalog_spells_it() -> None:
    known = chip_spellings()
    squashed = {squash(name) for name in known}
    for entry in papers():
        assert set(entry.hardware) <= set(known), entry.slug
        assert not {squash(name) for name in entry.other_hardware} & squashed, entry.slug
        assert len(set(entry.used)) == len(entry.used), entry.slug


def test_everybody_is_named_and_can_be_found() -> None:
    for entry in papers():
        assert entry.authors and entry.pages, entry.slug
        assert len(set(entry.authors)) == len(entry.authors), entry.slug
        assert all(name == " ".join(name.split()) and len(name.split()) > 1 for name in entry.authors), entry.slug
    numbers = [entry.arxiv for entry in papers() if entry.arxiv]
    assert len(set(numbers)) == len(numbers) >= 184


def test_dates_agree_with_arxiv_numbers_but_for_recalled_ones() -> None:
    """A date to the month is that of the number; one to the day comes from a listing, at most a month before it."""
    for entry in papers():
        if not entry.arxiv or {"date", "arxiv"} & set(entry.recalled):
            continue
        number = months(f"20{entry.arxiv[:2]}-{entry.arxiv[2:4]}")
        assert number - months(entry.date) == SLIPS.get(entry.slug, 0), entry.slug
        assert len(entry.date) == 10 or entry.slug not in SLIPS
    assert {entry.slug for entry in papers() if "date" in entry.recalled} >= {
        "deepspeed-inference",
        "gaudi-vs-a100",
        "pipo",
    }


def test_every_claim_that_has_a_number_can_be_read() -> None:
    for entry in papers():
        for claim in entry.claims:
            found = quantities(claim.value)
            digits = re.search(r"(?<![\w-])\d", claim.value)
            assert found or not digits or "GPT" in claim.value, claim.value
            assert all(unit in UNITS or not unit for _, unit in found), claim.value


def test_every_expected_figure_has_a_known_unit() -> None:
    for slug in reproduced():
        assert all(unit_of(one.unit) is not None for one in reproduction(slug).expected), slug


def test_papers_that_could_be_computed_say_what_they_need() -> None:
    for entry in papers():
        assert bool(entry.mechanisms) == (entry.feasibility != OUT_OF_REACH or entry.slug in reproduced()), entry.slug
        assert set(entry.mechanisms) <= set(mechanisms()), entry.slug
    own = {name: [entry.slug for entry in papers() if clusters_of(entry)[:1] == (name,)] for name in clusters()}
    assert len(own) >= 15 and all(len(found) >= 5 for found in own.values())
    assert sum(map(len, own.values())) >= 144


def test_mechanisms_say_how_much_of_them_is_built() -> None:
    used = {name for entry in papers() for name in entry.mechanisms}
    assert used == set(mechanisms()), "a mechanism that no paper needs"
    for one in mechanisms().values():
        assert one.state in STATES and one.what and one.note, one.name
        assert not one.what.endswith("."), one.name
    named = {name for one in mechanisms().values() for name in re.findall(r"`([a-z0-9-]+)`", one.note)}
    assert {name for name in named if "-" in name and not name.startswith("--")} <= set(techniques())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2.5x faster", [(2.5, "x")]),
        ("12.4% to 17.5% less", [(12.4, "%"), (17.5, "%")]),
        ("19.2%, 16.8% and 11.4% faster", [(19.2, "%"), (16.8, "%"), (11.4, "%")]),
        ("over 25 petaflops, 40% of peak", [(25, "PFLOP/s"), (40, "%")]),
        ("29.4 GKey/s", [(29.4e9, "keys/s")]),
        ("over 35,000 GPU-hours, over $100K", [(35_000, "GPU-hours"), (100e3, "USD")]),
        ("24 billion parameters in under a week on eight GPU nodes", [(24e9, "parameters")]),
        ("26.15 against 25.91", [(26.15, ""), (25.91, "")]),
        ("4 RTX 3090 (24 GB) or 8 RTX 2080 Ti (11 GB)", [(4, "GPUs"), (24, "GB"), (8, "GPUs"), (11, "GB")]),
        ("up to 1,632x on GPT-3 and Llama-2", [(1632, "x")]),
        ("more than doubled", []),
    ],
)
def test_numbers_of_a_claim(text: str, found: list[tuple[float, str]]) -> None:
    assert list(quantities(text)) == [(pytest.approx(value), unit) for value, unit in found]


@pytest.mark.parametrize("text", ["3 furlongs", "2.5x faster in 3 parsecs", "7 dollars"])
def test_a_number_of_an_unknown_unit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a known unit"):
        quantities(text)


def test_the_seal_is_that_of_what_is_claimed_and_tolerated() -> None:
    one = Expected(what="step", claimed=2, unit="s")
    other = Expected(what="rate", claimed=3.5, unit="x", tolerance=0.2, claim=1)
    same = Expected(what="another name", claimed=2.0, unit="s", note="why it misses")
    assert seal([one, other]) == seal([other, same]) != seal([one])
    for changed in ({"claimed": 2.1}, {"tolerance": 0.3}, {"unit": "ms"}, {"kind": "identity"}, {"claim": 2}):
        assert seal([Expected(**({"what": "step", "claimed": 2, "unit": "s"} | changed))]) != seal([one])


def test_expected_figures_come_before_ours(own: OwnIndex) -> None:
    """They can stand alone, are shown so, and cannot be changed without a reason afterwards."""
    own.gpipe()
    path = own.folder / "gpipe" / "figures.py"
    path.unlink()
    text = (own.folder / "gpipe" / "paper.yaml").read_text()
    own.write("gpipe", "paper.yaml", f"{text}status: listed\nwhy: Not computed yet.\n")
    own.build()
    assert paper("gpipe").status == "listed" and "gpipe" not in reproduced()
    assert [one["what"] for one in show("gpipe").expected] == ["idle share", "speed"]
    own.write("gpipe", "paper.yaml", text.replace("claimed: 3.5", "claimed: 3.0"))
    path.write_text(FIGURES)
    with pytest.raises(InputError, match=r"field reproduction.expected: the seal is .*, that of these figures is"):
        own.build()
    changed = REPRODUCTION.replace("claimed: 3.5", "claimed: 3.0")
    amended = f'\n  amended: [{{seal: "{sealed(changed)}", why: the table was misread}}]\n  notes:'
    own.write("gpipe", "paper.yaml", text.replace("claimed: 3.5", "claimed: 3.0").replace("\n  notes:", amended))
    own.build()
    assert show("gpipe").result.amended[0]["why"] == "the table was misread"


@pytest.mark.parametrize("left", ["", '\n  sealed: ""', "\n  sealed:"])
def test_a_paper_that_ships_without_a_seal_is_refused(own: OwnIndex, left: str) -> None:
    own.gpipe()
    text = (own.folder / "gpipe" / "paper.yaml").read_text()
    own.write("gpipe", "paper.yaml", re.sub(r"\n *sealed: .*", left, text))
    with pytest.raises(
        InputError, match=rf'field reproduction.sealed: is missing. Write `sealed: "{sealed(REPRODUCTION)}"'
    ):
        own.build()


def test_rows_of_papers_have_their_facts() -> None:
    row = next(one for one in listed().papers if one["slug"] == "moe-inference-bench")
    assert row["ids"]["doi"] == "10.1145/3731599.3767706"
    assert row["links"][:2] == ("https://arxiv.org/abs/" + row["ids"]["arxiv"], f"https://doi.org/{row['ids']['doi']}")
    assert row["repository"] == "" and row["folder"] == "" and read("moe-inference-bench")[0].doi


@pytest.mark.parametrize(
    "given", ["2101.06840", "arXiv:2101.06840v2", "https://arxiv.org/abs/2101.06840", "zero_offload"]
)
def test_a_paper_is_named_by_its_number_too(given: str) -> None:
    assert show(given).slug == "zero-offload"


def test_a_number_that_no_paper_has_is_said() -> None:
    with pytest.raises(InputError, match=r"SLUG: no paper of the index has the arXiv number 2399\.00001\. .*search"):
        show("2399.00001")
