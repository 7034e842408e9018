"""The page leads with its summary; lists say once what all rows share, and keep recalled tables apart."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.report.accuracy import brief, listed, page
from gnomon.report.accuracy.html import body, document
from gnomon.report.accuracy.plots import pictures
from gnomon.report.accuracy.training import JOB, training

FIGURES = {"rows": 2, "mean_error": 0.05, "median_error": 0.04, "p90_error": 0.06, "bias": -0.01, "worst": -0.06}
RULES = {"least_us": 20.0, "least_graph_us": 5.0, "least_rows": 500, "most_rows": 600}
BANDED = FIGURES | {"banded": 2, "inside": 1, "half_width": 0.1}

COVERED = BANDED | {"engine": "vllm 0.24", "what": "TPOT", "p_value": 0.19, "half_width_over_error": 2.5}


def row(model: str, **changes: Any) -> dict[str, Any]:
    job = dict.fromkeys(JOB, 1) | {"model": model, "sequence_parallel": True, "chip": "A100"}
    figures = {"measured": 2.0, "predicted": 2.1, "low": 1.9, "high": 2.3, "inside": True, "error": 0.05}
    return {"job": job, "what": "step time", "unit": "s"} | figures | changes


def table(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    about = {"authors": "A et al.", "title": "T", "year": 2021, "table": "Table 1, some", "address": "https://a.b"}
    texts = {"read_from": "a file", "counted": "", "recalled": [], "peers": [], "notes": []}
    return about | texts | {"rows": list(rows), "summaries": [BANDED | {"what": "step time"}]} | changes


def operator() -> dict[str, Any]:
    about = {"source": "ours", "chip": "H200", "framework": "vllm", "version": "1", "kind": "gemm", "dtype": "bf16"}
    tenth = BANDED | {"from_s": 1e-5, "to_s": 2e-5}
    return about | BANDED | {"deciles": [tenth] * 10}


def deployment() -> dict[str, Any]:
    about = {"id": "x-1", "group": "recent", "source": "x", "engine_version": "0.24", "model": "M", "chip": "H200"}
    about |= {"chips": 1, "dtype": "bf16", "clients": 4, "input": 8, "output": 9}
    figures = {"measured": 0.002, "predicted": 0.0021, "low": None, "high": None, "inside": None, "error": 0.05}
    return about | {"what": "TPOT", "unit": "s"} | figures


def payload(*published: dict[str, Any], **changes: Any) -> dict[str, Any]:
    family = BANDED | {"source": "ours", "kind": "gemm", "tables": 1, "worst_table": "H200", "worst_table_error": 0.05}
    left = [{"source": "x", "why": "no engine", "rows": 7}]
    nothing = {"rows": [], "totals": [], "summaries": [], "left_out": []}
    served = {"rows": [deployment()], "totals": [BANDED | {"group": "recent", "what": "TPOT"}], "left_out": left}
    served |= {"summaries": [BANDED | {"group": "recent", "source": "x", "chip": "H200", "what": "TPOT"}]}
    counted = {"usable": 3, "sampled": 1}
    made = {
        "title": "Title",
        "date": "2026-11-15",
        "quick": False,
        "truth": [{"file": "training.csv", "sha256": "0" * 64}],
        "operators": {"rules": RULES, "tables": [operator()], "families": [family], "left_out": []},
        "unseen_chips": [operator() | {"from": ["H100"]}],
        "steps": nothing,
        "deployments": served | counted,
        "runs": nothing | counted,
        "published": list(published),
        "measured": [],
        "coverage": [COVERED],
        "profiles": ["A100 today"],
    }
    return made | changes


def shown(*published: dict[str, Any], **changes: Any) -> str:
    return training(payload(*published, **changes))


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
    assert "are not available here" not in text
    assert "are not available here" in shown()


def test_the_summary_leads() -> None:
    peer = {"name": "Other", "mean_error": 0.103, "note": "as they say"}
    text = page(payload(table(row("one"), peers=[peer])))
    line = next(line for line in text.splitlines() if line.startswith("| operator: gemm"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "ours, 1 table", "2", "5.0%", "4.0%", "6.0%", "-1.0%", "-6.0%", "1 of 2", "10.0%",
    ]  # fmt: skip
    assert "Other on A et al. 2021, Table 1: 10.3%, as they say." in text
    assert text.index(line) < text.index("## Operators") < text.index("## Deployments")
    assert "3 rows of the table have a plan that Gnomon knows; 1 of them were compared. 7 rows were left out." in text
    assert "rows above 20 us, those timed inside CUDA graphs above 5 us, 600 of them at most" in " ".join(text.split())
    assert "Measured by us, table by table:\n\n| chip | framework |" in text
    assert "| training.csv | 0000000000000000 |" in text


def test_a_terminal_is_shown_single_tables_when_they_are_few() -> None:
    assert "| H200 | vllm      | 1       | gemm |" in brief(payload())
    many = {"rules": RULES, "tables": [operator()] * 50, "families": [], "left_out": []}
    assert "| H200 |" not in brief(payload(operators=many))


def test_lists_tell_what_was_left_out() -> None:
    found = listed(payload(table(row("one"))))
    assert list(found) == ["operators.md", "steps.md", "deployments.md", "runs.md", "training.md"]
    assert "| x      |    7 | no engine |" in found["deployments.md"]
    assert "2 ms | 2.1 ms" in " ".join(found["deployments.md"].split())
    assert "| 5% | 5% |" in " ".join(found["operators.md"].split())


def test_as_a_web_page() -> None:
    text = document("A < B", page(payload(), "."), listed(payload()))
    assert "<title>A &lt; B</title>" in text
    assert '<img src="./families.svg" alt="Error by family and chip">' in text
    assert '<td class="n">5.0%</td>' in text
    assert '<a href="#runs.md">./runs.md</a>' in text
    assert '<details id="runs.md">' in text
    assert (
        body("- a `b`\n- <https://c.d>")
        == '<ul><li>a <code>b</code></li><li><a href="https://c.d">https://c.d</a></li></ul>'
    )


@pytest.mark.heavy
def test_pictures_are_the_same_every_time() -> None:
    first, second = pictures(payload()), pictures(payload())
    assert set(first) == {"families.svg", "sizes.svg", "coverage.svg", "deployments.svg"}
    assert first == second
    assert all(picture.startswith(b"<?xml") for picture in first.values())
    assert b"gemm, H200" in first["families.svg"]
    empty = {"rules": RULES, "tables": [], "families": [], "left_out": []}
    assert set(pictures(payload(operators=empty))) == {"deployments.svg"}


def test_the_page_says_first_where_it_is_worst() -> None:
    """The largest errors of each kind, largest first, of however many there are."""
    tables = [operator() | {"chip": f"C{place}", "mean_error": place / 10} for place in range(8)]
    step = deployment() | {"detail": "decode of 8", "error": -0.4}
    steps = {"rows": [step | {"error": 0.1}, step], "totals": [], "summaries": [], "left_out": []}
    made = payload(steps=steps)
    made["operators"] = made["operators"] | {"tables": tables}
    text = page(made)
    top = text[text.index("## Where it is worst") : text.index("## Summary")]
    named = [line.split("|")[2].split()[0] for line in top.splitlines() if line.startswith("| operator, mean")]
    assert named == ["C7", "C6", "C5", "C4", "C3"]
    first, second = (line for line in top.splitlines() if line.startswith("| step, ours"))
    assert "M in bf16 on H200: decode of 8" in first
    assert ("-40.0%" in first, "+10.0%" in second) == (True, True)
    assert "recent, x, H200: TPOT" in top


def test_a_page_of_nothing_has_no_worst() -> None:
    nothing = {"rows": [], "totals": [], "summaries": [], "left_out": []}
    made = payload(deployments=nothing | {"usable": 0, "sampled": 0})
    made["operators"] = made["operators"] | {"tables": []}
    assert "## Where it is worst" not in page(made)


def test_coverage_is_a_table_of_the_page_and_of_the_terminal() -> None:
    line = "| vllm 0.24 | TPOT |    2 |       1 |   50% |   0.190 |      10.0% |         4.0% |         2.5 |"
    assert line in page(payload())
    assert line in brief(payload())
    assert "Coverage" not in page(payload(coverage=[]))
