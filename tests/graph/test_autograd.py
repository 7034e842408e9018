"""Mixtures, latent attention, windows and context parallelism with gradients: parameters, FLOPs and kept bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from gnomon.catalog import model_names
from gnomon.engines.megatron.style import fused
from gnomon.errors import InputError
from gnomon.graph.core import CoreAttention
from gnomon.graph.gemm_recipes import CURRENT
from gnomon.graph.layers import Cut, embedding, head, layer
from gnomon.graph.ops import Collective, Gemm, Op
from gnomon.graph.style import KernelStyle, Stream
from gnomon.graph.tape import Tape, TapeNode
from gnomon.graph.trained import check_trained
from gnomon.graph.windows import Window
from gnomon.load import model as load_model
from gnomon.spec import Batch, Model

SEQ = 1024
BATCH = Batch.prefill([2], SEQ)
TOKENS = 2 * SEQ
MIXTRAL, QWEN, DEEPSEEK = (load_model(name) for name in ("mixtral-8x7b", "qwen1.5-moe-a2.7b", "deepseek-v3"))


def trained(name: str) -> bool:
    try:
        check_trained(load_model(name))
    except InputError:
        return False
    return True


def flops(ops: Iterable[Op], batch: Batch = BATCH) -> float:
    return float(sum(op.count * op.flops(batch)[0] for op in ops))


def last_layer(model: Model, **cut: object) -> Tape:
    return layer(model, model.blocks[-1], Cut(seq=SEQ, **cut), fused())  # type: ignore[arg-type]


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", [name for name in model_names() if trained(name)])
def test_tapes_hold_every_parameter_of_the_model(name: str) -> None:
    model, cut = replace(load_model(name), mtp=()), Cut(seq=SEQ)
    layers = sum(block.count * layer(model, block, cut, fused()).parameters for block in model.blocks)
    ends = embedding(model, cut, fused()).parameters + head(model, cut, fused()).parameters
    assert layers + ends == model.parameters


def test_mixture_by_hand() -> None:
    """Two of eight experts a token, three matrices each; the router; attention as in a dense layer."""
    tape, hidden, inner = last_layer(MIXTRAL), 4096, 14336
    products = hidden * (2 * 4096 + 2 * 1024) + hidden * 8 + 2 * 3 * hidden * inner
    attention = 4 * 4096 * 2 * SEQ * (SEQ + 1) / 2
    assert flops(tape.forward_ops()) == pytest.approx(2 * TOKENS * products + attention, rel=1e-12)
    assert flops(tape.backward_ops("none")) == pytest.approx(4 * TOKENS * products + 2.5 * attention, rel=1e-12)
    # Both norms' inputs and results, queries, keys, values, what is mixed and a number a head; then the router's fp32
    # shares and map, the rows sent to experts, gate, up and their product of two experts.
    attended = 2 * (2 * hidden + 2 * 4096 + 2 * 1024) + 32 * 4
    experts = 2 * (2 * hidden) + 8 * 5 + 2 * 2 * (hidden + 3 * inner)
    assert tape.saved_activation_bytes("none") == attended + experts
    assert tape.saved_activation_bytes("full") == 2 * hidden


@pytest.mark.parametrize("model", [MIXTRAL, QWEN, DEEPSEEK], ids=lambda model: model.name)
@pytest.mark.parametrize(("tp", "expert_tp"), [(2, 2), (2, 1), (4, 4), (4, 1)])
@pytest.mark.parametrize("ep", [1, 2, 4])
def test_ranks_share_the_work_and_the_experts_out(model: Model, tp: int, expert_tp: int, ep: int) -> None:
    """FLOPs of all tensor-parallel ranks are those of one alone; experts of all ranks are the model's."""
    alone = last_layer(model)
    part = last_layer(model, tp=tp, sequence_parallel=True, ep=ep, expert_tp=expert_tp)
    for mode in ("none", "selective", "full"):
        assert tp * flops(part.backward_ops(mode)) == pytest.approx(flops(alone.backward_ops(mode)), rel=1e-9)
    assert tp * flops(part.forward_ops()) == pytest.approx(flops(alone.forward_ops()), rel=1e-9)
    assert part.experts * ep * expert_tp == alone.experts


