"""Gradients as a pass: duals of collectives, two GEMMs for one, sums where a tensor has several readers; and laws that
hold for every network that is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.graph.shapes import EVERY_MODE

from gnomon.catalog import model_names
from gnomon.engines.megatron.style import fused
from gnomon.engines.transformers.style import style as plain
from gnomon.errors import InputError
from gnomon.graph.core import CoreAttention
from gnomon.graph.layers import Cut, Writer, embedding, head, layer
from gnomon.graph.mixer_ops import Scan
from gnomon.graph.ops import Collective, Elementwise, Gemm, Op, Rows
from gnomon.graph.passes.differentiate import add_up, differentiate
from gnomon.graph.style import Stream
from gnomon.graph.tape import Tape, TapeNode
from gnomon.graph.trained import check_trained, heads_of
from gnomon.graph.windows import Window
from gnomon.load import model as load_model
from gnomon.spec import Batch, Model

SEQ = 256
BATCH = Batch.prefill([2], SEQ)
TOKENS = Rows("tokens")
STYLES = {"fused": fused(), "plain": plain()}


def trained(name: str) -> bool:
    try:
        check_trained(load_model(name))
    except InputError:
        return False
    return True


NAMES = [name for name in model_names() if trained(name)]
HYBRIDS = ["nemotron-h-8b", "qwen3-next-80b-a3b", "granite-4.0-h-small", "gpt-oss-20b", "gemma-3-1b", "bert-base"]
HYBRIDS += ["jamba-52b", "minimax-text-01", "gemma-2-2b", "mamba-2.8b", "lfm2-1.2b"]


def flops(ops: Iterable[Op]) -> float:
    return float(sum(op.count * op.flops(BATCH)[0] for op in ops))


def kinds(model: Model, style: str = "fused", **cut: object) -> list[Tape]:
    """One layer of each kind."""
    sizes = Cut(seq=SEQ, **cut)  # type: ignore[arg-type]
    return [layer(model, block, sizes, STYLES[style]) for block in dict.fromkeys(model.blocks)]


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("all_gather", ["reduce_scatter"]),
        ("reduce_scatter", ["all_gather"]),
        ("all_to_all", ["all_to_all"]),
        ("all_reduce", []),
    ],
)
def test_a_collective_has_its_dual(there: str, back: list[str]) -> None:
    op = Collective(name="x", op=there, rows=TOKENS, bytes_per_row=2.0, ranks=4)  # type: ignore[arg-type]
    (node,) = differentiate([TapeNode(name="x", forward=(op,), reads=("a",), writes=("b",))], fused())
    assert [found.op for found in node.dgrad if isinstance(found, Collective)] == back
    assert node.passes_on == (not back)
    assert all(found.bytes(BATCH) == op.bytes(BATCH) for found in node.dgrad)


def test_a_gather_is_repeated_where_the_shard_is_saved() -> None:
    op = Collective(name="x", op="all_gather", rows=TOKENS, bytes_per_row=2.0, ranks=4)
    gather = TapeNode(name="x", forward=(op,), reads=("part",), writes=("whole",))
    for kept, names in (("part", ["x.again", "x.by_input"]), ("whole", ["x.by_input"])):
        reader = TapeNode(name="y", reads=("whole",), keeps=(kept,))
        assert [found.name for found in differentiate([gather, reader], fused())[0].dgrad] == names


def test_a_gemm_has_two_gradients_of_its_size() -> None:
    op = Gemm(name="x", m=TOKENS, n=48, k=32, dtype="bf16")
    (node,) = differentiate([TapeNode(name="x", forward=(op,))], fused())
    (dgrad,), (wgrad,) = node.dgrad, node.wgrad
    assert isinstance(dgrad, Gemm)
    assert isinstance(wgrad, Gemm)
    assert (dgrad.m, dgrad.n, dgrad.k) == (TOKENS, 32, 48)
    assert (wgrad.m, wgrad.n, wgrad.k, wgrad.out_dtype) == (48, 32, TOKENS, "fp32")
    assert flops([dgrad]) == flops([wgrad]) == flops([op])


def test_a_kernel_has_the_gradient_that_its_engine_gives_it() -> None:
    op = Elementwise(name="x", rows=TOKENS, read_per_row=2.0, written_per_row=6.0)
    known, other = (TapeNode(name="x", forward=(op,), kernel=kernel) for kernel in ((Stream(1, 3, 4, 5), 2.0), None))
    first, second = (node.dgrad[0] for node in differentiate([known, other], fused()))
    assert first.bytes(BATCH) == 9 * 2.0 * 2 * SEQ
    assert isinstance(second, Elementwise)
    assert (second.read_per_row, second.written_per_row) == (6.0, 2.0)


def test_gradients_of_a_tensor_are_added_once_less_than_they_are() -> None:
    writer = Writer(load_model("llama-3.1-8b"), Cut(seq=SEQ), fused())
    writer.sizes |= {"a": 10.0, "b": 10.0}
    handed = TapeNode(name="on", reads=("a", "b"), passes_on=True)
    readers = [TapeNode(name=name, reads=("a",)) for name in ("first", "second")]
    found = add_up([*readers, handed], writer)
    assert [[op.name for op in node.dgrad] for node in found] == [["first.total"], ["second.total"], []]
    alone = add_up(readers, writer)
    assert [len(node.dgrad) for node in alone] == [0, 1]
    assert alone[1].dgrad[0].bytes(BATCH) == 3 * 10.0 * 2 * SEQ


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_gradient_needs_is_there(name: str, style: str) -> None:
    """Tensors are written before they are read and have sizes; all that is kept has stayed or is written again."""
    model, cut = load_model(name), Cut(seq=SEQ, tp=1)
    ends = [embedding(model, cut, STYLES[style]), head(model, cut, STYLES[style])]
    for tape in (*kinds(model, style), *ends):
        made = {"in"}
        for node in tape.nodes:
            assert set(node.reads) <= made, node.name
            made |= set(node.writes)
            assert set(node.keeps) <= made, node.name
        assert made <= {*tape.sizes}
        for mode in EVERY_MODE:
            there = set(tape.stays(mode))
            for node in tape.recomputed(mode):
                assert set(node.reads) <= there, (mode, node.name)
                there |= set(node.writes)
            assert {tensor for node in tape.nodes for tensor in node.keeps} <= there
        assert {"in", "out"} & made == {"in", "out"} or tape.name == "head"


@pytest.mark.parametrize("name", HYBRIDS)
def test_matrices_and_scans_have_twice_their_flops_backward(name: str) -> None:
    """But for what is computed again, and the inverse of the delta rule, whose gradient is two matmuls."""
    for tape in kinds(load_model(name)):
        ops = tape.backward_ops("none")
        again = sum(
            op.count * float(op.recomputed_flops(BATCH)[0]) for op in ops if isinstance(op, CoreAttention | Scan)
        )
        inverse = sum(
            10 / 3 * op.heads * op.chunk**3 * 2 * SEQ / op.chunk
            for op in ops
            if isinstance(op, Scan) and op.mixer == "gated_delta"
        )
        assert flops(ops) - again - inverse == pytest.approx(2 * flops(tape.forward_ops()), rel=1e-12)


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", [name for name in HYBRIDS if name != "gemma-3-1b"])
def test_tensor_parallel_ranks_share_the_work_out(name: str, tp: int) -> None:
    """All but what each does for its own tokens: the router, and the score of shared experts."""
    model = load_model(name)
    alone, part = kinds(model), kinds(model, tp=tp, sequence_parallel=True, expert_tp=tp)
    for block, whole, one in zip(dict.fromkeys(model.blocks), alone, part, strict=True):
        if any(number % tp for number in heads_of(block)) or getattr(block.mixer, "groups", tp) == 1:
            continue  # what does not divide is copied
        for mode in ("none", "full"):
            assert tp * flops(one.backward_ops(mode)) == pytest.approx(flops(whole.backward_ops(mode)), rel=1e-9)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("window", [1, 2, 5, 64, 200])
def test_windows_in_both_directions_count_their_pairs(length: int, window: int) -> None:
    op = CoreAttention(
        name="a", phase="forward", heads=1, kv_heads=1, head_dim=1, kv_dtype="bf16", window=Window(window), causal=False
    )
    half = window // 2
    counted = sum(abs(i - j) <= half for i in range(length) for j in range(length))
    assert op.shape(Batch.prefill([3], length))["pairs"][0] == pytest.approx(3 * counted)


def test_sinks_slopes_and_gates_add_no_pairs() -> None:
    """gpt-oss: every second layer sees 128 tokens; a learned score per head is a parameter."""
    model = load_model("gpt-oss-20b")
    local, everything = kinds(model)
    pairs = [next(op for op in tape.forward_ops() if isinstance(op, CoreAttention)) for tape in (local, everything)]
    assert sorted(float(op.shape(BATCH)["pairs"][0]) for op in pairs) == [
        2 * sum(min(place + 1, 128) for place in range(SEQ)),
        2 * SEQ * (SEQ + 1) / 2,
    ]
    core = next(node for node in local.nodes if node.name == "attention.core")
    assert core.parameters == 64


def test_shared_keys_get_their_gradients_where_they_are_held() -> None:
    """A layer that reads another's keys and values adds its gradients to theirs, and saves none of them."""
    block = load_model("gemma-2-2b").blocks[0]
    model = load_model("gemma-2-2b")
    shared = replace(block, mixer=replace(block.attention, shared_kv=True))
    own, other = (layer(model, one, Cut(seq=SEQ), STYLES["fused"]) for one in (block, shared))
    kv = 2 * block.attention.kv_width * 2
    added = next(node for node in other.nodes if node.name == "attention.shared")
    assert sum(op.bytes(BATCH)[0] for op in added.dgrad) == 3 * kv * 2 * SEQ
    assert own.saved_activation_bytes("none") - other.saved_activation_bytes("none") == kv
    assert own.parameters - other.parameters == kv / 2 * model.hidden


