"""Decode context parallelism: work that is conserved over the ranks, and bytes on the wire as formulas."""

from __future__ import annotations

import pytest
from tests.graph.shapes import lowered

from gnomon.cost.machine import Machine
from gnomon.graph import Attention, Collective, Graph
from gnomon.graph.context import decode_context
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch

LLAMA = load_model("llama-3.1-8b")
MACHINE = Machine(parse_pool("H200:8"), profile_for(parse_pool("H200:8").chip))


def attention(graph: Graph, phase: str = "prefill") -> Attention:
    return next(op for op in graph.ops if isinstance(op, Attention) and op.phase == phase)


def test_no_ranks_change_nothing() -> None:
    graph = lowered(LLAMA, 2)
    assert decode_context(graph, 1) == graph


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_cache_spread_over_ranks(ranks: int) -> None:
    model, batch = load_model("llama-3.1-70b"), Batch.decode(64, 10_000)
    plain = lowered(model, 32)
    shared = decode_context(plain, ranks)
    before, after = attention(plain, "decode"), attention(shared, "decode")
    assert after.flops(batch)[0] == pytest.approx(before.flops(batch)[0], rel=1e-12)
    assert after.heads == before.heads * ranks
    queries = [2 * 64 * op.heads * 128 * 2 for op in (before, after)]
    assert after.bytes(batch)[0] - queries[1] == pytest.approx((before.bytes(batch)[0] - queries[0]) / ranks)
    sizes = {
        op.name: (op.op, op.bytes(batch)[0], op.ranks)
        for op in shared.ops
        if isinstance(op, Collective) and op not in plain.ops
    }
    heads = 2 * ranks
    assert sizes == {
        "attention.gather_queries": ("all_gather", 64 * heads * 128 * 2, ranks),
        "attention.gather_sums": ("all_gather", 64 * ranks * heads * 4, ranks),
        "attention.scatter_output": ("reduce_scatter", 64 * heads * 128 * 2, ranks),
    }


def test_long_contexts_gain_and_short_ones_lose() -> None:
    def seconds(graph: Graph, context: int) -> float:
        return sum(float(MACHINE.op_seconds(op, Batch.decode(64, context))[0]) for op in graph.ops)

    plain = lowered(load_model("llama-3.1-70b"), 16)
    shared = decode_context(plain, 2)
    assert seconds(shared, 100_000) < seconds(plain, 100_000)
    assert seconds(shared, 10) > seconds(plain, 10)
