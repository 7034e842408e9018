"""The index: what ships is what its folders make, what is wrong is refused by name, and files give the status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.papers.own_index import SHIPPED, OwnIndex

from gnomon.errors import InputError, UnknownNameError
from gnomon.papers import build, entries, index
from gnomon.papers.answers import listed, search
from gnomon.papers.base import STATUSES
from gnomon.papers.executed import result_of, results_of

ENTRY = """
title: "A Paper"
shelf: some
date: 2024-10-25
topics: [training, offload]
hardware: [H100]
idea: States go to the host.
technique: The update runs on the CPU.
claims:
  - {what: step time, value: "2x", against: none}
status: listed
why: Not built.
feasibility: A
"""


def test_the_index_is_what_the_folders_make() -> None:
    stored = entries.INDEX.read_text(encoding="utf-8")
    assert stored == build.built(build.stored_counts()), "run `python -m gnomon.papers.build`"


def test_an_index_that_a_merge_left_is_made_again(own: OwnIndex) -> None:
    good = own.index.read_text()
    own.index.write_text(f"<<<<<<< HEAD\n{good}")
    entries.rows.cache_clear()
    assert build.stored_counts() == {}
    own.build()
    assert own.index.read_text() == good


def test_lists_and_searches_read_the_index_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed(), search("offload optimizer")
    for cached in (entries.rows, entries.papers, entries.reproduced):
        cached.cache_clear()
    monkeypatch.setattr(index, "__path__", [str(tmp_path / "none")])
    assert (listed(), search("offload optimizer")) == before


def test_every_entry_that_ships() -> None:
    papers = entries.papers()
    assert len(papers) >= 184
    assert len({entry.slug for entry in papers}) == len(papers)
    for entry in papers:
        assert entry.status in STATUSES
        assert entry.why or entry.status not in ("modelled", "listed"), entry.slug
    assert [entry.slug for entry in papers if not entry.date] == []
    dates = {entry.slug: entry.date for entry in papers}
    assert (dates["deep-optimizer-states"], dates["fenghuang"]) == ("2024-10-25", "2025-11")


def test_figures_are_packages_so_that_import_rules_see_them() -> None:
    for file in SHIPPED.glob("*/figures.py"):
        assert file.with_name("__init__.py").exists(), file.parent.name


def test_one_by_its_name() -> None:
    assert entries.paper("Zero_Offload ").slug == "zero-offload"
    with pytest.raises(UnknownNameError, match=r"unknown paper 'zero-ofload'\. Near: zero-offload"):
        entries.paper("zero-ofload")


def read(own: OwnIndex, text: str) -> Any:
    own.write("a-paper", "paper.yaml", text)
    own.build()
    return entries.paper("a-paper")


def test_an_entry_is_one_folder(own: OwnIndex) -> None:
    others = entries.papers()
    entry = read(own, ENTRY)
    assert (entry.slug, entry.shelf, entry.date, entry.topics) == (
        "a-paper",
        "some",
        "2024-10-25",
        ("training", "offload"),
    )
    assert (entry.claims[0].against, entry.claims[0].setting) == ("none", "")
    assert set(entries.papers()) == {*others, entry}
    assert read(own, ENTRY.replace("date: 2024-10-25\n", "")).date == ""
    assert read(own, ENTRY.replace("2024-10-25", "2024")).date == "2024"


def test_the_order_is_that_of_shelves_and_slugs(own: OwnIndex) -> None:
    """A shelf whose name goes on stands before the shorter one, as paths do."""
    shelves = {"a-paper": "kernel", "b-paper": "kernel-generation", "c-paper": "kernel"}
    for slug, name in shelves.items():
        own.write(slug, "paper.yaml", ENTRY.replace("shelf: some", f"shelf: {name}"))
    own.build()
    assert [entry.slug for entry in entries.papers() if entry.slug in shelves] == ["b-paper", "a-paper", "c-paper"]


BROKEN = [
    ("title:", "titel:", ", field title: is missing"),
    ("why: Not built.\n", "", ", field why: is missing"),
    ("why: Not built.", "why: ''", ", field why: is empty"),
    ("offload]", "ofload]", ", field topics: unknown topic 'ofload'. Near: offload"),
    ("[training, offload]", "training", ", field topics: 'training' is not a list"),
    ("[H100]", "[100]", ", field hardware[0]: 100 is not a text"),
    ("status: listed", "status: done", ", field status: unknown status 'done'"),
    ("status: listed", "status: predicted", ", field status: 'predicted' cannot be set in an entry"),
    ("feasibility: A", "feasibility: E", ", field feasibility: unknown feasibility 'E'"),
    ("feasibility: A", "feasibility: A\nslug: a", ", field slug: unknown field"),
    ("2024-10-25", "last year", ", field date: 'last year' is not a year"),
    ("2024-10-25", "2024-13-25", ": holds a value that cannot be read: month must be in 1..12"),
    ("2024-10-25", "'2024-13-77'", ", field date: '2024-13-77' is not a year"),
    ("2024-10-25", "2024-13", ", field date: '2024-13' is not a year"),
    ("2024-10-25", "'2023-02-29'", ", field date: '2023-02-29' is not a year"),
    ("[training, offload]", "[]", ", field topics: has no topic"),
    ("against: none", "versus: none", ", field claims[0].versus: unknown field"),
    ('value: "2x"', "value: 2", ", field claims[0].value: 2 is not a text"),
    ("what: step time, ", "", ", field claims[0].what: is missing"),
    ('title: "A Paper"', "title: [", " line 4: is not plain YAML"),
    ("feasibility: A", "feasibility: A\nwhy: Again.", " line 14: the key 'why' is given twice"),
    ("feasibility: A", "feasibility: A\nreproduction: {}", ", field reproduction.expected: has no figure"),
    ('value: "2x"', 'value: "2 furlongs"', ", field claims[0].value: 'furlongs' after 2 is not a known unit"),
    ("[H100]", "[h100]", ", field hardware[0]: unknown chip 'h100'. Near: H100"),
    ("[H100]", "[PIM]", ", field hardware[0]: unknown chip 'PIM'"),
    ("[H100]", "[H100]\nother_hardware: [rtx 3090]", ", field other_hardware[0]: 'rtx 3090' is in the catalog"),
    ("shelf: some", "shelf: some\nmechanisms: [tiers]", ", field mechanisms: unknown mechanism 'tiers'"),
    ("shelf: some", "shelf: some\nids: {arxiv: '2104'}", ", field ids.arxiv: '2104' is not an arXiv number"),
    ("shelf: some", "shelf: some\nids: {doi: 'doi.org/10'}", ", field ids.doi: 'doi.org/10' is not a DOI"),
    ("shelf: some", "shelf: some\nids: {isbn: '10'}", ", field ids.isbn: unknown field"),
    ("shelf: some", "shelf: some\nlinks: [here]", ", field links[0]: 'here' is not an address"),
    ("shelf: some", "shelf: some\nrepository: github.com/a/b", ", field repository: 'github.com/a/b' is not an"),
    ("shelf: some", "shelf: some\nauthors: A B", ", field authors: 'A B' is not a list"),
    ("shelf: some", "shelf: some\nrecalled: [title]", ", field recalled: unknown fact to recall 'title'"),
    ("shelf: some", "shelf: some\nrecalled: [doi]", ", field recalled: there is no 'doi' that could be recalled"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_what_is_wrong(old: str, new: str, message: str, own: OwnIndex) -> None:
    assert ENTRY.count(old) == 1
    with pytest.raises(InputError) as caught:
        read(own, ENTRY.replace(old, new))
    assert f"papers/index/a_paper/paper.yaml{message}" in str(caught.value)


EXPECTED = "what: speed, claimed: 3.5"
BROKEN_REPRODUCTION = [
    ("kind: identity\nsetting", "kind: executed\nsetting", ".kind: unknown kind 'executed'"),
    ('"8 stages, 32 micro-batches."', '" "', ".setting: is empty"),
    ('"8 stages, 32 micro-batches."', "5", ".setting: 5 is not a text"),
    ('["stages are equal"]', "5", ".assumptions: 5 is not a list"),
    ('["stages are equal"]', "[5]", ".assumptions[0]: 5 is not a text"),
    ("techniques: []", "techniques: [5]", ".techniques[0]: 5 is not a text"),
    ("techniques: []", "technique: []", ".technique: unknown field"),
    ('value: "32", source: section 2', 'value: "32", source: ""', ".inputs[0].source: is empty"),
    ('value: "32", source: section 2', 'value: "32"', ".inputs[0].source: is missing"),
    ("tolerance: 0.01", "tolerance: -0.1", ".expected[0].tolerance: -0.1 is below zero"),
    ("tolerance: 0.01", "tolerance: .nan", ".expected[0].tolerance: nan is not a number"),
    ("tolerance: 0.01", "tolerance: 0.25", ".expected[0].tolerance: an identity with tolerance 25%"),
    ("0.01, kind: identity", "0.01, kind: guess", ".expected[0].kind: unknown kind 'guess'"),
    (EXPECTED, "what: speed, claimed: .inf", ".expected[1].claimed: inf is not a number"),
    (EXPECTED, "what: speed, claimed: null", ".expected[1].claimed: is missing"),
    (EXPECTED, "what: idle share, claimed: 3.5", ".expected: 'idle share' is given twice"),
    (EXPECTED, f"{EXPECTED}, ours: 3", ".expected[1].ours: unknown field"),
    (EXPECTED, f"{EXPECTED}, claim: 3", ".expected[1].claim: 3 is more than 2"),
    ("unit: x, note", "unit: furlongs, note", ".expected[1].unit: unknown unit 'furlongs'"),
    (
        "techniques: []",
        "techniques: []\namended: [{seal: a, why: b}]",
        ".expected: the seal is a, that of these figures is",
    ),
    ("techniques: []", "techniques: []\namended: [{seal: a}]", ".amended[0].why: is missing"),
    ("note: reason", "note: other", ".expected[1].note: unknown note 'other'"),
    (", note: reason", "", ".notes: no figure has the note 'reason'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN_REPRODUCTION)
def test_what_is_wrong_with_a_reproduction(old: str, new: str, message: str, own: OwnIndex) -> None:
    with pytest.raises(InputError) as caught:
        own.gpipe(old, new)
    assert f"papers/index/gpipe/paper.yaml, field reproduction{message}" in str(caught.value)


def test_what_a_reproduction_replaces_is_refused(own: OwnIndex) -> None:
    """Its status follows, and `missing` says what is left out: nothing would read them."""
    own.gpipe()
    path = own.folder / "gpipe" / "paper.yaml"
    for line in ("status: modelled", "why: Not built."):
        with pytest.raises(InputError, match=f"field {line.partition(':')[0]}: is not for an entry whose"):
            own.write("gpipe", "paper.yaml", f"{line}\n{path.read_text()}")
            own.build()
        own.gpipe()


def test_files_give_the_status(own: OwnIndex) -> None:
    before = entries.paper("gpipe")
    assert before.status == "modelled" and before.why
    own.gpipe()
    assert (entries.paper("gpipe").status, entries.paper("gpipe").why) == ("identity", "")
    own.gpipe("kind: identity\nsetting", "kind: predicted\nsetting")
    assert entries.paper("gpipe").status == "predicted"
    own.execute("gpipe")
    own.execute("cuda")
    assert {entry.slug for entry in entries.papers() if entry.status == "executed"} == {"gpipe", "cuda"}


def test_files_without_what_they_need(own: OwnIndex) -> None:
    own.write("cuda", "figures.py", "")
    with pytest.raises(InputError, match=r"index/cuda/paper\.yaml: figures\.py needs a 'reproduction'"):
        own.build()
    (own.folder / "cuda" / "figures.py").unlink()
    own.write("no-such-paper", "lab.json", "{}")
    with pytest.raises(InputError, match=r"papers/index/no_such_paper/paper\.yaml: no such file"):
        own.build()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ok": False}, "its checks failed"),
        ({"ok": None}, "its checks failed"),
        ({"device": "cpu"}, "was run on a CPU"),
        ({"device": "CPU"}, "was run on a CPU"),
        ({"device": None}, "'device' is None, not a text"),
        ({"date": 5}, "'date' is 5, not a text"),
        ({"compared": 5}, "'compared' is not a non-empty list"),
        ({"compared": []}, "'compared' is not a non-empty list"),
        ({"slug": "gptq"}, "slug 'gptq' is not that of its folder, 'cuda'"),
        ({"schema": "gnomon.lab/2"}, "schema 'gnomon.lab/2' is not gnomon.lab/1"),
        ({"comparable": None}, "'comparable' lacks 'claim', 'comparable' or 'why'"),
        ({"comparable": {"claim": "3x", "comparable": False, "why": " "}}, "'comparable' lacks"),
        ({"comparable": {"claim": "3x", "comparable": "no", "why": "another"}}, "'comparable' lacks"),
    ],
)
def test_a_run_that_proves_nothing(changed: dict[str, Any], message: str, own: OwnIndex) -> None:
    with pytest.raises(InputError) as caught:
        own.execute("cuda", **changed)
    assert f"papers/index/cuda/lab.json: {message}" in str(caught.value)


ROW = {"what": "a step", "gain": 2.0, "deferred_s": 0.0, "plain": {"seconds": 4.0}, "technique": {"seconds": 2.0}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (5, "lacks 'what' (text) or 'gain'"),
        ({"a": 1}, "lacks 'what' (text) or 'gain'"),
        ({"what": 1, "gain": 2.0}, "lacks 'what'"),
        ({"what": "a step", "gain": "2x"}, "'gain' is '2x', not a number above zero"),
        ({"what": "a step", "gain": -2}, "'gain' is -2, not a number above zero"),
        ({"what": "a step", "gain": 2.0}, "'deferred_s', the seconds of work left, is not a number of 0 or more"),
        (ROW | {"deferred_s": -1.0}, "'deferred_s', the seconds of work left, is not a number of 0 or more"),
        (ROW | {"deferred_s": 0.5}, "'gain' is that of a burst"),
        (
            ROW | {"deferred_s": 0.5, "sustained": {"seconds": 4.0, "how": "measured"}},
            "'gain' is 2, but its seconds give 1",
        ),
        (ROW | {"gain": 3.0}, "'gain' is 3, but its seconds give 2"),
        (ROW | {"predicted_gain": 2.0}, "'predicted_gain' needs a 'prediction'"),
        (ROW | {"prediction": {"gain": 2.0, "kind": "prediction"}}, "'prediction' lacks 'by' or a 'kind'"),
        (
            ROW | {"prediction": {"gain": 2.0, "by": "its times", "kind": "identity"}},
            "'prediction' lacks 'by' or a 'kind'",
        ),
        (ROW | {"unit": "joules"}, "'unit' is 'joules'"),
        (ROW | {"unit": "bytes"}, "'gain' is of bytes, and 'amounts' lacks plain or technique"),
        (ROW | {"unit": "error", "amounts": {"plain": 3.0, "technique": 1.0}}, "'gain' is 2, but its amounts give 3"),
        (
            ROW | {"predicted_gain": 2.0, "prediction": {"gain": 2.0, "by": "Marlin", "kind": "other kernel"}},
            "'predicted_gain' is only for the kind 'prediction'",
        ),
    ],
)
def test_a_comparison_that_says_nothing(row: Any, message: str, own: OwnIndex) -> None:
    with pytest.raises(InputError) as caught:
        own.execute("cuda", compared=[{"what": "fine", "gain": None, "deferred_s": 0}, row])
    assert f"papers/index/cuda/lab.json, compared 2: {message}" in str(caught.value)


def test_the_newest_result_is_shown_and_the_others_are_kept(own: OwnIndex) -> None:
    own.execute("cuda")
    first = json.loads((own.folder / "cuda" / "lab.json").read_text())
    own.write("cuda", "lab-nvidia-h200-2026-12-01.json", json.dumps(first | {"date": "2026-12-01"}))
    found = results_of(index.folder_of("cuda"))
    assert [one["date"] for one in found] == ["2026-11-15", "2026-12-01"]
    assert result_of(index.folder_of("cuda")) == found[-1]
    own.write("cuda", "lab-nvidia-h200-2026-12-02.json", json.dumps(first | {"ok": False}))
    with pytest.raises(InputError, match=r"lab-nvidia-h200-2026-12-02\.json: its checks failed"):
        own.build()
