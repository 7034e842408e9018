"""The text of `gnomon fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, flag, gib, next_steps, table, words
from gnomon.units import format_count


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = _fits(payload, style) if payload["fits"] else _does_not(payload, style)
    return "\n".join(lines)


def _head(payload: Mapping[str, Any]) -> str:
    weights = payload["parts"].get("weights", 0.0)
    return f"weights {gib(weights)} GiB, {payload['title']} has {gib(payload['usable_bytes'])} GiB usable"


def _fits(payload: Mapping[str, Any], style: Style) -> list[str]:
    parts = ", ".join(f"{name} {gib(size)}" for name, size in payload["parts"].items() if name != "kv")
    cache = float(payload["parts"].get("kv", 0.0))
    context = payload["inputs"].get("context")
    room = f"{payload['max_batch']:,} sequences at once" + (f" at context {context:,}" if context else "")
    return [
        f"{style.good('fits')}: {_head(payload)}",
        f"  {gib(cache)} GiB for KV: {format_count(payload['kv_tokens'])} tokens, {room}",
        f"  the longest sequence: {format_count(payload['max_context'])} tokens",
        f"  of {gib(payload['total_bytes'])} GiB: {parts}",
        "",
        *_next(payload, {}),
    ]


def _does_not(payload: Mapping[str, Any], style: Style) -> list[str]:
    lines = [f"{style.bad('does not fit')}: {_head(payload)}"]
    changes = payload["changes"]
    if not changes:
        return [*lines, "  no single change makes it fit", "", *next_steps("gnomon chips")]
    rows = [
        (f"  {change['what']}", f"{gib(change['kv_bytes'])} GiB for KV: {format_count(change['kv_tokens'])} tokens")
        for change in changes
    ]
    lines += ["  the smallest changes that fit:", *table(rows, "<<")]
    return [*lines, "", *_next(payload, changes[0]["flags"])]


def _next(payload: Mapping[str, Any], change: Mapping[str, Any]) -> list[str]:
    inputs = dict(payload["inputs"]) | dict(change)
    common: list[Any] = [inputs["model"], "--on", inputs["on"]]
    common += [*flag("--dtype", inputs.get("dtype")), *flag("--tp", inputs.get("tp"), 1)]
    predict = words("gnomon", "predict", *common, "--phase", "decode", "--batch", 32, "--context", 1024)
    load = ("--rate", 4, "--input", 1024, "--output", 256)
    serve = words("gnomon", "simulate", "serve", *common, *load)
    return next_steps(predict, serve) if not change else next_steps(words("gnomon", "fit", *common), predict)
