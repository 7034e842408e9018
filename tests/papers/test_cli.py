"""`gnomon papers`: lists that can be narrowed, one opened up, and figures beside ours."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from tests.contract.asking import next_lines
from tests.contract.shapes import check, number
from tests.papers.own_index import OwnIndex

from gnomon.cli.run import run
from gnomon.papers.clusters import mechanism
from gnomon.papers.entries import papers, reproduced
from gnomon.report.papers import headline_words

Out = pytest.CaptureFixture[str]


def answer(capsys: Out, *words: str) -> Any:
    assert run(["papers", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def text(capsys: Out, *words: str) -> str:
    assert run(["papers", *words]) == 0
    return capsys.readouterr().out


def slugs(found: Any) -> set[str]:
    return {paper["slug"] for paper in found["papers"]}


@pytest.mark.heavy
def test_the_list(capsys: Out) -> None:
    lines = text(capsys).splitlines()
    assert max(map(len, lines)) <= 110
    entries = papers()
    assert f"moe ({sum(entry.shelf == 'moe' for entry in entries)})" in lines
    assert [line.split()[0] for line in lines if line.startswith("  ") and "   " in line.strip()] == [
        entry.slug for entry in entries
    ]
    assert any(f"{len(entries)} papers: " in line for line in lines)


def test_narrowed(capsys: Out) -> None:
    everything = answer(capsys)["papers"]
    found = answer(capsys, "--topic", "Offload", "--hardware", "A100-SXM-80GB", "--since", "2024")["papers"]
    expected = [
        paper["slug"]
        for paper in everything
        if "offload" in paper["topics"] and "A100" in paper["hardware"] and paper["date"] >= "2024"
    ]
    assert [paper["slug"] for paper in found] == expected and len(expected) > 3
    assert {"infinite-llm"} <= slugs(answer(capsys, "--shelf", "serving-system"))
    assert all(paper["status"] == "modelled" for paper in answer(capsys, "--status", "modelled")["papers"])
    assert slugs(answer(capsys, "--hardware", "rtx a6000")) == slugs(answer(capsys, "--hardware", "A6000")) != set()
    assert "no match" in text(capsys, "--topic", "moe", "--since", "2100")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topic", "ofload"], "--topic: unknown topic 'ofload'. Near: offload"),
        (["--status", "predict"], "--status: unknown status 'predict'. Near: predicted"),
        (["--shelf", "serving"], "--shelf: unknown shelf 'serving'. Near: serving-system"),
        (["--hardware", "H1000"], "--hardware: unknown hardware 'H1000'. Near: H100"),
        (["--hardware", "-"], "--hardware: unknown hardware '-'"),
        (["--topic", " "], "--topic: is empty"),
        (["show", "splitwize"], "unknown paper 'splitwize'. Near: splitwise"),
        (["run", "splitwize"], "unknown paper 'splitwize'. Near: splitwise"),
        (["run", "cuda"], "'cuda' is not reproduced"),
    ],
)
def test_what_is_wrong(words: list[str], message: str, capsys: Out) -> None:
    assert run(["papers", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_found_by_words(capsys: Out) -> None:
    found = answer(capsys, "search", "offload", "optimizer", "--limit", "3")
    assert slugs(found) == {"deep-optimizer-states", "zero-offload", "zero-infinity"}
    assert found == answer(capsys, "search", "offload optimizer", "--limit", "3")
    assert text(capsys, "search", "offload optimizer").startswith("  deep-optimizer-states")
    assert "no match" in text(capsys, "search", "xqzvw")


def test_one_that_is_not_re_derived(capsys: Out) -> None:
    shown = " ".join(text(capsys, "show", "cuda").split())
    for part in ("CUDA: Convolution-based Unlearnable Datasets (2023", "status listed", "why not", "out of reach"):
        assert part in shown
    assert "next:" not in shown


CLAIM = {"what": str, "claimed": number, "ours": number, "error": number, "tolerance": number, "within": bool}


def test_one_that_is(capsys: Out, own: OwnIndex) -> None:
    own.gpipe()
    shown = text(capsys, "show", "gpipe")
    for part in (
        "it claims", "reproduced", "idle share", "0.179", "-0.3%", "3.5x", "2.8x", "-20.0%", "outside", "a reason",
        "stages are equal", "micro-batches: 32 (section 2)", "next: gnomon papers run gpipe",
    ):  # fmt: skip
        assert part in shown
    assert "why not" not in shown and "gnomon try" not in shown
    own.gpipe("techniques: []", "missing: One claim, and why")
    assert "left out" in text(capsys, "show", "gpipe") and "One claim, and why" in text(capsys, "show", "gpipe")
    own.gpipe("techniques: []", "techniques: [pipeline]")
    assert "next: gnomon try gpipe --model" in text(capsys, "show", "gpipe")


def test_run(capsys: Out, own: OwnIndex) -> None:
    assert "no paper is reproduced yet" in text(capsys, "run", "--all")
    own.gpipe()
    found = answer(capsys, "run", "gpipe")
    check(found, {"schema": str, "results": [{"slug": str, "kind": str, "claims": [CLAIM], "setting": str}]})
    assert found == answer(capsys, "run", "--all")
    assert [claim["within"] for claim in found["results"][0]["claims"]] == [True, False]
    told = text(capsys, "run", "--all")
    assert told.startswith("gpipe: GPipe")
    assert "no claim checked, 2 left out; median error 20.0%; beside them 1 identity" in told
    assert found["headline"] == {"checked": 0, "within": 0, "left_out": 2} and found["skipped"] == []
    assert found["median_error"] == pytest.approx(0.2)
    assert "gnomon papers run gpipe" in text(capsys, "--status", "identity")


def test_one_that_was_run(capsys: Out, own: OwnIndex) -> None:
    own.execute("cuda")
    shown = text(capsys, "show", "cuda")
    assert "run on NVIDIA H200, 2026-11-15\n  one step: 2.5x the plain version's speed" in shown
    assert "the paper's claim, 3 times faster, is not comparable with this: another GPU" in shown
    assert slugs(answer(capsys, "--status", "executed")) == {"cuda"} and "why not" not in shown
    row = {"what": "one step", "gain": 2.5, "deferred_s": 0.0}
    told = {"gain": 2.0, "by": "its profile", "kind": "prediction"}
    own.execute("cuda", compared=[row | {"predicted_gain": 2.0, "prediction": told}])
    shown = text(capsys, "show", "cuda")
    assert "one step: 2.5x the plain version's speed; predicted 2x" in shown and "predicted by its profile" in shown
    own.execute("cuda", compared=[row | {"prediction": told | {"kind": "other kernel"}}])
    assert "predicted 2x, other kernel" in text(capsys, "show", "cuda")


def test_what_notes_say_alike_is_told_once(capsys: Out, own: OwnIndex) -> None:
    own.gpipe("tolerance: 0.01, kind: identity", "tolerance: 0.01, kind: identity, note: reason")
    shown = text(capsys, "run", "gpipe")
    assert shown.count("a reason") == 1 and shown.count("[1]") == 3


def test_status_says_what_holds_of_what_was_checked(capsys: Out, own: OwnIndex) -> None:
    own.gpipe()
    shown = " ".join(text(capsys, "show", "gpipe").split())
    assert "status identity: reproduced by arithmetic on its own numbers; no claim checked, 2 left out" in shown
    assert "median error 20.0% over 1 figure; 1 identity" in shown and "come out" not in shown
    own.gpipe("unit: x, note: reason", "unit: x, note: reason, claim: 2")
    found = answer(capsys, "show", "gpipe")
    assert found["headline"] == found["paper"]["headline"] == {"checked": 1, "within": 0, "left_out": 1}
    assert found["holds"] == {"figures": 1, "within": 0, "identities": 1, "contradictions": 0}
    assert (found["slug"], found["status"]) == ("gpipe", "identity")
    assert found["median_error"] == found["paper"]["median_error"] == pytest.approx(0.2)
    assert "0 of 1 checked claim holds, 1 left out" in " ".join(text(capsys, "show", "gpipe").split())
    own.build({"gpipe": {name: found[name] for name in ("holds", "headline", "median_error")}})
    assert "identity 0/1 (1 out)" in text(capsys, "--status", "identity")
    entry = answer(capsys, "--status", "identity")["papers"][0]
    assert entry["holds"] == found["holds"] and entry["headline"] == found["headline"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((0, 0, 0), "it claims nothing that could be checked"),
        ((0, 0, 2), "no claim checked, 2 left out"),
        ((1, 0, 0), "0 of 1 checked claim holds"),
        ((1, 1, 1), "1 of 1 checked claim holds, 1 left out"),
        ((3, 2, 1), "2 of 3 checked claims hold, 1 left out"),
    ],
)
def test_headlines_in_words(found: tuple[int, int, int], words: str) -> None:
    assert headline_words(dict(zip(("checked", "within", "left_out"), found, strict=True))) == words


def test_every_computed_paper_says_what_holds(capsys: Out) -> None:
    """In the list, by itself and in JSON: claims checked, within and left out, and the median error."""
    for entry in answer(capsys)["papers"]:
        found = entry["headline"]
        assert (entry["holds"] is not None) == (entry["slug"] in reproduced())
        assert found["checked"] + found["left_out"] == len(entry["claims"])
        assert found["within"] <= found["checked"]
        if entry["holds"]:
            assert (entry["median_error"] is not None) == bool(entry["holds"]["figures"])
            counts = f"{entry['status']} {found['within']}/{found['checked']}"
            assert counts in text(capsys, "--shelf", entry["shelf"])


@pytest.mark.heavy
def test_facts_of_a_paper(capsys: Out) -> None:
    shown = answer(capsys, "show", "gptq")
    assert shown["authors"] == ["Elias Frantar", "Saleh Ashkboos", "Torsten Hoefler", "Dan Alistarh"]
    assert shown["ids"] == {"arxiv": "2210.17323", "doi": ""}
    assert shown["links"] == ["https://arxiv.org/abs/2210.17323", "https://github.com/IST-DASLab/gptq"]
    assert shown["clusters"] == ["narrow-and-sparse-gemms"] and shown["recalled"] == []
    said = " ".join(text(capsys, "show", "pipo").split())
    assert "(2025-03, recalled)" in said and "; no repository known" in said
    assert "authors Avinash Maurya" in " ".join(text(capsys, "show", "deep-optimizer-states").split())
    assert "Bogdan Nicolae (recalled)" in " ".join(text(capsys, "show", "deep-optimizer-states").split())


@pytest.mark.heavy
def test_what_a_listed_paper_needs(capsys: Out) -> None:
    for entry in (one for one in papers() if one.status == "listed" and one.mechanisms):
        shown = answer(capsys, "show", entry.slug)
        assert [(one["name"], one["state"]) for one in shown["needs"]] == [
            (name, mechanism(name).state) for name in entry.mechanisms
        ]
        assert {one["cluster"] for one in shown["needs"]} <= set(shown["clusters"])
        said = " ".join(text(capsys, "show", entry.slug).split())
        assert all(f"{one['name']}, " in said for one in shown["needs"]) and " needs " in said
        near = shown["closest"]
        assert ("no technique comes close" in said) == (near is None and not shown["techniques"])
        assert ("closest " in said) == (not shown["techniques"])
        if shown["techniques"]:
            assert f"techniques {', '.join(shown['techniques'])} " in said
            assert f"next: gnomon {shown['compared_by']} " in said
        elif near:
            assert f"closest {near['technique']}" in said and f"next: gnomon {near['compared_by']} " in said
    none = answer(capsys, "show", "cuda")
    assert none["needs"] == [] and none["closest"] is None and none["clusters"] == []


@pytest.mark.heavy
@pytest.mark.battery(10)
@pytest.mark.parametrize("slug", [one.slug for one in papers() if one.slug not in reproduced()])
def test_what_a_paper_proposes_runs(slug: str, capsys: Out) -> None:
    for line in next_lines(text(capsys, "show", slug)):
        assert run(shlex.split(line)) == 0, line


def test_narrowed_to_a_cluster(capsys: Out) -> None:
    found = answer(capsys, "--cluster", "offload-tiers")["papers"]
    assert {"zero-offload", "zo2", "fuyou"} <= {paper["slug"] for paper in found}
    assert all("offload-tiers" in paper["clusters"] for paper in found)
    assert run(["papers", "--cluster", "offload"]) == 2
    assert "unknown cluster 'offload'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["RTX 2080 Ti", "RTX-2080Ti", "rtx2080ti", "2080Ti"])
def test_every_spelling_of_a_chip_finds_its_papers(name: str, capsys: Out) -> None:
    assert (
        slugs(answer(capsys, "--hardware", name)) == slugs(answer(capsys, "--hardware", "RTX-2080Ti")) >= {"glm-130b"}
    )
