"""Sequence parallelism (Li et al. 2021): batches and sequences that fit a ring of P100, beside tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model
from gnomon.spec.answers import TrainingReport

LAYERS, HIDDEN, HEADS, INNER, VOCAB = 12, 768, 12, 3072, 30_528
SEQ, BATCH = 512, 64
RING, TENSOR = 64, HEADS
"""GPUs of the longest ring, and the most that tensor parallelism can use: one a head."""
SHORT_RING = 16
COPIES = 4
"""Numbers of a parameter as the paper counts: weight, gradient and two moments, each as wide as an activation."""
WEAK = 4
"""Tensor-parallel GPUs of the table of weak scaling, each of which brings `BATCH` sequences of `SEQ` tokens."""
MOST = 1 << 20


@cache
def _bert(layers: int = LAYERS) -> Model:
    blocks = plain_layers(layers, HIDDEN, HEADS, INNER)
    shape = {"hidden": HIDDEN, "vocab": VOCAB, "max_context": MOST, "norm_bias": True, "tied_embeddings": True}
    return network("bert-base", **shape, blocks=blocks)


def _step(model: Model, batch: int, seq: int, tp: int) -> TrainingReport:
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


def _fits() -> Iterator[Ours]:
    """A GPU of a ring of N holds of B sequences what one GPU alone holds of B / N: as many tokens, and as many scores,
    since each of its tokens looks at the whole sequence."""
    model = _bert()
    ring_batch = RING * _most(lambda batch: _step(model, batch, SEQ, 1).fits)
    tensor_batch = _most(lambda batch: _step(model, batch, SEQ, TENSOR).fits)
    ring_seq = _most(lambda seq: _step(model, BATCH // RING, seq, 1).fits)
    short_seq = _most(lambda seq: _step(model, BATCH // SHORT_RING, seq, 1).fits)
    tensor_seq = _most(lambda seq: _step(model, BATCH, seq, TENSOR).fits)
    against = f"{TENSOR} tensor-parallel ones"
    yield f"largest batch, {RING} GPUs in a ring beside {against}", ring_batch / tensor_batch
    yield f"longest sequence, {RING} GPUs in a ring beside {against}", ring_seq / tensor_seq
    yield f"longest sequence, {SHORT_RING} GPUs in a ring beside {against}", short_seq / tensor_seq


def _weak_scaling() -> Iterator[Ours]:
    """Memory of a tensor-parallel GPU, whose share of the layers shrinks while the whole batch is on each."""
    many, one = (_step(_bert(), BATCH * tp, SEQ, tp).peak_memory_bytes.value for tp in (WEAK, 1))
    yield f"memory of {WEAK} tensor-parallel GPUs beside one, {BATCH} sequences a GPU", many / one


def _crossover() -> Iterator[Ours]:
    """Tokens from which a layer needs less in a ring than in tensor parallel, in multiples of the channels. A block's
    weights, gradients and two moments are whole in a ring; one tensor more a block is whole in tensor parallel."""
    blocks = {"feed-forward": 2 * HIDDEN * INNER, "attention": 4 * HIDDEN * HIDDEN}
    for name, parameters in blocks.items():
        tokens = COPIES * parameters / HIDDEN
        yield f"tokens where a ring needs less, {name}, by the paper's tensors", tokens / HIDDEN
    (whole, kept), (part, cut) = _of_a_layer(1), _of_a_layer(TENSOR)
    tokens = (whole - part) / (cut - kept / TENSOR)
    yield "tokens where a ring needs less, a layer, by our tensors", tokens / HIDDEN


def _of_a_layer(tp: int) -> tuple[float, float]:
    """Bytes of a layer's weights, gradients and states, and bytes of a token that it keeps."""
    found = []
    for layers in (LAYERS, 2 * LAYERS):
        (part,) = _step(_bert(layers), 1, SEQ, tp).memory_parts
        found.append((part["weights"] + part["gradients"] + part["optimizer"], part["activations"] / SEQ))
    (states, kept), (more_states, more_kept) = found
    return (more_states - states) / LAYERS, (more_kept - kept) / LAYERS


def _moved(model: Model, tp: int, cp: int) -> float:
    """Bytes that a rank sends in its layers, forward and backward: an all-reduce goes round twice."""
    ranks = tp * cp
    found = gnomon.predict(
        model, on=f"P100-PCIe-16GB:{ranks}", phase="train", batch=8, tokens=SEQ * HEADS, engine="megatron",
        dtype="fp16", tp=tp, cp=cp, settings={"micro_batch": 8, "sequence_parallel": False},
    )  # fmt: skip
    sent = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}
    inside = [line for line in found.breakdown if line.op.startswith(("attention.", "ffn.")) and line.kind in sent]
    return sum(line.bytes * sent[line.kind] for line in inside)


def _volume() -> Iterator[Ours]:
    ratio = _moved(_bert(), tp=1, cp=4) / _moved(_bert(), tp=4, cp=1)
    yield "bytes a ring sends beside tensor parallelism, 4 GPUs", ratio


def figures() -> Iterator[Ours]:
    yield from _weak_scaling()
    yield from _fits()
    yield from _crossover()
    yield from _volume()
