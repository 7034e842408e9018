"""Which part of a step an operator belongs to: its tokens, its rows of logits, its decodes or its prompts."""

from __future__ import annotations

from typing import Literal

from gnomon.graph.mixer_ops import MixerOp
from gnomon.graph.ops import Attention, Op
from gnomon.graph.sizes import Figure, Rows

Part = Literal["tokens", "logits", "decode", "prefill"]
_PARTS: dict[Figure, Part] = {
    "tokens": "tokens",
    "logit_rows": "logits",
    "decodes": "decode",
    "decode_context": "decode",
}


def rows_of(op: Op) -> Rows | None:
    """The figure of the batch that alone decides its size; None where several do, or none."""
    for name in ("m", "rows", "tokens"):
        size = getattr(op, name, None)
        if isinstance(size, Rows):
            return size
    return None


def part_of(op: Op) -> Part | None:
    """None for what is the same in every step."""
    if isinstance(op, Attention | MixerOp):
        return "decode" if op.phase == "decode" else "prefill"
    if op.kind.startswith("attention"):
        return "prefill"
    rows = rows_of(op)
    return None if rows is None else _PARTS.get(rows.of, "prefill")


def is_padded(op: Op) -> bool:
    """Whether it also runs over the tokens that pad a step; what follows the sequences skips them."""
    return part_of(op) not in ("decode", "prefill")
