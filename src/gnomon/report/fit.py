"""The text of `gnomon fit`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from gnomon.report.networks import network_step
from gnomon.report.text import Style, chip_count, chip_word, deployed, flag, gib, next_steps, part, plural, table, words
from gnomon.units import format_bytes, format_count, format_duration

LOAD = ("--rate", 4, "--input", 1024, "--output", 256)


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = _fits(payload, style) if payload["fits"] else _does_not(payload, style)
    return "\n".join(lines)


def _head(payload: Mapping[str, Any]) -> str:
    inputs = payload["inputs"]
    chips = prod(int(inputs.get(name, 1)) for name in ("tp", "pp", "cp", "dp"))
    each, has = (" a chip", "have") if chips > 1 else ("", "has")
    weights = f"weights {gib(payload['parts']['weights'])} GiB{each} in {inputs['dtype']}"
    place = f"{chips} x {chip_word(inputs['on'])}"
    return f"{weights}, {place} {has} {gib(payload['usable_bytes'])} GiB usable{each}"


def _fits(payload: Mapping[str, Any], style: Style) -> list[str]:
    parts = ", ".join(f"{name} {part(size)}" for name, size in payload["parts"].items() if size and name != "kv")
    if not payload["kv_tokens"]:
        return _passes(payload, style, parts)
    cache, context = float(payload["parts"]["kv"]), int(payload["inputs"]["context"])
    batch = int(payload["max_batch"])
    return [
        f"{style.good('fits')}: {_head(payload)}",
        f"  {gib(cache)} GiB for KV: {format_count(payload['kv_tokens'])} tokens,"
        f" {plural(batch, 'sequence')} of {format_count(context)} at once",
        f"  the longest sequence: {format_count(payload['max_context'])} tokens",
        f"  of {gib(payload['total_bytes'])} GiB: {parts}",
        *_techniques(payload),
        *_close(payload, style),
        "",
        *_next(payload, {}),
    ]


def _techniques(payload: Mapping[str, Any]) -> list[str]:
    """Figures that techniques add."""
    named = (payload.get("techniques") or {}).items()
    return [f"  {name}: {', '.join(_fact(*fact) for fact in facts.items())}" for name, facts in named]


def _fact(name: str, value: float) -> str:
    what, _, unit = name.rpartition("_")
    return f"{what} {format_duration(value)}" if unit == "s" else f"{name.replace('_', ' ')} {format_count(value)}"


def _passes(payload: Mapping[str, Any], style: Style, parts: str) -> list[str]:
    """A network without blocks of a cache: so many sequences go through it at once."""
    longest, batch = format_count(payload["inputs"]["context"]), int(payload["max_batch"])
    return [
        f"{style.good('fits')}: {_head(payload)}",
        f"  {plural(batch, 'sequence')} of {longest} tokens at once, beside nothing else",
        f"  of {gib(payload['total_bytes'])} GiB, for one: {parts}",
        "",
        *_next(payload, {}),
    ]


def _does_not(payload: Mapping[str, Any], style: Style) -> list[str]:
    lines = [f"{style.bad('does not fit')}: {_head(payload)}"]
    if payload["max_context"]:
        wanted = format_count(payload["inputs"]["context"])
        lines.append(f"  {format_count(payload['max_context'])} tokens fit into the cache, {wanted} were asked for")
    lines += _close(payload, style)
    changes = payload["changes"]
    if not changes:
        return [*lines, "  no single change makes it fit", "", *next_steps("gnomon chips")]
    rows = [
        (
            f"  {change['what']}",
            f"{gib(change['kv_bytes'])} GiB for KV: {format_count(change['kv_tokens'])} tokens",
            f"({change['note']})" if change.get("note") else "",
        )
        for change in changes
    ]
    lines += ["  the smallest changes that fit:", *table(rows, "<<<")]
    whole = next((change for change in changes if "set" not in change["flags"]), changes[0])
    return [*lines, "", *_next(payload, whole["flags"])]


def _close(payload: Mapping[str, Any], style: Style) -> list[str]:
    """Said where the engine may find it the other way."""
    if not payload.get("close"):
        return []
    margin, slack = float(payload["margin_bytes"]), float(payload["slack_bytes"])
    share = abs(margin) / float(payload["usable_bytes"])
    side = "to spare" if margin >= 0 else "short"
    room = f"{format_bytes(abs(margin))} {side}, and the reserve is known to {format_bytes(slack)}"
    text = f"within {share:.1%} of the edge: {room}"
    return [style.bad(f"  too close to call: {text}")]


def _next(payload: Mapping[str, Any], change: Mapping[str, Any]) -> list[str]:
    inputs = dict(payload["inputs"]) | {name: change[name] for name in ("on", "dtype") if name in change}
    if "on" in change:
        others = prod(int(inputs.get(name, 1)) for name in ("pp", "cp", "dp"))
        inputs["tp"] = chip_count(inputs["on"]) // others
    common = [*deployed(inputs), *flag("--set", change.get("set"))]
    if "kind" in inputs:
        return next_steps(*([words("gnomon", "fit", *common)] if change else []), network_step(inputs, common))
    predict = words("gnomon", "predict", *common, "--phase", "decode", "--batch", 32, "--context", 1024)
    if change:
        return next_steps(words("gnomon", "fit", *common), predict)
    if payload.get("techniques"):  # what a technique adds here it makes of a step, not of a load
        return next_steps(predict)
    return next_steps(predict, words("gnomon", "simulate", "serve", *common, *LOAD))
