"""Layers with their gradients: kept bytes as published, FLOPs and parameters worked out by hand, cuts exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from tests.graph.shapes import EVERY_MODE, dense

from gnomon.engines.megatron.style import fused, parted
from gnomon.engines.torch.style import style as eager
from gnomon.graph.layers import Cut, embedding, head, layer
from gnomon.graph.ops import Attention, Collective, Elementwise, Gemm, Op
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import Tape, TapeNode
from gnomon.load import model as load_model
from gnomon.spec import Batch, Model

SEQ, SEQUENCES = 1024, 2
BATCH = Batch.prefill(SEQUENCES, SEQ)
TOKENS = SEQ * SEQUENCES
PARTED = {"2.4": parted(overlap=False, gradient_dtype="bf16"), "3.0": parted(overlap=True, gradient_dtype="fp32")}
GPT, LLAMA = load_model("gpt-22b"), load_model("llama-3.1-8b")
STYLES = {"parted": PARTED["3.0"], "fused": fused(), "torch": eager(GPT)}


def a_layer(model: Model, style: KernelStyle, tp: int = 1, sequence_parallel: bool = False, seq: int = SEQ) -> Tape:
    return layer(model, model.blocks[0], Cut(seq=seq, tp=tp, sequence_parallel=sequence_parallel), style)


def parts(model: Model, style: KernelStyle, tp: int = 1, sequence_parallel: bool = False) -> tuple[Tape, Tape, Tape]:
    cut = Cut(seq=SEQ, tp=tp, sequence_parallel=sequence_parallel)
    return embedding(model, cut, style), layer(model, model.blocks[0], cut, style), head(model, cut, style)


def flops(ops: Iterable[Op]) -> float:
    return float(sum(op.count * op.flops(BATCH)[0] for op in ops))


def matrices(model: Model) -> int:
    """Numbers in the products of one layer."""
    mixer, ffn = model.blocks[0].mixer, model.blocks[0].ffn
    ups = 2 if getattr(ffn, "gated", False) else 1
    return model.hidden * (2 * mixer.q_width + 2 * mixer.kv_width) + (ups + 1) * model.hidden * ffn.inner


# Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", table 2 and section 5.
PUBLISHED: dict[str, tuple[int, bool, str, Callable[[int, int, int, int], float]]] = {
    "no parallelism": (1, False, "none", lambda h, a, s, t: h * (34 + 5 * a * s / h)),
    "tensor": (8, False, "none", lambda h, a, s, t: h * (10 + 24 / t + 5 * a * s / (h * t))),
    "tensor and sequence": (8, True, "none", lambda h, a, s, t: h / t * (34 + 5 * a * s / h)),
    "tensor, selective": (8, False, "selective", lambda h, a, s, t: h * (10 + 24 / t)),
    "tensor and sequence, selective": (8, True, "selective", lambda h, a, s, t: 34 * h / t),
    "no parallelism, selective": (1, False, "selective", lambda h, a, s, t: 34 * h),
    "full": (1, False, "full", lambda h, a, s, t: 2 * h),
    "tensor, full": (8, False, "full", lambda h, a, s, t: 2 * h),
    "tensor and sequence, full": (8, True, "full", lambda h, a, s, t: 2 * h / t),
}


@pytest.mark.parametrize("version", PARTED)
@pytest.mark.parametrize("seq", [512, 2048])
@pytest.mark.parametrize("case", PUBLISHED)
def test_kept_bytes_as_published(case: str, seq: int, version: str) -> None:
    tp, cut, mode, expected = PUBLISHED[case]
    found = a_layer(GPT, PARTED[version], tp, cut, seq).saved_activation_bytes(mode)
    assert found == pytest.approx(expected(GPT.hidden, GPT.blocks[0].mixer.heads, seq, tp), rel=1e-12)


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=lambda model: model.name)
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("name", STYLES)
def test_flops_by_hand(name: str, tp: int, model: Model) -> None:
    """A product twice its weights a token; attention over the causal pairs in one kernel, the whole square in parts."""
    tape, width = a_layer(model, STYLES[name], tp, True), model.blocks[0].mixer.q_width
    pairs = SEQ**2 if name == "parted" else SEQ * (SEQ + 1) / 2
    products, attention = 2 * matrices(model) * TOKENS / tp, 4 * SEQUENCES * pairs * width / tp
    assert flops(tape.forward_ops()) == products + attention
    twice = 2 * attention if name == "parted" else 2.5 * attention
    assert flops(tape.backward_ops("none")) == 2 * products + twice


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputing_adds_what_is_rerun(mode: str, name: str) -> None:
    tape = a_layer(GPT, STYLES[name])
    forward, plain = flops(tape.forward_ops()), flops(tape.backward_ops("none"))
    pairs = SEQ**2 if name == "parted" else SEQ * (SEQ + 1) / 2
    attention = 4 * SEQUENCES * pairs * GPT.hidden
    last_product = 2 * GPT.hidden * GPT.blocks[0].ffn.inner * TOKENS
    expected = {
        ("full", "parted"): forward,
        ("full", "fused"): forward,
        ("full", "torch"): forward - last_product,
        ("selective", "parted"): attention,
        ("selective", "fused"): attention,
        ("selective", "torch"): 0.0,
    }
    assert flops(tape.backward_ops(mode)) - plain == expected[mode, name]


@pytest.mark.parametrize("name", STYLES)
def test_rerun_operators_are_those_of_the_forward_pass(name: str) -> None:
    """With FLOPs or without: the first operators of the backward pass are a part of the forward's, in its order."""
    tape = a_layer(GPT, STYLES[name], 2, True)
    forward, plain = tape.forward_ops(), tape.backward_ops("none")
    for mode in ("selective", "full"):
        again = tape.backward_ops(mode)[: -len(plain)]
        assert tape.backward_ops(mode) == again + plain
        places = [forward.index(op) for op in again]
        assert places == sorted(places)
        assert again


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "sequence parallel"])
@pytest.mark.parametrize("name", STYLES)
def test_tensor_parallel_cuts_products_exactly(name: str, cut: bool) -> None:
    for alone, part in zip(parts(GPT, STYLES[name]), parts(GPT, STYLES[name], 8, cut), strict=True):
        for op, piece in zip(_products(alone), _products(part), strict=True):
            assert op.name == piece.name
            assert op.flops(BATCH)[0] == 8 * piece.flops(BATCH)[0]
            assert op.count == piece.count