def test_capped_scores_and_logits_are_bent_once_more() -> None:
    model = load_model("gemma-2-2b")
    (core,) = {op for op in kinds(model)[0].forward_ops() if isinstance(op, CoreAttention)}
    assert core.shape(BATCH)["bends"][0] == 2
    plain = replace(model, head_cap=None)
    bent, straight = (head(one, Cut(seq=SEQ), STYLES["fused"]) for one in (model, plain))
    assert bent.saved_activation_bytes("none") - straight.saved_activation_bytes("none") == 2 * model.vocab


def test_an_indexer_learns_by_itself() -> None:
    """Nothing it reads gets a gradient from it; its gradient costs what the chosen tokens cost."""
    (tape, *_) = (one for one in kinds(load_model("deepseek-v3.2-exp")))
    nodes = {node.name: node for node in tape.nodes}
    assert not nodes["attention.index_q"].dgrad
    assert nodes["attention.index_q"].wgrad
    assert "attention.index_q.total" not in {op.name for op in tape.backward_ops("none")}
    (scores,) = nodes["attention.index"].dgrad
    assert scores.flops(BATCH) == 3 * nodes["attention.index"].forward[0].flops(BATCH)  # all are chosen of so few


def test_the_first_and_last_ranks_hold_a_narrow_tied_embedding() -> None:
    model = load_model("opt-350m")
    assert model.tied_embeddings
    assert embedding(model, Cut(seq=SEQ), STYLES["fused"]).nodes[0].parameters == (
        model.vocab * model.embedding_width + model.learned_positions * model.hidden
    )
