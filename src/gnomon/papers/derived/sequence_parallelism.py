"""Sequence parallelism (Li et al. 2021): batches and sequences that fit a ring of P100, beside tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import gnomon
from gnomon.papers.base import Derivation, Figure, Input
from gnomon.papers.shapes import plain_layers, shapes_file
from gnomon.spec.answers import TrainingReport

PAPER = "arXiv:2105.13120"
LAYERS, HIDDEN, HEADS, INNER, VOCAB = 12, 768, 12, 3072, 30_528
SEQ, BATCH = 512, 64
RING, TENSOR = 64, HEADS
"""GPUs of the longest ring, and the most that tensor parallelism can use: one a head."""
SHORT_RING = 16
TOLERANCE = 0.20
"""What fits depends on what else a program holds, which the paper does not print."""
HEAD = (
    "The decoder that stands for BERT predicts every token, BERT the 15% that are masked, and a ring holds more of the "
    "logits: with that part of the logits ours is 11.5, without any 12.0. The rest: a GPU in a ring holds all states, "
    "2 of the 14.2 GB that Gnomon lets a job take."
)
HOPS = (
    "Forward both send keys and values once round. Backward the paper sums the gradients of keys and values by "
    "all-reduce, two rounds each; our ring, that of fused attention, sends them along, one round each: 20 parts of a "
    "sequence for the paper's 24."
)
COPIES = 4
"""Numbers of a parameter as the paper counts: weight, gradient and two moments, each as wide as an activation."""
MOST = 1 << 20


def _bert(layers: int = LAYERS) -> AbstractContextManager[Path]:
    blocks = plain_layers(layers, HIDDEN, HEADS, INNER)
    shape = {"hidden": HIDDEN, "vocab": VOCAB, "max_context": MOST, "norm_bias": True, "tied_embeddings": True}
    return shapes_file("bert-base", **shape, blocks=blocks)


def _step(model: Path, batch: int, seq: int, tp: int) -> TrainingReport:
    return gnomon.simulate_training(
        model, on=f"P100-PCIe-16GB:{tp}", seq=seq, global_batch=batch, micro_batch=batch, tp=tp,
        sequence_parallel=False, dtype="fp16", engine="megatron@2.4",
    )  # fmt: skip


def _most(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, where all smaller ones do."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fits() -> Iterator[Figure]:
    """A GPU of a ring of N holds of B sequences what one GPU alone holds of B / N: as many tokens, and as many scores,
    since each of its tokens looks at the whole sequence."""
    with _bert() as model:
        ring_batch = RING * _most(lambda batch: _step(model, batch, SEQ, 1).fits)
        tensor_batch = _most(lambda batch: _step(model, batch, SEQ, TENSOR).fits)
        ring_seq = _most(lambda seq: _step(model, BATCH // RING, seq, 1).fits)
        short_seq = _most(lambda seq: _step(model, BATCH // SHORT_RING, seq, 1).fits)
        tensor_seq = _most(lambda seq: _step(model, BATCH, seq, TENSOR).fits)
    against = f"{TENSOR} tensor-parallel ones"
    yield Figure(what=f"largest batch, {RING} GPUs in a ring beside {against}", claimed=13.7,
                 ours=ring_batch / tensor_batch, unit="x", tolerance=TOLERANCE, note=HEAD, claim=1)  # fmt: skip
    yield Figure(what=f"longest sequence, {RING} GPUs in a ring beside {against}", claimed=3.0,
                 ours=ring_seq / tensor_seq, unit="x", tolerance=TOLERANCE, claim=2)  # fmt: skip
    yield Figure(what=f"longest sequence, {SHORT_RING} GPUs in a ring beside {against}", claimed=1.4,
                 ours=short_seq / tensor_seq, unit="x", tolerance=TOLERANCE)  # fmt: skip


def _crossover() -> Iterator[Figure]:
    """Tokens from which a layer needs less in a ring than in tensor parallel, in multiples of the channels. A block's
    weights, gradients and two moments are whole in a ring; one tensor more a block is whole in tensor parallel."""
    blocks = {"feed-forward": (32.0, 2 * HIDDEN * INNER), "attention": (16.0, 4 * HIDDEN * HIDDEN)}
    for name, (claimed, parameters) in blocks.items():
        tokens = COPIES * parameters / HIDDEN
        what = f"tokens where a ring needs less, {name}, by the paper's tensors"
        yield Figure(
            what=what, claimed=claimed, ours=tokens / HIDDEN, unit="x channels", tolerance=0.0, kind="identity"
        )
    (whole, kept), (part, cut) = _of_a_layer(1), _of_a_layer(TENSOR)
    tokens = (whole - part) / (cut - kept / TENSOR)
    what = "tokens where a ring needs less, a layer, by our tensors"
    yield Figure(what=what, claimed=24.0, ours=tokens / HIDDEN, unit="x channels")


def _of_a_layer(tp: int) -> tuple[float, float]:
    """Bytes of a layer's weights, gradients and states, and bytes of a token that it keeps."""
    found = []
    for layers in (LAYERS, 2 * LAYERS):
        with _bert(layers) as model:
            (part,) = _step(model, 1, SEQ, tp).memory_parts
        found.append((part["weights"] + part["gradients"] + part["optimizer"], part["activations"] / SEQ))
    (states, kept), (more_states, more_kept) = found
    return (more_states - states) / LAYERS, (more_kept - kept) / LAYERS