def _products(tape: Tape) -> list[Gemm | Attention]:
    ops = tape.forward_ops() + tape.backward_ops("none")
    return [op for op in ops if isinstance(op, (Gemm, Attention))]


def carried(ops: Iterable[Op]) -> float:
    """Bytes on the wire but for the common factor of ranks: an all-reduce passes its bytes twice."""
    passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    return float(sum(passes[op.op] * op.bytes(BATCH)[0] for op in ops if isinstance(op, Collective)))


@pytest.mark.parametrize("name", ["torch", "parted"])
def test_a_cut_sequence_moves_as_many_bytes(name: str) -> None:
    """An all-reduce is a reduce-scatter and an all-gather; Megatron gathers once more rather than keep the whole."""
    whole, cut = a_layer(GPT, STYLES[name], 4), a_layer(GPT, STYLES[name], 4, True)
    once = GPT.hidden * 2 * TOKENS
    assert carried(whole.forward_ops()) == carried(cut.forward_ops()) == 4 * once
    assert carried(whole.backward_ops("none")) == 4 * once
    gathered_again = 2 * once if name == "parted" else 0
    assert carried(cut.backward_ops("none")) == 4 * once + gathered_again
    assert {op.op for op in whole.forward_ops() if isinstance(op, Collective)} == {"all_reduce"}
    assert {op.op for op in cut.forward_ops() if isinstance(op, Collective)} == {"all_gather", "reduce_scatter"}
    assert carried(a_layer(GPT, STYLES[name]).backward_ops("full")) == 0


