"""The text of `gnomon fit`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.figures import Headline
from gnomon.report.networks import network_step
from gnomon.report.shortage import shortage_words, weights_words
from gnomon.report.text import (
    Style,
    a_load,
    deployed,
    flag,
    gib,
    next_steps,
    part,
    plural,
    table,
    technique_lines,
    words,
)
from gnomon.spec.answers import Change, Fit
from gnomon.units import format_bytes, format_count

BATCH, CONTEXT = 32, 1024
"""A decode step that people would ask for first, as far as there is room for it."""


def render(answer: Fit, style: Style) -> str:
    lines = _fits(answer, style) if answer.fits else _does_not(answer, style)
    return "\n".join(lines)


def figures(answer: Fit) -> list[Headline]:
    """Whether it fits, the weights, and the room that is left for sequences."""
    found = [
        Headline("verdict", "fits" if answer.fits else "does not fit"),
        Headline("weights", f"{gib(answer.parts['weights'])} GiB per chip"),
        Headline("usable", f"{gib(answer.usable_bytes)} of {gib(answer.total_bytes)} GiB per chip"),
    ]
    found += [Headline("on each host", words) for words in host_words(answer)]
    if answer.kv_tokens:
        tokens = f"{format_count(answer.kv_tokens)} tokens"
        found.append(Headline("KV cache", f"{gib(answer.parts.get('kv', 0.0))} GiB: {tokens}"))
    if answer.fits:
        context = format_count(answer.inputs["context"])
        found.append(Headline("at once", f"{plural(answer.max_batch, 'sequence')} of {context} tokens"))
    if answer.max_context:
        found.append(Headline("longest sequence", f"{format_count(answer.max_context)} tokens"))
    return found


def host_words(answer: Fit) -> Iterator[str]:
    """What ranks keep beyond their chips."""
    if answer.host_bytes:
        pinned = " of pinned weights" if not answer.inputs.get("techniques") else " of memory"
        yield f"{gib(answer.host_bytes)} GiB{pinned}"
    if answer.nvme_bytes:
        yield f"{gib(answer.nvme_bytes)} GiB of its disks"


def verdict_words(answer: Fit) -> str:
    """Whether it fits and why, with a warning where it is too close to call."""
    word, why = ("fits", _head(answer)) if answer.fits else ("does not fit", _why_not(answer))
    return "; ".join([f"{word}: {why}", *(line.strip() for line in _close(answer, Style()))])


def _why_not(answer: Fit) -> str:
    cause, parts, usable = answer.cause, answer.parts, answer.usable_bytes
    return shortage_words(cause, answer.inputs, answer.resolved, parts, usable) if cause else _head(answer)


def _head(answer: Fit) -> str:
    return weights_words(answer.inputs, answer.resolved, answer.parts["weights"], answer.usable_bytes)


def _fits(answer: Fit, style: Style) -> list[str]:
    parts = ", ".join(f"{name} {part(size)}" for name, size in answer.parts.items() if size and name != "kv")
    if not answer.kv_tokens:
        return _passes(answer, style, parts)
    cache, context = answer.parts.get("kv", 0.0), answer.inputs["context"]
    batch = answer.max_batch
    return [
        f"{style.good('fits')}: {_head(answer)}",
        f"  {gib(cache)} GiB for KV: {format_count(answer.kv_tokens)} tokens,"
        f" {plural(batch, 'sequence')} of {format_count(context)} at once",
        f"  the longest sequence: {format_count(answer.max_context)} tokens",
        f"  of {gib(answer.total_bytes)} GiB: {parts}",
        *(f"  on each host: {words}" for words in host_words(answer)),
        *(f"  {line}" for line in technique_lines(answer.techniques)),
        *_close(answer, style),
        "",
        *_next(answer),
    ]


def _passes(answer: Fit, style: Style, parts: str) -> list[str]:
    """A network without blocks of a cache: so many sequences go through it at once."""
    longest, batch = format_count(answer.inputs["context"]), answer.max_batch
    return [
        f"{style.good('fits')}: {_head(answer)}",
        f"  {plural(batch, 'sequence')} of {longest} tokens at once",
        f"  of {gib(answer.total_bytes)} GiB, for one: {parts}",
        "",
        *_next(answer),
    ]


def _does_not(answer: Fit, style: Style) -> list[str]:
    lines = [f"{style.bad('does not fit')}: {_why_not(answer)}"]
    if answer.max_context:
        lines.append(f"  the longest sequence that fits: {format_count(answer.max_context)} tokens")
    lines += _close(answer, style)
    changes = answer.changes
    if not changes:
        return [*lines, "  no single change makes it fit", "", *next_steps("gnomon chips")]
    rows = [
        (
            f"  {change.what}",
            f"{gib(change.kv_bytes)} GiB for KV: {format_count(change.kv_tokens)} tokens",
            f"({change.note})" if change.note else "",
        )
        for change in changes
    ]
    lines += ["  the smallest changes that fit:", *table(rows, "<<<")]
    whole = next((change for change in changes if "set" not in change.flags), changes[0])
    return [*lines, "", *_next(answer, whole)]


def _close(answer: Fit, style: Style) -> list[str]:
    """A warning where the verdict is within the error of the engine's reserve."""
    if not answer.close:
        return []
    margin, slack = answer.margin_bytes, answer.slack_bytes
    share = abs(margin) / answer.usable_bytes
    side = "to spare" if margin >= 0 else "short"
    room = f"{format_bytes(abs(margin))} {side}, and the reserve is known to {format_bytes(slack)}"
    text = f"within {share:.1%} of the edge: {room}"
    return [style.bad(f"  too close to call: {text}")]


def _next(answer: Fit, change: Change | None = None) -> list[str]:
    """A step, and a load, that there is room for: as asked, or after a change."""
    flags = change.flags if change else {}
    inputs = dict(answer.inputs) | {name: flags[name] for name in ("on", "dtype", "tp", "ep") if name in flags}
    if "set" in flags:
        key = flags["set"].partition("=")[0]
        inputs["settings"] = {name: value for name, value in inputs["settings"].items() if name != key}
    common = [*deployed(inputs, answer.resolved), *flag("--set", flags.get("set"))]
    again = [words("gnomon", "fit", *common)] if change else []
    if "kind" in inputs:
        return next_steps(*again, network_step(inputs, common))
    longest = int(flags["set"].partition("=")[2]) if "set" in flags else int(inputs["context"])
    context = max(min(CONTEXT, longest - 1), 0)
    batch = max(1, min(BATCH, (change or answer).max_batch_1k))
    predict = words("gnomon", "predict", *common, "--phase", "decode", "--batch", batch, "--context", context)
    alone = max(int(inputs.get(name) or 1) for name in ("pp", "dp")) == 1
    # What a technique adds here it makes of a step, not of a load.
    if change or answer.techniques or not alone or longest < 2:
        return next_steps(*again, predict)
    return next_steps(predict, words("gnomon", "simulate", "serve", *common, *a_load(longest)))
