"""The page says once what all rows share, leaves out what nobody has, and keeps recalled tables apart."""

from __future__ import annotations

from typing import Any

from gnomon.report.accuracy import JOB, page


def row(model: str, **changes: Any) -> dict[str, Any]:
    job = dict.fromkeys(JOB, 1) | {"model": model, "sequence_parallel": True, "chip": "A100"}
    figures = {"measured": 2.0, "predicted": 2.1, "low": 1.9, "high": 2.3, "inside": True, "error": 0.05}
    return {"job": job, "what": "step time", "unit": "s"} | figures | changes


def table(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    summary = {"what": "step time", "rows": 2, "mean_error": 0.05, "bias": -0.01, "worst": -0.06}
    summary |= {"banded": 2, "inside": 1}
    about = {"authors": "A et al.", "title": "T", "year": 2021, "table": "Table 1, some", "address": "https://a.b"}
    texts = {"read_from": "a file", "counted": "", "recalled": [], "peers": [], "notes": []}
    return about | texts | {"rows": list(rows), "summaries": [summary]} | changes


def shown(*published: dict[str, Any], **changes: Any) -> str:
    payload = {"title": "Title", "published": list(published), "measured": [], "profiles": ["A100 today"]}
    return page(payload | changes)


def test_what_rows_share_is_said_once() -> None:
    text = shown(table(row("one"), row("two")))
    assert "All rows: chip A100, chips 1," in text
    assert "sequence parallel yes" in text
    assert "| model | step time, s | predicted |       band | error | in band |" in text
    assert "| two   |            2 |       2.1 | 1.9 to 2.3 | +5.0% |     yes |" in text


def test_columns_that_nobody_has_are_left_out() -> None:
    nothing = {"low": None, "high": None, "inside": None}
    memory = {"what": "states", "unit": "bytes", "measured": 2.0**30, "predicted": 2.0**31}
    text = shown(table(row("one", **memory, **nothing), row("two", **memory, **nothing)))
    assert "| model | states, GiB | predicted | error |" in text
    assert "| one   |         1.0 |       2.0 | +5.0% |" in text
    assert "| TFLOP/s | step time, s |" in shown(table(row("one", tflops=137.0), row("two", tflops=138.0)))


def test_the_overview_leads() -> None:
    peer = {"name": "Other", "mean_error": 0.103, "note": "as they say"}
    text = shown(table(row("one"), peers=[peer]))
    line = next(line for line in text.splitlines() if line.startswith("| A et al. 2021, Table 1 "))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "step time", "2", "5.0%", "-1.0%", "-6.0%", "1 of 2", "Other 10.3%",
    ]  # fmt: skip
    assert "Other on A et al. 2021, Table 1: as they say." in text
    assert text.index(line) < text.index("## What was fitted on what") < text.index("## Published")


def test_recalled_tables_stand_apart() -> None:
    text = shown(table(row("one"), recalled=["schedule"], authors="Guess"), table(row("two")))
    apart = text.index("## Published, with columns recalled")
    assert text.index("### A et al.") < apart < text.index("### Guess")
    assert "Recalled, not read: schedule." in text[apart:]
    assert "recalled" not in shown(table(row("two")))


def test_our_own_measurements() -> None:
    own = {"name": "h200", "conditions": {"device": "H200", "date": "today", "torch": "2.11"}}
    text = shown(measured=[own | {"rows": [row("one")], "summaries": []}])
    assert "### H200, today\n\nWhole steps of `gnomon verify`, with torch 2.11:" in text
    assert "is not at hand here" not in text
    assert "is not at hand here" in shown()