COUNTED = ["gpt-22b", "gpt-1.7b", "gpt3-175b", "llama-3.1-8b", "llama-3.2-1b", "llama-3.1-70b"]


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("name", COUNTED)
def test_ranks_hold_the_model(name: str, tp: int) -> None:
    """Over all ranks: every parameter once, but for what each holds whole (norms, learnt positions, biases after the
    sum) and for rows that fill the vocabulary up."""
    model = load_model(name)
    first, one, last = parts(model, fused(), tp)
    mixer, ffn = model.blocks[0].mixer, model.blocks[0].ffn
    norms = (2 * model.layers + 1) * model.hidden * (2 if model.norm_bias else 1)
    after_sums = model.layers * model.hidden * (mixer.out_bias + getattr(ffn, "bias", False))
    copied = norms + after_sums + model.learned_positions * model.hidden
    filling = (-(-model.vocab // tp) * tp - model.vocab) * model.hidden * (1 if model.tied_embeddings else 2)
    held = tp * (first.parameters + model.layers * one.parameters + last.parameters)
    assert held == model.parameters + (tp - 1) * copied + filling


def test_norms_of_queries_and_keys_are_parameters() -> None:
    plain = dense()
    mixer = replace(plain.blocks[0].mixer, qk_norm=True)
    normed = replace(plain, blocks=(replace(plain.blocks[0], mixer=mixer),))
    more = a_layer(normed, fused()).parameters - a_layer(plain, fused()).parameters
    assert plain.layers * more == normed.parameters - plain.parameters


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("cut", [False, True])
def test_tensors_are_written_before_they_are_read(name: str, cut: bool) -> None:
    for model in (GPT, LLAMA):
        for tape in parts(model, STYLES[name], 2, cut):
            made = {"in"}
            for node in tape.nodes:
                assert set(node.reads) <= made, node.name
                made |= set(node.writes)
                assert set(node.keeps) <= made, node.name
                assert set(node.writes) <= set(tape.sizes)
            for mode in EVERY_MODE:
                assert tape.stays(mode) <= made


@pytest.mark.parametrize("name", STYLES)
def test_what_is_kept_can_be_had(name: str) -> None:
    """All that a gradient needs has stayed or is written again, from what has stayed or was written again."""
    tape = a_layer(GPT, STYLES[name], 2, True)
    for mode in EVERY_MODE:
        there = set(tape.stays(mode))
        for node in tape.recomputed(mode):
            assert set(node.reads) <= there, (mode, node.name)
            there |= set(node.writes)
        assert {tensor for node in tape.nodes for tensor in node.keeps} <= there


@pytest.mark.parametrize("name", STYLES)
def test_less_is_kept_the_more_is_recomputed(name: str) -> None:
    tape = a_layer(GPT, STYLES[name])
    none, selective, full = (tape.saved_activation_bytes(mode) for mode in ("none", "selective", "full"))
    assert none > selective > full == 2 * GPT.hidden


def test_kept_bytes_of_eager_layers_by_hand() -> None:
    """Llama 3.1 8B under PyTorch: 4,096 wide, queries 4,096, keys and values 1,024, 14,336 inside; two bytes a value.

    Kept: the stream before each norm and what the norm made; turned queries and keys, values, what attention made and
    one fp32 a head; gate, what the gate bent, up, and their product.
    """
    tape = a_layer(LLAMA, eager(LLAMA))
    attention = 2 * (4096 + 1024 + 1024 + 4096) + 4 * 32
    assert tape.saved_activation_bytes("none") == 2 * 4 * 4096 + attention + 2 * 4 * 14336
    # Selective: the stream, and results of products and attention: q, k, v, mixed, out, gate, up, down.
    products = 2 * (4096 + 1024 + 1024 + 4096 + 4096 + 2 * 14336 + 4096) + 4 * 32
    assert tape.saved_activation_bytes("selective") == 2 * 4096 + products


def test_the_logits_are_the_heads() -> None:
    """fp32 probabilities stay for the gradient; a rank has its part of the vocabulary, rounded up."""
    rank = head(GPT, Cut(seq=SEQ, tp=8), fused())
    assert rank.sizes["likely"] == 4 * -(-GPT.vocab // 8)
    assert rank.saved_activation_bytes("none") == rank.sizes["likely"] + 2 * 2 * GPT.hidden
    assert flops(rank.forward_ops()) == 2 * -(-GPT.vocab // 8) * GPT.hidden * TOKENS
    assert rank.parameters == 2 * GPT.hidden, "the matrix is the embedding's"


def test_hidden_collectives_are_named_where_they_overlap() -> None:
    """2.4 hides nothing; 3.0 runs the collectives of the backward pass beside the products that are there."""

    def beside(version: str) -> dict[str, tuple[str, ...]]:
        return {node.name: node.beside for node in a_layer(GPT, PARTED[version], 4, True).nodes if node.beside}

    assert beside("2.4") == {}
    assert set(beside("3.0")) == {"attention.enter", "ffn.enter"}
    names = {node.name for node in a_layer(GPT, PARTED["3.0"], 4, True).nodes}
    assert all(names & set(products) for products in beside("3.0").values())


@pytest.mark.parametrize("name", STYLES)
def test_streams_are_cut_with_the_sequence(name: str) -> None:
    """Norms and residuals run on a rank's tokens; what stands inside the matrices on its columns."""
    whole, cut = a_layer(GPT, STYLES[name], 4), a_layer(GPT, STYLES[name], 4, True)

    def moved(tape: Tape, node: str) -> float:
        (found,) = (one for one in tape.nodes if one.name == node)
        return float(sum(op.bytes(BATCH)[0] * op.count for op in _streams(found)))

    for node in ("attention.norm", "attention.residual", "ffn.norm", "ffn.residual"):
        assert moved(whole, node) == 4 * moved(cut, node) > 0
    assert moved(whole, "ffn.activation") == moved(cut, "ffn.activation")
    assert moved(a_layer(GPT, STYLES[name]), "ffn.activation") == 4 * moved(cut, "ffn.activation")


def _streams(node: TapeNode) -> list[Elementwise]:
    return [op for op in node.forward + node.dgrad + node.wgrad if isinstance(op, Elementwise)]
