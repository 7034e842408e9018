"""The text of `gnomon calibrate --engine`, and of results that were compared with their prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, headed, next_steps, table, words
from gnomon.spec.answers import Result


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    return (_checked if payload["schema"] == "gnomon.calibrate.check/1" else _engine)(payload, style)


def _engine(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), f"  {payload['host']}; measured with {', '.join(payload['models'])}", ""]
    for kind, figures in payload["figures"].items():
        rows = [
            (f"  {name.removesuffix('_us')}", f"{value:,.1f} us") for name, value in figures.items() if "_us" in name
        ]
        lines += [style.faint(kind), *table(rows, "<>"), ""]
    lines += [f"  predictions with {payload['engine']} now use {payload['profile']}", ""]
    step = words("gnomon", "predict", "llama-3.1-8b", "--on", "H200", "--batch", 32, "--context", 1024)
    return "\n".join([*lines, *next_steps(step)])


def _checked(payload: Mapping[str, Any], style: Style) -> str:
    names = {"ttft_s": "TTFT, median", "tpot_s": "TPOT, median", "output_tokens_per_s": "tokens/s out"}
    rows = [("", "measured", "predicted", "error")]
    for key, name in names.items():
        measured = payload["measured"][key]
        known = key in payload["predicted"]
        predicted = _figure(key, payload["predicted"][key]) if known else "-"
        rows.append((name, _figure(key, measured), predicted, f"{payload['errors'][key]:+.1%}" if known else "-"))
    lines = [style.strong(payload["title"]), f"  {payload['method']}", "", *headed(rows, "<>>>", style), ""]
    lines += [f"  stored as a check in {payload['kept']}; predictions do not use it", ""]
    return "\n".join([*lines, *next_steps(words("gnomon", "calibrate", "--engine", "vllm", "--model", "llama-3.2-1b"))])


def _figure(key: str, value: float) -> str:
    return f"{value * 1e3:,.2f} ms" if key.endswith("_s") and "tokens" not in key else f"{value:,.0f}"