def test_what_experts_exchange() -> None:
    """Every visit of a token goes to its expert's rank and back, both ways; cut experts gather and scatter too."""
    tape = last_layer(MIXTRAL, tp=2, sequence_parallel=True, ep=4, expert_tp=2)
    sent = {op.name: (op.op, op.ranks, op.stride, float(op.bytes(BATCH)[0]))
            for op in tape.forward_ops() if isinstance(op, Collective) and op.name.startswith("ffn.")}  # fmt: skip
    visits = TOKENS * 2 * 4096 * 2.0  # two experts a token, two bytes a value
    assert sent == {
        "ffn.dispatch": ("all_to_all", 4, 2, visits / 2),
        "ffn.dispatch.enter": ("all_gather", 2, 1, visits),
        "ffn.combine.leave": ("reduce_scatter", 2, 1, visits),
        "ffn.combine": ("all_to_all", 4, 2, visits / 2),
    }


def test_latent_attention_by_hand() -> None:
    """DeepSeek V3: queries and keys folded, unfolded to 128 heads of 192 and 128 channels."""
    tape, hidden = layer(DEEPSEEK, DEEPSEEK.blocks[0], Cut(seq=SEQ), fused()), 7168
    matrices = hidden * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * hidden + 3 * hidden * 18432
    pairs = 2 * SEQ * (SEQ + 1) / 2
    attention = 2 * pairs * 128 * (192 + 128)
    assert flops(tape.forward_ops()) == pytest.approx(2 * TOKENS * matrices + attention, rel=1e-12)
    back = 2 * pairs * 128 * (3 * 192 + 2 * 128)
    assert flops(tape.backward_ops("none")) == pytest.approx(4 * TOKENS * matrices + back, rel=1e-12)


