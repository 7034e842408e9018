"""Rings in which queries travel: bytes of a hop by hand, beside those of keys and values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnomon.engines.torch.style import style
from gnomon.graph.core import CoreAttention
from gnomon.graph.layers import Cut, layer
from gnomon.graph.ops import Collective
from gnomon.graph.tape import TapeNode
from gnomon.load import model as load_model

RANKS, HALF, WIDE = 4, 2, 4


def attention(model: str, *, travel: bool) -> TapeNode:
    found = load_model(model)
    kernels = replace(style(found), queries_travel=travel, merged=None)
    tape = layer(found, found.blocks[0], Cut(seq=4096, cp=RANKS), kernels)
    return next(node for node in tape.nodes if node.own_overlap)


def sends(node: TapeNode, *, back: bool = False) -> list[Collective]:
    ops = node.dgrad if back else node.forward
    return [op for op in ops if isinstance(op, Collective)]


@pytest.mark.parametrize(("model", "heads", "keys"), [("llama-2-7b", 32, 32), ("llama-3-8b", 32, 8)])
def test_a_hop_moves_a_result_and_its_sums(model: str, heads: int, keys: int) -> None:
    (plain,), (ours,) = sends(attention(model, travel=False)), sends(attention(model, travel=True))
    assert plain.count == ours.count == RANKS - 1
    assert plain.bytes_per_row == 2 * keys * 128 * HALF
    assert ours.bytes_per_row == heads * 128 * HALF + heads * WIDE
    assert (ours.bytes_per_row < plain.bytes_per_row) == (keys == heads)
    (back,) = sends(attention(model, travel=True), back=True)
    assert back.count == RANKS - 1
    assert back.bytes_per_row == 2 * heads * 128 * HALF + 2 * heads * WIDE


def test_pairs_are_the_same_and_results_are_merged() -> None:
    plain, ours = attention("llama-2-7b", travel=False), attention("llama-2-7b", travel=True)
    cores = [[op for op in node.forward if isinstance(op, CoreAttention)] for node in (plain, ours)]
    assert cores[0] == cores[1] and len(cores[0]) == 1
    merges = [op for op in ours.forward if op.name == "attention.merge"]
    assert [op.count for op in merges] == [RANKS - 1] and not [
        op for op in plain.forward if op.name == "attention.merge"
    ]
