"""Gradients that are summed over micro-batches, and reduced over ranks, in 16 bits."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.training.traits import Optimizer, Traits, Update

HALF, WIDE = 2.0, 4.0
WIDEN = Update("optimizer.widen", HALF, WIDE)


def updates_wide(one: Optimizer) -> bool:
    """Whether weights in 16 bits are updated by gradients in fp32, in which they are summed or into which they are
    widened."""
    return one.weight_bytes == HALF and WIDE in (one.gradient_bytes, one.widened_bytes)


def in_half(traits: Traits, stay: bool = False) -> Traits:
    """The same with sums in 16 bits: GEMMs by weight write 16 bits, which a kernel adds to the sum and an update widens
    first. The copies in fp32 `stay` for the next update, or are freed."""
    return replace(
        traits,
        style=replace(traits.style, gradient_dtype="bf16"),
        optimizers={name: _in_half(one, stay) for name, one in traits.optimizers.items()},
        wire_bytes=HALF,
    )


def _in_half(one: Optimizer, stay: bool) -> Optimizer:
    if one.weight_bytes != HALF or one.gradient_bytes != WIDE:
        return one
    widened = () if any(update.name == WIDEN.name for update in one.updates) else (WIDEN,)
    return replace(
        one,
        gradient_bytes=HALF,
        widened_bytes=WIDE,
        widened_stay=stay,
        updates=(*widened, *one.updates),
        accumulate=Update("optimizer.accumulate", 2 * HALF, HALF),
        clear=Update("optimizer.zero", 0.0, HALF),
    )
