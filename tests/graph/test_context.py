"""Context parallelism: work that is conserved over the ranks, and bytes on the wire as formulas."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph.shapes import lowered

from gnomon.cost.machine import Machine
from gnomon.cost.profile import profile_for
from gnomon.errors import InputError
from gnomon.graph import Attention, Collective, Gemm, Graph
from gnomon.graph.context import all_to_all, decode_context, ring
from gnomon.graph.ops import Hidden
from gnomon.graph.sequence import sequence_parallel
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.spec import Batch

LLAMA = load_model("llama-3.1-8b")
PROMPT = Batch.prefill(2, 32_768)
MACHINE = Machine(parse_pool("H200:8"), profile_for(parse_pool("H200:8").chip))


def attention(graph: Graph, phase: str = "prefill") -> Attention:
    return next(op for op in graph.ops if isinstance(op, Attention) and op.phase == phase)


def without_head(graph: Graph) -> Graph:
    """Logits are made of one token a sequence, wherever it is."""
    return graph.rewrite(lambda op: () if op.name.startswith("head.") else (op,))


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("way", [ring, all_to_all])
def test_ranks_share_the_work_of_prompts(way: type, ranks: int) -> None:
    whole, part = without_head(lowered(LLAMA)), without_head(way(lowered(LLAMA), ranks))
    assert ranks * part.flops(PROMPT)[0] == pytest.approx(whole.flops(PROMPT)[0], rel=1e-12)
    assert ranks * attention(part).count * attention(part).flops(PROMPT)[0] == pytest.approx(
        attention(whole).count * attention(whole).flops(PROMPT)[0], rel=1e-12
    )


def test_no_ranks_change_nothing() -> None:
    graph = lowered(LLAMA, 2)
    assert ring(graph, 1) == all_to_all(graph, 1) == decode_context(graph, 1) == graph
    assert sequence_parallel(lowered(LLAMA), 1) == lowered(LLAMA)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_passes_every_piece_but_ones_own(ranks: int) -> None:
    part = ring(lowered(LLAMA), ranks)
    (passed,) = [op for op in part.ops if isinstance(op, Hidden)]
    keys_and_values = 2 * 8 * 128 * 2
    assert passed.count == 32 * (ranks - 1)
    assert passed.bytes(PROMPT)[0] == 2 * 32_768 / ranks * keys_and_values
    assert attention(part).count == 32 * ranks
    assert attention(part).shape(PROMPT)["pairs"][0] == pytest.approx(PROMPT.prefill_pairs[0] / ranks**2)


def test_a_ring_costs_what_attention_does_not_hide() -> None:
    part = ring(lowered(LLAMA), 8)
    (passed,) = [op for op in part.ops if isinstance(op, Hidden)]
    long, short = PROMPT, Batch.prefill(1, 64)
    assert MACHINE.op_seconds(passed, long)[0] == 0
    alone = passed.count * MACHINE.seconds("send_recv", "bf16", passed.shape(short))[0]
    assert 0 <= MACHINE.op_seconds(passed, short)[0] < alone


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_heads_for_tokens(ranks: int) -> None:
    part = all_to_all(lowered(LLAMA), ranks)
    out, back = (op for op in part.ops if isinstance(op, Collective) and op.op == "all_to_all")
    tokens = 2 * 32_768 / ranks
    assert out.bytes(PROMPT)[0] == tokens * (32 + 2 * 8) * 128 * 2
    assert back.bytes(PROMPT)[0] == tokens * 32 * 128 * 2
    assert (attention(part).heads, attention(part).kv_heads) == (32 // ranks, 8 // ranks)
    (up,) = [op for op in part.ops if isinstance(op, Gemm) and op.name == "ffn.up"]
    assert up.shape(PROMPT)["m"][0] == tokens


def test_heads_that_do_not_spread() -> None:
    with pytest.raises(InputError, match=r"16 ranks.*divisor of 8"):
        all_to_all(lowered(LLAMA), 16)


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


@pytest.mark.parametrize("tp", [2, 8])
def test_parted_norms_move_the_same_bytes(tp: int) -> None:
    graph, batch = lowered(load_model("llama-3.1-70b"), tp), Batch.prefill(1, 8192)
    parted = sequence_parallel(graph, tp)

    def sizes(graph: Graph, kind: str) -> float:
        return sum(op.count * op.bytes(batch)[0] for op in graph.ops if op.kind == kind and "head" not in op.name)

    assert sizes(parted, "all_reduce") == 0
    for kind in ("reduce_scatter", "all_gather"):
        assert sizes(parted, kind) == sizes(graph, "all_reduce") > 0
    norms = [next(op.bytes(batch)[0] for op in g.ops if op.name == "ffn.norm") for g in (graph, parted)]
    assert norms[1] == norms[0] / tp
    assert np.isclose(parted.flops(batch)[0], graph.flops(batch)[0], rtol=1e-15)
