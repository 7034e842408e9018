"""The shelves: what ships is whole, what is wrong is refused by name, and files beside them give the status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.papers.shelved import Shelved

from gnomon.errors import InputError, UnknownNameError
from gnomon.load.files import parse_yaml
from gnomon.papers import shelf
from gnomon.papers.base import STATUSES

ENTRY = """
- slug: a-paper
  title: "A Paper"
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


def test_every_entry_that_ships() -> None:
    entries = shelf.papers()
    assert len(entries) >= 184
    assert len({entry.slug for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.status in STATUSES
        assert entry.why or entry.status not in ("modelled", "listed"), entry.slug
    assert [entry.slug for entry in entries if not entry.date] == ["dynamical-evolution-of-massless-particles-in-sta"]
    dates = {entry.slug: entry.date for entry in entries}
    assert (dates["deep-optimizer-states"], dates["fenghuang"]) == ("2024-10-25", "2025-11")


@pytest.mark.parametrize("file", sorted(shelf.SHELVES.glob("*.yaml")), ids=lambda file: file.stem)
def test_shelves_are_plain_and_in_order(file: Path) -> None:
    """No key twice, no alias, and slugs in order."""
    entries = parse_yaml("papers:\n" + file.read_text(encoding="utf-8"), file.name)["papers"]
    slugs = [entry["slug"] for entry in entries]
    assert slugs == sorted(slugs)


def test_one_by_its_name() -> None:
    assert shelf.paper("Zero_Offload ").slug == "zero-offload"
    with pytest.raises(UnknownNameError, match=r"unknown paper 'zero-ofload'\. Near: zero-offload"):
        shelf.paper("zero-ofload")


def read(folder: Path, text: str) -> tuple[Any, ...]:
    (folder / "some.yaml").write_text(text)
    return shelf.read(folder)


def test_an_entry(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, ENTRY)
    assert (entry.slug, entry.shelf, entry.date, entry.topics) == (
        "a-paper",
        "some",
        "2024-10-25",
        ("training", "offload"),
    )
    assert (entry.claims[0].against, entry.claims[0].setting) == ("none", "")
    (entry,) = read(tmp_path, ENTRY.replace("  date: 2024-10-25\n", ""))
    assert entry.date == ""
    (entry,) = read(tmp_path, ENTRY.replace("2024-10-25", "2024"))
    assert entry.date == "2024"


BROKEN = [
    ("title:", "titel:", "some.yaml, a-paper: unknown field 'titel'. Near: title"),
    ("  why: Not built.\n", "", "some.yaml, a-paper: lacks the field 'why'"),
    ("why: Not built.", "why: ''", "some.yaml, a-paper: 'why' is not a text"),
    ("offload]", "ofload]", "some.yaml, a-paper: unknown topic 'ofload'. Near: offload"),
    ("[training, offload]", "training", "some.yaml, a-paper: 'topics' is not a list of words"),
    ("status: listed", "status: done", "some.yaml, a-paper: unknown status 'done'"),
    ("status: listed", "status: predicted", "some.yaml, a-paper: status 'predicted' is not for a shelf to say"),
    ("feasibility: A", "feasibility: E", "some.yaml, a-paper: unknown feasibility 'E'"),
    ("2024-10-25", "last year", "some.yaml, a-paper: date 'last year' is not a year"),
    ("2024-10-25", "2024-13-25", "some.yaml: is not YAML: month must be in 1..12"),
    ("2024-10-25", "'2024-13-77'", "some.yaml, a-paper: date '2024-13-77' is not a year"),
    ("2024-10-25", "2024-13", "some.yaml, a-paper: date '2024-13' is not a year"),
    ("2024-10-25", "'2023-02-29'", "some.yaml, a-paper: date '2023-02-29' is not a year"),
    ("[training, offload]", "[]", "some.yaml, a-paper: has no topic"),
    ("against: none", "versus: none", "some.yaml, a-paper, claim 1: unknown field 'versus'"),
    ('value: "2x"', "value: 2", "some.yaml, a-paper, claim 1: 'value' is not a text"),
    ("what: step time, ", "", "some.yaml, a-paper, claim 1: lacks the field 'what'"),
    ("slug: a-paper", "slug: A Paper", "some.yaml, A Paper: slug 'A Paper' is not made of small letters"),
    ("- slug: a-paper", "- title: [", "some.yaml line 4: is not YAML"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_what_is_wrong(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert ENTRY.count(old) == 1
    with pytest.raises(InputError) as caught:
        read(tmp_path, ENTRY.replace(old, new))
    assert message in str(caught.value)


def test_one_slug_on_two_shelves(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(ENTRY)
    with pytest.raises(InputError, match=r"some\.yaml, a-paper: 'a-paper' is already on the shelf other\.yaml"):
        read(tmp_path, ENTRY)


def test_files_give_the_status(own: Shelved) -> None:
    before = shelf.paper("gpipe")
    assert before.status == "modelled" and before.why
    own.gpipe()
    assert (shelf.paper("gpipe").status, shelf.paper("gpipe").why) == ("identity", "")
    own.gpipe('    kind="identity",\n    setting', '    kind="predicted",\n    setting')
    assert shelf.paper("gpipe").status == "predicted"
    own.execute("gpipe")
    own.execute("cuda")
    assert {entry.slug for entry in shelf.papers() if entry.status == "executed"} == {"gpipe", "cuda"}


def test_files_of_no_paper(own: Shelved) -> None:
    own.execute("no-such-paper")
    with pytest.raises(InputError, match=r"papers/lab/no-such-paper\.json: 'no-such-paper' is on no shelf"):
        shelf.papers()
    (own.lab / "no-such-paper.json").unlink()
    own.derive("no-such-paper", "")
    with pytest.raises(InputError, match=r"papers/derived/no_such_paper\.py: 'no-such-paper' is on no shelf"):
        shelf.papers()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ok": False}, "its checks failed"),
        ({"ok": None}, "its checks failed"),
        ({"device": "cpu"}, "was run on a CPU"),
        ({"device": "CPU"}, "was run on a CPU"),
        ({"device": None}, "'device' is None, not a text"),
        ({"date": 5}, "'date' is 5, not a text"),
        ({"compared": 5}, "'compared' is no list of what was compared"),
        ({"compared": []}, "'compared' is no list of what was compared"),
        ({"slug": "gptq"}, "slug 'gptq' is not that of its file, 'cuda'"),
        ({"schema": "gnomon.lab/2"}, "schema 'gnomon.lab/2' is not gnomon.lab/1"),
        ({"comparable": None}, "'comparable' does not say which claim, whether and why"),
        ({"comparable": {"claim": "3x", "comparable": False, "why": " "}}, "'comparable' does not say"),
        ({"comparable": {"claim": "3x", "comparable": "no", "why": "another"}}, "'comparable' does not say"),
    ],
)
def test_a_run_that_proves_nothing(changed: dict[str, Any], message: str, own: Shelved) -> None:
    own.execute("cuda", **changed)
    with pytest.raises(InputError) as caught:
        shelf.papers()
    assert f"papers/lab/cuda.json: {message}" in str(caught.value)


ROW = {"what": "a step", "gain": 2.0, "deferred_s": 0.0, "plain": {"seconds": 4.0}, "technique": {"seconds": 2.0}}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (5, "does not say 'what' was compared and its 'gain'"),
        ({"a": 1}, "does not say 'what' was compared and its 'gain'"),
        ({"what": 1, "gain": 2.0}, "does not say 'what'"),
        ({"what": "a step", "gain": "2x"}, "'gain' is '2x', not a number above zero"),
        ({"what": "a step", "gain": -2}, "'gain' is -2, not a number above zero"),
        ({"what": "a step", "gain": 2.0}, "does not say how many seconds of work were left"),
        (ROW | {"deferred_s": -1.0}, "does not say how many seconds of work were left"),
        (ROW | {"deferred_s": 0.5}, "'gain' is that of a burst"),
        (
            ROW | {"deferred_s": 0.5, "sustained": {"seconds": 4.0, "how": "measured"}},
            "'gain' is 2, and 1 by its seconds",
        ),
        (ROW | {"gain": 3.0}, "'gain' is 3, and 2 by its seconds"),
        (ROW | {"predicted_gain": 2.0}, "'predicted_gain' does not say by whom"),
        (ROW | {"prediction": {"gain": 2.0, "kind": "prediction"}}, "'prediction' does not say 'by' whom"),
        (
            ROW | {"prediction": {"gain": 2.0, "by": "its times", "kind": "identity"}},
            "'prediction' does not say 'by' whom",
        ),
        (
            ROW | {"predicted_gain": 2.0, "prediction": {"gain": 2.0, "by": "Marlin", "kind": "other kernel"}},
            "'predicted_gain' is for a prediction of what ran alone",
        ),
    ],
)
def test_a_comparison_that_says_nothing(row: Any, message: str, own: Shelved) -> None:
    own.execute("cuda", compared=[{"what": "fine", "gain": None, "deferred_s": 0}, row])
    with pytest.raises(InputError) as caught:
        shelf.papers()
    assert f"papers/lab/cuda.json, compared 2: {message}" in str(caught.value)
