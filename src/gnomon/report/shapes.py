"""Shapes of a model in words: what each kind of layer is made of, and the order they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from gnomon.report.text import INDENT

Shape = Mapping[str, Any]


def layer_lines(blocks: Sequence[Shape]) -> list[str]:
    """One line a kind of layer with how many there are, and their order where there are several kinds."""
    kinds: dict[str, int] = {}
    order: list[tuple[str, int]] = []
    for block in blocks:
        text = _layer(block)
        kinds[text] = kinds.get(text, 0) + block["count"]
        order.append((text, block["count"]))
    letters = dict(zip(kinds, _letters(), strict=False))
    width = max((len(f"{count:,}") for count in kinds.values()), default=0)
    marks = len(kinds) > 1
    lines = [
        f"{INDENT}{f'{letters[text]}  ' if marks else ''}{count:>{width},} x  {text}" for text, count in kinds.items()
    ]
    if marks:
        lines.append(f"{INDENT}order: {_order([(letters[text], count) for text, count in order])}")
    return lines


def _letters() -> list[str]:
    return [*ascii_uppercase, *(a + b for a in ascii_uppercase for b in ascii_uppercase)]


def _order(runs: Sequence[tuple[str, int]]) -> str:
    """Runs such as `5 A, 1 B`, and the sequence of them that repeats told once."""
    for period in range(2, len(runs) // 2 + 1):
        repeats = len(runs) // period
        if list(runs[: period * repeats]) == list(runs[:period]) * repeats:
            rest = runs[period * repeats :]
            tail = f", then {_runs(rest)}" if rest else ""
            return f"{repeats} times ({_runs(runs[:period])}){tail}"
    return _runs(runs) if len(runs) <= 12 else f"{_runs(runs[:8])}, … ({len(runs)} changes)"


def _runs(runs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {letter}" for letter, count in runs)


def _layer(block: Shape) -> str:
    parts = [_half(block[half]) for half in ("mixer", "cross", "ffn") if half in block]
    notes = []
    if block.get("parallel"):
        notes.append("side by side")
    if "norms" in block:
        notes.append(f"{block['norms']} norms")
    notes += [f"with {part['name']}" for part in block.get("extras", [])]
    formats = block.get("formats", {})
    for name in sorted({format["name"] for format in formats.values()}):
        where = dict.fromkeys(_place(role) for role, format in formats.items() if format["name"] == name)
        notes.append(f"{name} in {', '.join(where)}")
    return " + ".join(parts) + (f"  [{'; '.join(notes)}]" if notes else "")


def _place(role: str) -> str:
    """The part of a layer a matrix belongs to."""
    if role in ("gate", "up", "down"):
        return "feed-forward"
    return {"expert": "experts", "shared": "shared experts"}.get(role.partition("_")[0], "mixer")


def _half(shape: Shape) -> str:
    return _WORDS[shape["kind"]](shape)


def _attention(s: Shape) -> str:
    heads = f"{s['heads']} heads" if s["heads"] == s["kv_heads"] else f"{s['heads']} heads on {s['kv_heads']}"
    words = [f"attention, {heads} of {s['head_dim']}"]
    if "window" in s:
        words.append(f"{'chunks' if s.get('chunked') else 'window'} of {s['window']:,}")
    flags = {
        "qk_norm": "normed queries and keys",
        "sinks": "sinks",
        "logit_cap": "capped scores",
        "output_gate": "gated",
        "alibi": "ALiBi",
    }
    words += [text for flag, text in flags.items() if s.get(flag)]
    if s.get("rotary_dim") == 0 and not s.get("alibi"):
        words.append("no rotation")
    if s.get("causal") is False:
        words.append("both directions")
    return ", ".join(words)


def _latent(s: Shape) -> str:
    words = f"latent attention, {s['heads']} heads of {s['nope_dim']}+{s['rope_dim']}, latent {s['kv_rank']:,}"
    if "q_rank" in s:
        words += f", queries through {s['q_rank']:,}"
    return words + (f", {s['indexer']['topk']:,} chosen tokens" if "indexer" in s else "")


def _moe(s: Shape) -> str:
    words = f"{s['topk']} of {s['experts']} experts of {s['inner']:,}"
    return words + (f" and {s['shared_inner']:,} shared" if s.get("shared_inner") else "")


def _dense(s: Shape) -> str:
    return f"feed-forward of {s['inner']:,}{'' if s.get('gated', True) else ', ungated'}"


_WORDS = {
    "attention": _attention,
    "latent": _latent,
    "cross": lambda s: f"cross-attention, {s['heads']} heads on {s['kv_heads']} of {s['head_dim']}",
    "mamba": lambda s: f"state space (Mamba) of {s['inner']:,}, state {s['state']}",
    "mamba2": lambda s: f"state space (Mamba-2), {s['heads']} heads of {s['head_dim']}, state {s['state']}",
    "gated_delta": lambda s: f"linear attention (gated delta), {s['value_heads']} heads of {s['value_dim']}",
    "lightning": lambda s: f"linear attention (lightning), {s['heads']} heads of {s['head_dim']}",
    "short_convolution": lambda s: f"convolution over {s.get('conv', 3)} tokens, {s['width']:,} wide",
    "dense": _dense,
    "moe": _moe,
}
