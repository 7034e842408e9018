"""Degrees that a model cannot be split into are refused, with the nearest that it can."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.graph.shapes import dense, lowered, sparse

from gnomon.errors import InputError
from gnomon.graph.lower import check_degrees
from gnomon.load import model as load_model
from gnomon.spec import DenseFfn, Model, Strategy

MODELS = {
    "llama-3.1-8b": load_model("llama-3.1-8b"),
    "llama-3.1-70b": load_model("llama-3.1-70b"),
    "qwen3-30b-a3b": load_model("qwen3-30b-a3b"),
    "24 heads, 8 kv": dense(heads=24, kv_heads=8, inner=8192),
    "48 heads, 3 kv, odd width": dense(heads=48, kv_heads=3, inner=36),
}


def divides(model: Model, tp: int) -> bool:
    """Heads and feed-forward cut evenly; key-value heads cut or copied evenly."""
    (block,) = model.blocks
    heads, kv_heads = block.mixer.heads, block.mixer.kv_heads
    return not (heads % tp or block.ffn.inner % tp or (kv_heads % tp and tp % kv_heads))


@pytest.mark.parametrize("name", MODELS)
def test_only_what_divides_is_lowered(name: str) -> None:
    model = MODELS[name]
    for tp in range(1, 65):
        if divides(model, tp):
            assert lowered(model, tp).ops
        else:
            with pytest.raises(InputError) as caught:
                lowered(model, tp)
            assert caught.value.where.lstrip("-") == "tp"


@pytest.mark.parametrize("name", MODELS)
def test_the_nearest_is_one_that_works(name: str) -> None:
    model = MODELS[name]
    possible = [tp for tp in range(1, 65) if divides(model, tp)]
    for tp in range(1, 65):
        if tp in possible:
            continue
        with pytest.raises(InputError, match=rf"{tp}\b") as caught:
            check_degrees(model, Strategy(tp=tp))
        numbers = [int(text) for text in re.findall(r"\d+", caught.value.hint)]
        assert numbers, f"tp {tp}: the hint '{caught.value.hint}' names no degree"
        below = max(t for t in possible if t < tp)
        above = min((t for t in possible if t > tp), default=below)
        assert set(numbers) <= {below, above}, f"tp {tp}: {caught.value.hint}"


@pytest.mark.parametrize("tp", [0, -1, -8])
def test_degrees_below_one(tp: int) -> None:
    with pytest.raises(InputError, match="tp"):
        check_degrees(MODELS["llama-3.1-8b"], Strategy(tp=tp))


def test_shared_experts_are_cut_evenly_too() -> None:
    with pytest.raises(InputError, match="50"):
        lowered(sparse(shared=50), 4)


def test_an_unknown_format() -> None:
    with pytest.raises(InputError, match="bf61"):
        lowered(MODELS["llama-3.1-8b"], dtype="bf61")


def test_equal_layers_are_priced_once_wherever_they_stand() -> None:
    model = sparse()
    first = model.blocks[0]
    other = replace(first, ffn=DenseFfn(inner=64))
    mixed = replace(model, blocks=(first, other) * 500)
    ops = lowered(mixed).ops
    assert len(ops) < 60
    assert sum(op.count for op in ops if op.name == "attention.qkv") == mixed.layers
