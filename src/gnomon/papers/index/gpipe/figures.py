"""GPipe (Huang et al. 2018): the largest Transformer by number of cores, and throughput by stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.sim.training import regular, schedule, timeline

GIB = 1024**3
CORE_BYTES = 16 * GIB
HIDDEN, HEADS, INNER, VOCAB, SEQ, BATCH = 2048, 32, 8192, 32_000, 1024, 32
PARAMETER_BYTES = 12.0
WORKING_BYTES, VALUE_BYTES = 2.0, 4.0
"""Of a value in what Gnomon prices, and in what the paper ran: 12 bytes per parameter are three fp32 numbers."""
MOST = 64
"""Layers of one core: more were never near."""
LAYERS = {1: 13, 8: 103, 32: 415, 128: 1663}
"""By cores: table 1, Transformer, Pipeline-1 to Pipeline-128."""
NAIVE_LAYERS = 3
STAGES = {1: (4, 8), 4: (2, 4, 8), 32: (2, 4, 8)}
"""By micro-batches: table 2, rates beside two stages and one micro-batch."""


@cache
def _stages(layers: int, stages: int, sequences: int) -> tuple[tuple[float, float], ...]:
    """Parameters, and bytes of what one micro-batch keeps and needs, of every stage of so many layers each."""
    blocks = plain_layers(layers * stages, HIDDEN, HEADS, INNER)
    model = network("transformer", hidden=HIDDEN, vocab=VOCAB, max_context=SEQ, norm_bias=True, blocks=blocks)
    found = gnomon.simulate_training(
        model, on=f"TPU-v3:{stages}", seq=SEQ, global_batch=sequences, micro_batch=sequences, pp=stages,
        schedule="gpipe", engine="megatron@2.4", dtype="bf16",
    )  # fmt: skip
    wider = VALUE_BYTES / WORKING_BYTES
    return tuple(
        (part["weights"] / WORKING_BYTES, (part["activations"] + part["working"]) * wider)
        for part in found.memory_parts
    )


def _pipelined(layers: int, place: int, alone: bool) -> tuple[float, float]:
    """Bytes of parameters and of activations of one core: the first, a middle or the last of a pipeline, or alone.
    It keeps its inputs of all micro-batches, and all tensors of the one that it recomputes."""
    parameters, one = _stages(layers, 1, 1)[0] if alone else _stages(layers, 3, 1)[place]
    return PARAMETER_BYTES * parameters, one + VALUE_BYTES * BATCH * SEQ * HIDDEN


def _most(place: int = 0, alone: bool = False) -> int:
    """The most layers that one core holds."""
    return max(n for n in range(1, MOST) if sum(_pipelined(n, place, alone)) <= CORE_BYTES)


def _largest(cores: int) -> int:
    return _most(alone=True) if cores == 1 else _most(0) + (cores - 2) * _most(1) + _most(2)


def _printed(cores: int, layers: int) -> tuple[float, float]:
    """GiB of parameters and of activations over all cores, of the network that the paper prints."""
    if cores == 1:
        held = [_pipelined(layers, 0, True)]
    else:
        each = -(-layers // cores)
        held = [_pipelined(each, 0, False), *[_pipelined(each, 1, False)] * (cores - 2), _pipelined(each - 1, 2, False)]
    return sum(one for one, _ in held) / GIB, sum(other for _, other in held) / GIB


def _sizes() -> Iterator[Ours]:
    for cores, layers in LAYERS.items():
        parameters, activations = _printed(cores, layers)
        yield f"Table 1, most layers on {cores} cores", _largest(cores)
        yield f"Table 1, parameters of {layers} layers", parameters
        yield f"Table 1, activations of {layers} layers", activations


def _naive() -> Iterator[Ours]:
    """Without GPipe: the whole batch at once, nothing recomputed."""
    fits = [n for n in range(1, 8) if _naive_bytes(n) <= CORE_BYTES]
    parameters, kept = _stages(NAIVE_LAYERS, 1, BATCH)[0]
    yield "Table 1, most layers without GPipe", max(fits, default=0)
    yield "Table 1, parameters without GPipe", PARAMETER_BYTES * parameters / GIB
    yield "Table 1, activations without GPipe", kept / GIB


def _naive_bytes(layers: int) -> float:
    parameters, kept = _stages(layers, 1, BATCH)[0]
    return PARAMETER_BYTES * parameters + kept


def _step_s(stages: int, micros: int) -> float:
    """Of one batch of one second of forward, cut evenly; a backward, with its forward again, takes three times that."""
    forward_s = 1 / (stages * micros)
    orders = schedule("gpipe").tasks(stages, 1, micros)
    return timeline(orders, regular(stages, 1, forward_s, 3 * forward_s)).pipeline_s


def _rates() -> Iterator[Ours]:
    for micros, row in STAGES.items():
        for stages in row:
            what = f"Table 2, Transformer-48, {stages} stages, {micros} micro-batches"
            yield what, _step_s(2, 1) / _step_s(stages, micros)
    for stages in (4, 8):
        yield f"Table 3, Transformer-24, {stages} stages on P100", _step_s(2, 32) / _step_s(stages, 32)


def figures() -> Iterator[Ours]:
    yield from _rates()
    yield from _sizes()
    yield from _naive()