@pytest.mark.parametrize("comm", ["p2p", "a2a", "allgather", "a2a+p2p"])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_parallel_ranks_share_the_work_out(cp: int, comm: str) -> None:
    """The work of all ranks is that of one; a rank keeps its part of every tensor."""
    model = load_model("llama-3.1-8b")
    alone, part = last_layer(model), last_layer(model, cp=cp, cp_comm=comm, cp_a2a=2)
    piece = Batch.prefill([2], SEQ // cp)
    for mode in ("none", "full"):
        assert cp * flops(part.backward_ops(mode), piece) == pytest.approx(flops(alone.backward_ops(mode)), rel=1e-12)
    assert part.saved_activation_bytes("none") == alone.saved_activation_bytes("none")


def test_casts_to_eight_bits() -> None:
    """By default an operand is read once and written twice; with a scale found first it is read twice, and what the
    GEMM by weight needs transposed is a kernel of its own."""
    model = load_model("llama-3.1-8b")
    cut = Cut(seq=SEQ, matrix="fp8")
    scaled = replace(fused(), recipe=CURRENT, late_transpose=True)

    def down(style: KernelStyle) -> dict[str, float]:
        node = next(node for node in layer(model, model.blocks[-1], cut, style).nodes if node.name == "ffn.down")
        ops = (*node.forward, *node.dgrad, *node.wgrad)
        return {op.name: float(op.count * op.bytes(BATCH)[0]) / TOKENS for op in ops if op.kind == "elementwise"}

    assert down(fused()) == {"ffn.down.cast": 4 * 14336, "ffn.down.cast.by_input": 4 * 4096}
    found = down(scaled)
    assert found == {
        "ffn.down.cast": pytest.approx(5 * 14336),
        "ffn.down.cast.by_input": pytest.approx(7 * 4096),
        "ffn.down.transpose": pytest.approx(2 * 14336),
    }


@pytest.mark.parametrize("cp", [1, 2, 8])
def test_merged_blocks_of_a_ring(cp: int) -> None:
    """Each block after the first is merged in kernels of its own, and every query head's keys travel: four times as
    many as there are, and their gradients in fp32."""
    model, merged = load_model("llama-3.1-8b"), Stream(9, 7, 13, 11, 5, 8)
    cut = Cut(seq=SEQ, cp=cp)
    plain, other = (layer(model, model.blocks[-1], cut, replace(fused(), merged=one)) for one in (None, merged))

    def core(tape: Tape) -> TapeNode:
        return next(node for node in tape.nodes if node.name == "attention.core")

    def moved(ops: Iterable[Op], kind: str) -> float:
        return float(sum(op.count * op.bytes(BATCH)[0] for op in ops if op.kind == kind))

    there, back = core(other).forward, core(other).dgrad
    values = 4096 * TOKENS * 2
    assert moved(there, "elementwise") == pytest.approx((cp - 1) * 16 * values)
    assert moved(back, "elementwise") == pytest.approx((cp - 1) * 24 * values)
    assert moved(there, "send_recv") == 4 * moved(core(plain).forward, "send_recv")
    if cp > 1:
        ratio = 4 * ((cp - 1) + 2 * cp) / (2 * cp - 1)
        assert moved(back, "send_recv") == pytest.approx(ratio * moved(core(plain).dgrad, "send_recv"))


def test_two_levels_of_context_parallelism_with_one_are_its_own_kind() -> None:
    model = load_model("llama-3.1-8b")
    for inner, kind in ((1, "p2p"), (8, "a2a")):
        both = last_layer(model, cp=8, cp_comm="a2a+p2p", cp_a2a=inner), last_layer(model, cp=8, cp_comm=kind)
        assert both[0].nodes == both[1].nodes


@pytest.mark.parametrize(("inner", "outer"), [(2, 4), (4, 2)])
def test_two_levels_trade_heads_inside_and_send_keys_around_a_shorter_ring(inner: int, outer: int) -> None:
    """Per token of a rank: queries, keys, values and results traded among neighbours; keys and values over outer - 1
    hops, as many bytes a hop as in a ring of all."""
    model, piece = load_model("llama-3.1-8b"), Batch.prefill([2], SEQ // 8)
    tape = last_layer(model, cp=8, cp_comm="a2a+p2p", cp_a2a=inner)
    node = next(node for node in tape.nodes if node.name == "attention.core")
    sent = {op.name: (op.op, op.ranks, op.count, float(op.bytes(piece)[0]))
            for op in node.forward if isinstance(op, Collective)}  # fmt: skip
    tokens, keys = TOKENS / 8, 2 * 1024 * 2.0
    assert sent == {
        "attention.scatter": ("all_to_all", inner, 1, tokens * (4096 * 2 + keys)),
        "attention.ring": ("send_recv", 2, outer - 1, tokens * keys),
        "attention.gather": ("all_to_all", inner, 1, tokens * 4096 * 2),
    }


@pytest.mark.parametrize("seq", [1, 2, 7, 64])
@pytest.mark.parametrize("window", [1, 2, 5, 64, 100])
def test_windows_count_the_pairs_they_leave(seq: int, window: int) -> None:
    op = CoreAttention(
        name="a", phase="forward", heads=1, kv_heads=1, head_dim=1, kv_dtype="bf16", window=Window(window)
    )
    counted = sum(min(place + 1, window) for place in range(seq))
    assert op.shape(Batch.prefill([3], seq))["pairs"][0] == 3 * counted


def test_narrow_products_keep_half() -> None:
    """In eight bits what a weight product read stays in one byte a value; norms and attention keep what they did."""
    model = load_model("llama-3.1-8b")
    wide, narrow = last_layer(model), last_layer(model, matrix="fp8")
    inputs = 2 * (4096 + 4096 + 4096 + 14336)  # of the four products, in bf16
    also_for_attention = 2 * 4096  # what attention gave stays for its own gradient as well
    assert (
        wide.saved_activation_bytes("none") - narrow.saved_activation_bytes("none") == inputs / 2 - also_for_attention
    )
    assert {op.dtype for op in narrow.forward_ops() if isinstance(op, Gemm)} == {"fp8"}
    assert flops(narrow.forward_ops()) == flops(wide.forward_ops())
    assert narrow.narrow_parameters == sum(t.rows * t.columns for t in model.blocks[0].tensors(4096) if t.columns > 1)


def test_parallel_blocks_have_one_norm_where_the_model_has() -> None:
    model = load_model("llama-3.1-8b")
    block = replace(model.blocks[0], parallel=True, norms=1)
    tape = layer(model, block, Cut(seq=SEQ), fused())
    assert tape.parameters == block.parameters(model.hidden, model.norm_parameters)
    assert np.isclose(flops(tape.forward_ops()), flops(last_layer(model).forward_ops()))