def _moved(model: Path, tp: int, cp: int) -> float:
    """Bytes that a rank sends in its layers, forward and backward: an all-reduce goes round twice."""
    ranks = tp * cp
    found = gnomon.predict(
        model, on=f"P100-PCIe-16GB:{ranks}", phase="train", batch=8, tokens=SEQ * HEADS, engine="megatron",
        dtype="fp16", tp=tp, cp=cp, settings={"micro_batch": 8, "sequence_parallel": False},
    )  # fmt: skip
    sent = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}
    inside = [line for line in found.breakdown if line.op.startswith(("attention.", "ffn.")) and line.kind in sent]
    return sum(line.bytes * sent[line.kind] for line in inside)


def _volume() -> Iterator[Figure]:
    with _bert() as model:
        ratio = _moved(model, tp=1, cp=4) / _moved(model, tp=4, cp=1)
    what = "bytes a ring sends beside tensor parallelism, 4 GPUs"
    yield Figure(what=what, claimed=1.0, ours=ratio, unit="x", note=HOPS)


def figures() -> Sequence[Figure]:
    return [*_fits(), *_crossover(), *_volume()]


DERIVATION = Derivation(
    slug="sequence-parallelism",
    kind="predicted",
    setting="BERT-Base on up to 64 P100 of 16 GB: sequences cut over a ring, or layers over at most 12 GPUs",
    source=f"{PAPER}: abstract; crossover and volumes as a third party gives them",
    assumptions=(
        "A decoder of BERT-Base's shape stands for it: what looks both ways is not priced in training, and its layers "
        "have the same tensors. Its vocabulary is filled up to 30,528, so that twelve ranks can share it.",
        "Scores, softmax and dropout are kept, as before fused attention; nothing is run again.",
        "A GPU in a ring of N keeps of B sequences what one alone keeps of B / N; what goes round is small beside it.",
        "16-bit training with fp32 weights and AdamW, 18 bytes a parameter; the paper does not print its formats.",
        "Gnomon's reserve for libraries and fragments is taken off the 16 GB on both sides.",
        "Whole layers: 32 and 16 times the channels of the two blocks come to 24 for both together.",
        "Our ring is that of fused attention, whose gradients of keys and values go round once more than they do.",
    ),
    inputs=(
        Input(name="shape", value="12 layers, 768 channels, 12 heads", source="Devlin et al. 2018, BERT-Base"),
        Input(name="most tensor-parallel GPUs", value="12, one a head", source=f"{PAPER}, as a third party tells it"),
        Input(name="sequences of the largest batch", value="512 tokens", source=f"{PAPER}, recalled, not read"),
        Input(name="batch of the longest sequence", value="64", source=f"{PAPER}, recalled, not read"),
        Input(name="memory", value="16 GB", source="NVIDIA P100 PCIe data sheet, gnomon.catalog"),
        Input(name="tensors of a block", value="states of 32 H^2 and 16 H^2; tensor parallelism has one of B L H more",
              source=f"{PAPER}, as a third party tells it"),
    ),
    figures=figures,
    techniques=("ring-attention",),
    missing=(
        "114K tokens, 27x, with sparse attention: neither that attention in a ring nor what it keeps is built."
    ),
)  # fmt: skip
