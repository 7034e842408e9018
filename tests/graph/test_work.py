"""FLOPs and bytes of whole steps, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph.shapes import lowered

from gnomon.graph import Attention, Graph
from gnomon.load import model as load_model
from gnomon.spec import Batch

LLAMA_LAYER = 6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336
LLAMA_HEAD = 128256 * 4096
QWEN_LAYER = 5120 * 2048 + 2048 * 4096 + 128 * 2048 + 8 * 3 * 2048 * 768
QWEN_HEAD = 151936 * 2048
# Layers, active weights of a layer, weights of the head, width of all query heads.
HAND = {"llama-3.1-8b": (32, LLAMA_LAYER, LLAMA_HEAD, 4096), "qwen3-30b-a3b": (48, QWEN_LAYER, QWEN_HEAD, 4096)}

MIXED = Batch.step([100, 2000, 50], [(512, 0), (200, 1000)])
# Batch, tokens, query-key pairs, rows of logits.
STEPS = {
    "prefill": (Batch.prefill(1, 1024), 1024, 1024 * 1025 // 2, 1),
    "decode": (Batch.decode(32, 1024), 32, 32 * 1025, 32),
    "mixed": (MIXED, 715, (101 + 2001 + 51) + 512 * 513 // 2 + 200 * 1000 + 200 * 201 // 2, 5),
}


def attention(graph: Graph, phase: str) -> Attention:
    return next(op for op in graph.ops if isinstance(op, Attention) and op.phase == phase)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", HAND)
def test_flops_by_hand(name: str, step: str) -> None:
    layers, layer, head, width = HAND[name]
    batch, tokens, pairs, rows = STEPS[step]
    expected = layers * (2 * layer * tokens + 4 * pairs * width) + 2 * head * rows
    assert lowered(load_model(name)).flops(batch)[0] == expected


def test_flops_of_two_known_steps() -> None:
    graph = lowered(load_model("llama-3.1-8b"))
    assert graph.flops(Batch.prefill(1, 1024))[0] == 14_569_848_176_640
    assert graph.flops(Batch.decode(32, 1024))[0] == 497_494_786_048


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"])
def test_flops_are_twice_the_active_parameters(name: str) -> None:
    model = load_model(name)
    batch = Batch.decode(100, 1)
    dense = lowered(model).flops(batch)[0] - model.layers * 4 * 200 * 4096 * (2 if "70b" in name else 1)
    assert dense / 100 == pytest.approx(2 * (model.active_parameters - model.embedding_parameters), rel=2e-4)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_share_the_work(tp: int) -> None:
    model = load_model("llama-3.1-70b")
    whole, part = lowered(model), lowered(model, tp)
    for batch, *_ in STEPS.values():
        assert tp * part.flops(batch)[0] == whole.flops(batch)[0]


def test_bytes_of_a_decode_by_hand() -> None:
    graph = lowered(load_model("llama-3.1-8b"))
    batch = Batch.decode(32, 1024)
    read = {op.name: op.count * op.bytes(batch)[0] for op in graph.ops}
    # 1,025 keys and values of 8 heads of 128 in two bytes for each sequence; queries in, outputs out.
    assert read["attention.decode"] == 32 * (2 * 32 * 1025 * 8 * 128 * 2 + 2 * 32 * 4096 * 2)
    assert read["attention.prefill"] == 0
    assert read["ffn.up"] == 32 * (2 * 28672 * 4096 + 2 * 32 * 4096 + 2 * 32 * 28672)
    assert read["head.logits"] == 2 * (128256 * 4096 + 32 * 4096 + 32 * 128256)
    assert read["attention.cache_write"] == 32 * 32 * 2 * (2 * 1024 * 2)
    assert read["ffn.activation"] == 32 * 32 * (2 * 14336 + 14336) * 2
    assert sum(read.values()) == graph.bytes(batch)[0]


def test_a_narrow_cache_is_half_the_bytes() -> None:
    model, batch = load_model("llama-3.1-8b"), Batch.decode(32, 1024)
    wide, narrow = (attention(lowered(model, kv_dtype=dtype), "decode").bytes(batch)[0] for dtype in ("bf16", "fp8"))
    queries = 2 * 32 * 4096 * 2
    assert narrow - queries == (wide - queries) / 2


def test_a_mixed_step_is_split_between_the_two_attentions() -> None:
    graph = lowered(load_model("qwen3-30b-a3b"))
    for phase, pairs in (("decode", 101 + 2001 + 51), ("prefill", 131_328 + 220_100)):
        assert attention(graph, phase).flops(MIXED)[0] == 4 * pairs * 4096
    for phase, read in (("decode", 101 + 2001 + 51), ("prefill", 512 + 1200)):
        op = attention(graph, phase)
        new = 3 if phase == "decode" else 712
        assert op.bytes(MIXED)[0] == 2 * read * 4 * 128 * 2 + 2 * new * 4096 * 2


def test_chunks_add_up_to_the_whole_prompt() -> None:
    graph = lowered(load_model("llama-3.1-8b"))
    whole = Batch.step([], [(4096, 0)])
    chunks = [Batch.step([], [(1024, start)]) for start in range(0, 4096, 1024)]
    rows = 2 * LLAMA_HEAD  # each step makes one row of logits, wanted or not
    assert sum(graph.flops(chunk)[0] - rows for chunk in chunks) == graph.flops(whole)[0] - rows


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_many_batches_in_one_call(name: str, tp: int) -> None:
    graph = lowered(load_model(name), tp)
    rng = np.random.default_rng(0)
    count, context = rng.integers(1, 500, 40), rng.integers(0, 8000, 40)
    tokens = rng.integers(1, 2000, 40)
    together = (Batch.decode(count, context), Batch.prefill(count, tokens, context))
    for i in range(40):
        alone = (Batch.decode(count[i], context[i]), Batch.prefill(count[i], tokens[i], context[i]))
        for many, one in zip(together, alone, strict=True):
            assert graph.flops(many)[i] == graph.flops(one)[0]
            assert graph.bytes(many)[i] == pytest.approx(graph.bytes(one)[0], rel=1e-14)
    assert together[0].size == graph.flops(together[0]).size == 40


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_an_empty_step_is_no_work(name: str) -> None:
    graph = lowered(load_model(name), 2)
    nothing = Batch.step([], [])
    assert graph.flops(nothing)[0] == 0
    assert all(value.shape == (1,) for op in graph.ops for value in op.shape(nothing).values())


def test_a_pass_rewrites_operators() -> None:
    graph = lowered(load_model("llama-3.1-8b"))
    assert graph.rewrite(lambda op: (op,)) == graph
    without = graph.rewrite(lambda op: () if isinstance(op, Attention) else (op,))
    assert len(graph.ops) - len(without.ops) == 2
    assert not without.rewrite(lambda op: ()).ops
