"""Gradients as a pass: duals of collectives, two GEMMs for one, sums where a tensor has several readers; and laws that
hold for every network that is trained."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

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
        for mode in ("none", "selective", "full"):
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
@pytest.mark.parametrize("name", HYBRIDS[:4] + HYBRIDS[5:])
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
