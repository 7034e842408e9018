"""The text of `gnomon fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.networks import network_step
from gnomon.report.shortage import shortage_words, weights_words
from gnomon.report.text import Style, a_load, deployed, flag, gib, next_steps, part, plural, table, words
from gnomon.units import format_bytes, format_count, format_duration

BATCH, CONTEXT = 32, 1024
"""A decode step that people would ask for first, as far as there is room for it."""


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = _fits(payload, style) if payload["fits"] else _does_not(payload, style)
    return "\n".join(lines)


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """Whether it fits, the weights, and the room that is left for sequences."""
    found = [
        Headline("verdict", "fits" if payload["fits"] else "does not fit"),
        Headline("weights", f"{gib(payload['parts']['weights'])} GiB a chip"),
        Headline("usable", f"{gib(payload['usable_bytes'])} of {gib(payload['total_bytes'])} GiB a chip"),
    ]
    if payload["kv_tokens"]:
        tokens = f"{format_count(payload['kv_tokens'])} tokens"
        found.append(Headline("KV cache", f"{gib(payload['parts']['kv'])} GiB: {tokens}"))
    if payload["fits"]:
        context = format_count(payload["inputs"]["context"])
        found.append(Headline("at once", f"{plural(int(payload['max_batch']), 'sequence')} of {context} tokens"))
    if payload["max_context"]:
        found.append(Headline("longest sequence", f"{format_count(payload['max_context'])} tokens"))
    return found


def verdict_words(payload: Mapping[str, Any]) -> str:
    """Whether it fits and why, with a warning where it is too close to call."""
    word, why = ("fits", _head(payload)) if payload["fits"] else ("does not fit", _why_not(payload))
    return "; ".join([f"{word}: {why}", *(line.strip() for line in _close(payload, Style()))])


def _why_not(payload: Mapping[str, Any]) -> str:
    cause, parts, usable = payload.get("cause"), payload["parts"], payload["usable_bytes"]
    return shortage_words(cause, payload["inputs"], parts, usable) if cause else _head(payload)


def _head(payload: Mapping[str, Any]) -> str:
    return weights_words(payload["inputs"], payload["parts"]["weights"], payload["usable_bytes"])


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
        *(f"  {line}" for line in technique_lines(payload)),
        *_close(payload, style),
        "",
        *_next(payload),
    ]


def technique_lines(payload: Mapping[str, Any]) -> list[str]:
    """Figures that techniques add."""
    named = (payload.get("techniques") or {}).items()
    return [f"{name}: {', '.join(_fact(*fact) for fact in facts.items())}" for name, facts in named]


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
        *_next(payload),
    ]


def _does_not(payload: Mapping[str, Any], style: Style) -> list[str]:
    lines = [f"{style.bad('does not fit')}: {_why_not(payload)}"]
    if payload["max_context"]:
        lines.append(f"  the longest sequence that fits: {format_count(payload['max_context'])} tokens")
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
    return [*lines, "", *_next(payload, whole)]


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


def _next(payload: Mapping[str, Any], change: Mapping[str, Any] | None = None) -> list[str]:
    """A step, and a load, that there is room for: as asked, or after a change."""
    flags = change["flags"] if change else {}
    inputs = dict(payload["inputs"]) | {name: flags[name] for name in ("on", "dtype", "tp", "ep") if name in flags}
    if "set" in flags:
        key = flags["set"].partition("=")[0]
        inputs["settings"] = {name: value for name, value in inputs["settings"].items() if name != key}
    common = [*deployed(inputs), *flag("--set", flags.get("set"))]
    again = [words("gnomon", "fit", *common)] if change else []
    if "kind" in inputs:
        return next_steps(*again, network_step(inputs, common))
    longest = int(flags["set"].partition("=")[2]) if "set" in flags else int(inputs["context"])
    context = max(min(CONTEXT, longest - 1), 0)
    batch = max(1, min(BATCH, int((change or payload).get("max_batch_1k", 0))))
    predict = words("gnomon", "predict", *common, "--phase", "decode", "--batch", batch, "--context", context)
    alone = max(int(inputs.get(name) or 1) for name in ("pp", "dp")) == 1
    # What a technique adds here it makes of a step, not of a load.
    if change or payload.get("techniques") or not alone or longest < 2:
        return next_steps(*again, predict)
    return next_steps(predict, words("gnomon", "simulate", "serve", *common, *a_load(longest)))
