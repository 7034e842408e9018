"""Texts about what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from gnomon.report.text import chip_word, gib
from gnomon.spec.answers import Resolved, Shortage
from gnomon.units import format_bytes, format_count

IF_IT_FITTED = "the figures assume that it fits"


def weights_words(inputs: Mapping[str, Any], resolved: Resolved, weights: float, usable: float) -> str:
    """`weights 131.4 GiB in bf16, 1 x H100 has 72.9 GiB usable`."""
    chips = _chips(inputs)
    each, has = (" per chip", "have") if chips > 1 else ("", "has")
    place = f"{chips} x {chip_word(inputs['on'], resolved)}"
    return f"weights {gib(weights)} GiB{each} in {inputs['dtype']}, {place} {has} {gib(usable)} GiB usable{each}"


def shortage_words(
    cause: Shortage, inputs: Mapping[str, Any], resolved: Resolved, parts: Mapping[str, float], usable: float
) -> str:
    """What is short, by how much it is, and what takes the room."""
    needs, left = gib(cause.needs_bytes), gib(cause.left_bytes)
    weights, chips = parts.get("weights", 0.0), _chips(inputs)
    each = f" on each of {chips:,}" if chips > 1 else ""
    place = f"{chip_word(inputs['on'], resolved)}, {gib(usable)} GiB usable{each}"
    if cause.part == "weights":
        return weights_words(inputs, resolved, weights, usable)
    if cause.part == "cache":
        working = sum(size for name, size in parts.items() if name not in ("weights", "kv"))
        beside = f"weights of {format_bytes(weights)} and {format_bytes(working)} to work in"
        return f"{_sequences(cause)} {needs} GiB of KV cache, {left} GiB are left next to {beside} ({place})"
    if cause.part == "states":
        return f"weights, gradients and optimizer states need {needs} GiB ({place})"
    if cause.part == "fragmentation":
        return (
            f"PyTorch's allocator would reserve {needs} GiB, as freed blocks are too small or partly in use ({place})"
        )
    if cause.part == "host memory":
        return f"what is kept in a host's memory needs {needs} GiB, and {left} GiB are usable"
    if cause.part == "NVMe":
        return f"what is kept on a host's disks needs {needs} GiB, and {left} GiB are usable"
    if "optimizer" in parts:
        what = f"{_sequences(cause)} {needs} GiB of activations" if cause.tokens else f"activations need {needs} GiB"
        return f"{what}, {left} GiB are left next to weights, gradients and optimizer states ({place})"
    beside = f"weights of {format_bytes(weights)}"
    return f"the step needs {needs} GiB to work in, {left} GiB are left next to {beside} ({place})"


def _sequences(cause: Shortage) -> str:
    """`one sequence of 131,072 tokens needs`."""
    count, tokens = cause.sequences, format_count(cause.tokens)
    return f"one sequence of {tokens} tokens needs" if count == 1 else f"{count:,} sequences of {tokens} tokens need"


def _chips(inputs: Mapping[str, Any]) -> int:
    return prod(int(inputs.get(name) or 1) for name in ("tp", "pp", "cp", "dp"))
