"""Every kind of answer shows itself: in a line, as text, in a notebook and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import Any

import pytest
from tests.report import answers, kinds
from tests.report.pages import Read

from gnomon.report import REPORTS, render
from gnomon.report.html import PAGES, document, fragment
from gnomon.report.html.svg import Bar, Point, bars, scatter, stacked, ticks
from gnomon.report.text import legible
from gnomon.spec import Goal

HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><!--"
NAMED = {
    "schema",
    "router",
    "work",
    "unit",
    "kind",
    "phase",
    "binding",
    "level",
    "of",
    "part",
    "limit_s",
    "recompute",
    "status",
    "targets",
}
"""Fields whose texts are one of a few words, which no user chooses."""


def test_no_kind_of_answer_is_left_out() -> None:
    assert kinds.answering() == set(kinds.MADE)


@pytest.mark.parametrize("case", kinds.CASES, ids=" ".join)
def test_an_answer_shows_itself(case: tuple[str, str]) -> None:
    answer = kinds.made(*case)
    line = repr(answer)
    assert line.startswith(f"{case[0]}(") and line.endswith(")")
    assert len(line) < 200 and "\n" not in line
    assert str(answer) == render(answer)
    page, shown = answer.to_html(command="gnomon ask"), answer._repr_html_()
    assert page == answer.to_html(command="gnomon ask")
    read, piece = Read(page), Read(shown)
    assert read.problems() == [] and piece.problems() == []
    assert page.startswith("<!doctype html>") and piece.scripts == []
    assert read.answer == json.loads(json.dumps(answer.to_dict()))
    assert "gnomon ask" in read.text
    assert {tag for tag, _ in read.tags} >= {"html", "head", "title", "body", "main", "h1"}


@pytest.mark.parametrize(
    "case", [case for case in kinds.CASES if case[0] in ("Prediction", "Explanation", "Tried")], ids=" ".join
)
def test_the_line_has_the_first_figure(case: tuple[str, str]) -> None:
    answer = kinds.made(*case)
    first = import_module(REPORTS[f"gnomon.{answer.SCHEMA}/1"]).figures(legible(answer))[0]
    assert first.value in repr(answer)


@pytest.mark.parametrize("case", kinds.CASES, ids=" ".join)
def test_headline_numbers_are_seen(case: tuple[str, str]) -> None:
    """In the notebook's piece, which has no text version beside its tables."""
    answer = kinds.made(*case)
    schema, payload = f"gnomon.{answer.SCHEMA}/1", legible(answer.to_dict())
    seen = Read(answer._repr_html_()).text
    if schema not in PAGES:
        assert " ".join(str(answer).split()) in seen
        return
    figures = import_module(REPORTS[schema]).figures(legible(answer))
    assert figures
    for figure in figures:
        assert " ".join(figure.value.split()) in seen and figure.band in seen, figure
    assert payload["title"] in seen
    for row in payload.get("operators") or payload.get("breakdown", ()):
        assert row["op"] in seen
    for score in payload.get("pareto", ()):
        assert score["label"] in seen
    for one in payload.get("not_modelled", ()):
        assert one["option"] in seen and one["why"] in seen
    for name in payload.get("inputs", {}):
        assert name in seen


def hostile(value: Any, name: str = "") -> Any:
    """The same with markup in every text that a user, a file or a model could have put there."""
    if isinstance(value, str):
        return value if name in NAMED or isinstance(value, StrEnum) else value + HOSTILE
    if isinstance(value, Mapping):
        keyed = name in ("rejected", "conditions", "left_out")
        return {(key + HOSTILE if keyed else key): hostile(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(hostile(item, name) for item in value)
    if not is_dataclass(value) or isinstance(value, (type, Goal)):
        return value
    hidden = getattr(value, "HIDDEN", ())
    names = [each.name for each in fields(value) if each.name not in hidden]
    return replace(value, **{each: hostile(getattr(value, each), each) for each in names})


@pytest.mark.parametrize("case", [case for case in kinds.CASES if case[0] != "Accuracy"], ids=" ".join)
def test_markup_in_names_stays_text(case: tuple[str, str]) -> None:
    answer = kinds.made(*case)
    changed, clean = hostile(answer), Read(answer.to_html())
    for html in (document(changed, command=f"gnomon predict '{HOSTILE}'"), fragment(changed)):
        read = Read(html)
        assert read.problems() == []
        assert "<img src=x onerror=alert(1)>" in read.text
        assert {tag for tag, _ in read.tags} <= {tag for tag, _ in clean.tags} | {"pre", "div"}
        assert "<img" not in html.lower()
    assert read.scripts == [] and Read(document(changed)).answer == json.loads(json.dumps(changed.to_dict()))


def test_texts_that_no_file_can_hold_are_replaced() -> None:
    page = answers.prediction(title="a\udc80b\x1b[2J\0").to_html(command="gnomon \udc80")
    assert page.encode("utf-8")
    assert "\x1b" not in page and "\0" not in page


def test_parts_of_answers_have_a_line_alone() -> None:
    part = answers.operator("qkv", 0.01)
    assert (
        str(part)
        == repr(part)
        == (
            "OperatorTime(op='qkv', kind='gemm', time_s=0.01, bound='memory', count=32, flops=2e+11, bytes=4e+09, "
            "arithmetic='')"
        )
    )
    assert part._repr_html_() is None
    with pytest.raises(TypeError, match="a part of an answer"):
        part.to_html()


def test_plots_stay_inside_their_frame() -> None:
    rows = [Bar("x" * 80, 1e-3 * at, 5e-4 * at, 2e-3 * at, "12 ms") for at in range(9)]
    points = [Point("p", 3.7 * at, 0.02 * at, at == 2) for at in range(5)]
    parts = [("rank", {"weights": 3.0, "kv": 9.0, "none": 0.0}, "12"), ("empty", {}, "0")]
    drawn = [bars(rows, "t"), bars([Bar("zero", 0.0, 0.0, 0.0, "0 s")], "t"), stacked(parts, 10.0, 11.0, "m")]
    drawn += [
        stacked(parts, 0.0, 0.0, "m"),
        scatter(points, ("x", str), ("y", str)),
        scatter(points[:1], ("x", str), ("y", str)),
    ]
    for svg in drawn:
        read = Read(svg)
        assert read.problems() == []
        width, height = map(float, read.tags[0][1]["viewbox"].split()[2:])  # type: ignore[union-attr]
        for tag, at in read.tags[1:]:
            x = [float(at[name] or 0) for name in ("x", "x1", "x2", "cx") if name in at]
            y = [float(at[name] or 0) for name in ("y", "y1", "y2", "cy") if name in at]
            ends = [x[0] + float(at["width"] or 0)] if tag == "rect" else []
            assert all(0 <= one <= width for one in [*x, *ends]) and all(0 <= one <= height for one in y), (tag, at)


@pytest.mark.parametrize("most", [0.0, 1e-9, 0.03, 0.999, 1.0, 7.0, 10.0, 99.0, 4096.0, 3e12])
def test_ticks_reach_the_largest_value(most: float) -> None:
    found = ticks(most)
    assert found[0] == 0 and found[-1] >= most * (1 - 1e-8)
    assert 2 <= len(found) <= 8


def test_more_modules_than_are_shown_have_no_interval() -> None:
    """The sum of some operators has not the interval of the first of them."""
    from gnomon.report.predict import by_depth

    rows = [answers.operator(f"a.{name}.{at}", 0.01) for name in "bcdefg" for at in range(2)]
    for row in by_depth(rows):
        assert row.time_s.low == row.time_s.high == row.time_s.value == pytest.approx(0.02)
