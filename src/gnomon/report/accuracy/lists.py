"""Lists of single tables and rows, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.accuracy.grid import NOTHING, grid, left_out, scored
from gnomon.report.text import digits, gib

Payload = Mapping[str, Any]
TABLE = ("chip", "framework", "version", "kind", "dtype")
TENTHS = 10
SOURCES = {
    "inferencex": "SemiAnalysis InferenceX (Apache-2.0), exports of March and April 2026",
    "ml_energy": "ML.ENERGY leaderboard, vLLM 0.11.1",
    "llm_inference_bench": "LLM-Inference-Bench, arXiv 2411.00136",
    "splitwise": "Splitwise, ISCA 2024, perf_model.csv",
    "trtllm_docs": "perf overview of TensorRT-LLM's documentation, releases 0.19 and later",
    "cookbook-...": "sgl-project/sgl-cookbook, docs/autoregressive",
    "gpustack-...": "gpustack/gpustack, docs/performance-lab",
    "nv_aic_validation": "validation runs of NVIDIA AIConfigurator (Apache-2.0)",
}


def operators(payload: Payload) -> str:
    """Every table: its figures, its errors by size, chips not seen, and what was left out."""
    tables = payload["operators"]["tables"]
    parts = ["# Operators", "Errors on shapes that the fit had not seen.", scored(("source", *TABLE), tables)]
    parts += ["## By size", "Mean error by tenth of a table's rows, the shortest first.", _tenths(tables)]
    parts += ["## Chips not seen", _unseen(payload["unseen_chips"])]
    parts += ["## Left out", left_out(payload["operators"]["left_out"], "table")]
    return _page(parts)


def _tenths(tables: Sequence[Mapping[str, Any]]) -> str:
    heads = (*TABLE, "from, us", "to, us", *(str(tenth) for tenth in range(1, TENTHS + 1)))
    rows = [heads]
    for table in tables:
        parts = table["deciles"]
        ends = (digits(parts[0]["from_s"] * 1e6), digits(parts[-1]["to_s"] * 1e6))
        rows.append((*(str(table[name]) for name in TABLE), *ends, *(f"{part['mean_error']:.0%}" for part in parts)))
    return grid(rows, "<" * len(TABLE) + ">" * (TENTHS + 2))


def _unseen(found: Sequence[Mapping[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [(*TABLE, "fitted on", "rows", "mean error", "median", "p90", "bias", "worst")]
    for row in found:
        sizes = (f"{row[name]:.1%}" for name in ("mean_error", "median_error", "p90_error"))
        signed = (f"{row[name]:+.1%}" for name in ("bias", "worst"))
        named = (*(str(row[name]) for name in TABLE), ", ".join(row["from"]))
        rows.append((*named, f"{row['rows']:,}", *sizes, *signed))
    return grid(rows, "<" * (len(TABLE) + 1) + ">" * 6)


def steps(payload: Payload) -> str:
    found = payload["steps"]
    parts = ["# Steps, ours", _rows(found["rows"], ("file", "chip", "model", "engine", "dtype", "detail"))]
    return _page([*parts, "## Left out", left_out(found["left_out"], "file")])


def deployments(payload: Payload) -> str:
    found = payload["deployments"]
    names = ("id", "engine_version", "model", "chip", "chips", "plan", "dtype", "clients", "input", "output")
    sources = [f"- `{name}`: {said}." for name, said in SOURCES.items()]
    parts = ["# Deployments", "Sources of the measured figures:", "\n".join(sources), _rows(found["rows"], names)]
    return _page([*parts, "## Left out", left_out(found["left_out"], "source")])


def runs(payload: Payload) -> str:
    found = payload["runs"]
    names = (
        "id", "group", "source", "model", "chip", "chips", "engine", "dtype", "tp", "pp", "vp", "cp", "ep", "zero",
        "seq", "micro_batch", "global_batch", "recompute", "assumed",
    )  # fmt: skip
    parts = ["# Training runs", _rows(found["rows"], names)]
    return _page([*parts, "## Left out", left_out(found["left_out"], "source")])


def _rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    lines = [(*names, "what", "measured", "predicted", "band", "error", "in band")]
    for row in rows:
        band = NOTHING if row["low"] is None else f"{value(row, 'low')} to {value(row, 'high')}"
        held = {None: NOTHING, True: "yes", False: "no"}[row["inside"]]
        figures = (row["what"], value(row, "measured"), value(row, "predicted"), band, f"{row['error']:+.1%}", held)
        lines.append((*(str(row.get(name, "")) or NOTHING for name in names), *figures))
    return grid(lines, "<" * (len(names) + 1) + ">" * 5)


def value(row: Mapping[str, Any], name: str) -> str:
    """Seconds in the unit that suits them, bytes in GiB."""
    value = row[name]
    if row["unit"] == "s":
        return f"{digits(value * 1e3)} ms" if row["measured"] < 1 else f"{digits(value)} s"
    return f"{gib(value)} GiB" if row["unit"] == "bytes" else digits(value)


def _page(parts: Sequence[str]) -> str:
    said = "Written by `make accuracy`; see [the summary](../accuracy.md) for what the figures mean."
    return "\n\n".join([parts[0], said, *parts[1:]]) + "\n"
