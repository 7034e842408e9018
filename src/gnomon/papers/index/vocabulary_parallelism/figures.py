"""Vocabulary parallelism (Yeung et al. 2024): MFU and peak memory of a pipeline by its vocabulary, on 8 A100."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.sim.training import timeline
from gnomon.spec.answers import TrainingReport

CHIPS, LAYERS, HIDDEN, HEADS, INNER, MICROS = 8, 32, 3072, 24, 12288, 128
PEAK_FLOPS = 312e12
GB = 1024**3
METHODS = {
    "baseline": (),
    "vocab-1": ("vocabulary-parallel:barriers=2",),
    "vocab-2": ("vocabulary-parallel:barriers=1",),
}
ROWS = tuple((seq, words) for seq in (2048, 4096) for words in (32, 64, 128, 256))
"""Tokens of a sequence, thousands of words."""
REDISTRIBUTED = tuple(row for row in ROWS if row != (4096, 32))
"""Rows that are known with layers moved from the last stage to the others."""


@cache
def _step(seq: int, words: int, method: str) -> TrainingReport:
    blocks = plain_layers(LAYERS, HIDDEN, HEADS, INNER)
    fields = {"hidden": HIDDEN, "vocab": words * 1024, "max_context": seq, "learned_positions": seq, "norm_bias": True}
    return gnomon.simulate_training(
        network("gpt", **fields, blocks=blocks), on=f"A100-SXM-80GB:{CHIPS}", seq=seq, global_batch=MICROS, pp=CHIPS,
        dtype="bf16", techniques=METHODS[method],
    )  # fmt: skip


@cache
def _redistributed(seq: int, words: int) -> float:
    """Percent of MFU of the baseline with each layer on the stage that then has least to do."""
    found = _step(seq, words, "baseline")
    line, each = found.step.timeline, LAYERS // CHIPS
    ways = [line.times.forward_s, line.times.backward_s]
    layer = [float(way[1, 0]) / each for way in ways]
    beside = [way - each * one for way, one in zip(ways, layer, strict=True)]
    held = np.zeros((CHIPS, 1))
    for _ in range(LAYERS):
        held[np.argmin(sum(beside) + held * sum(layer))] += 1
    forward, backward = (more + held * one for more, one in zip(beside, layer, strict=True))
    moved = timeline(line.orders, replace(line.times, forward_s=forward, backward_s=backward))
    return _mfu(found) * float(line.step_s / moved.step_s)


def _mfu(found: TrainingReport) -> float:
    """Percent, with the FLOPs of Megatron-LM's count: attention over the whole square, nothing recomputed."""
    load, model = found.step.job.load, found.step.job.model
    beside = load.seq / (6 * HIDDEN) + model.vocab / (12 * LAYERS * HIDDEN)
    flops = 72 * load.global_batch * load.seq * LAYERS * HIDDEN**2 * (1 + beside)
    return float(100 * flops / (found.step_time_s.value * CHIPS * PEAK_FLOPS))


def _rows() -> Iterator[Ours]:
    for seq, words in ROWS:
        for method in METHODS:
            found, where = _step(seq, words, method), f"{seq // 1024}k tokens, {words}k words, {method}"
            yield f"{where}: MFU", _mfu(found)
            yield f"{where}: memory", found.peak_memory_bytes.value / GB


def _range() -> Iterator[Ours]:
    """Over layers shared out anew, the better of the two others wherever both are known."""
    for seq, words in REDISTRIBUTED:
        what = f"{seq // 1024}k tokens, {words}k words, layers shared out anew: MFU"
        yield what, _redistributed(seq, words)
    found = [_mfu(_step(*where, "vocab-1")) / _redistributed(*where) for where in REDISTRIBUTED]
    for name, of in (("least", min), ("largest", max)):
        yield f"{name} gain of vocab-1 over layers shared out anew, 8 GPUs", of(found)


def _stages() -> Iterator[Ours]:
    times = _step(2048, 256, "baseline").step.figures
    ours = {
        "forward": (times.forward_s + times.first_forward_s, times.forward_s, times.forward_s + times.last_forward_s),
        "backward": (
            times.backward_s + times.first_backward_s, times.backward_s, times.backward_s + times.last_backward_s,
        ),
    }  # fmt: skip
    for way, found in ours.items():
        for place, seconds in zip(("first", "middle", "last"), found, strict=True):
            what = f"stage of the baseline, 2k tokens, 256k words, {place}: {way}"
            yield what, 1e3 * float(seconds[0])


def _gains() -> Iterator[Ours]:
    """Over the naive placement on one node, where it is most."""
    for seq in (4096, 2048):
        ours = _mfu(_step(seq, 256, "vocab-1")) / _mfu(_step(seq, 256, "baseline"))
        yield f"gain of vocab-1 over the baseline, {seq // 1024}k tokens, 256k words", ours


def figures() -> Iterator[Ours]:
    yield from _gains()
    yield from _rows()
    yield from _range()
    yield from _stages()
