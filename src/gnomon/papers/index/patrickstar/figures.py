"""PatrickStar (Fang et al. 2021): the largest networks of a node of V100 and of A100, and how fast they train."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model, Pool
from gnomon.spec.answers import TrainingReport

SEQ, VOCAB, HEADS, NODE = 1024, 30_522, 16, 8
BILLION, TERA, GIB = 1e9, 1e12, 1024.0
FLOPS = 8
SIZES = {
    1: (20, 2048), 2: (40, 2048), 4: (64, 2304), 6: (53, 3072), 8: (72, 3072), 10: (50, 4096), 12: (60, 4096),
    15: (78, 4096), 18: (90, 4096), 20: (25, 8192), 30: (37, 8192), 40: (50, 8192), 50: (62, 8192), 60: (75, 8192),
    68: (66, 9216), 175: (96, 12288),
}  # fmt: skip
"""Layers and channels by billions of parameters."""
BATCHES = (4, 8, 16)
SPEEDS = {("V100", 8): (1, 4, 8, 12, 15, 18), ("V100", 1): (1, 6, 12), ("A100", 8): (6, 10, 20, 40, 60, 68),
          ("A100", 1): (6, 15, 30, 50)}  # fmt: skip
DEEPSPEED = (("offload-optimizer",), ("offload-optimizer", "offload-parameters"))


@cache
def _pool(chip: str, count: int) -> Pool:
    if chip == "V100":
        one = host(cores=12, memory_gib=240, memory_gb_s=85.3, adam_gparam_s=1.3, link_gb_s=15.75)
        return cluster("V100-SXM2-32GB", count, NODE if count > NODE else count, one)
    one = host(cores=128, memory_gib=GIB, memory_gb_s=409.6, adam_gparam_s=6.3, link_gb_s=31.5)
    return cluster("A100-SXM-40GB", count, NODE if count > NODE else count, one)


@cache
def _model(billions: int) -> Model:
    layers, hidden = SIZES[billions]
    blocks = plain_layers(layers, hidden, HEADS if billions < 100 else 96, 4 * hidden)
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ, "norm_bias": True}
    return network("bert", **fields, tied_embeddings=True, blocks=blocks)


def _step(
    billions: int, chip: str, count: int, batch: int, techniques: tuple[str, ...], **words: Any
) -> TrainingReport:
    words = {"zero": 3 if count > 1 else 0, "seq": SEQ, "recompute": "full", "dtype": "fp16"} | words
    return gnomon.simulate_training(
        _model(billions), on=_pool(chip, count), global_batch=batch * count, micro_batch=batch, engine="deepspeed@0.3",
        techniques=list(techniques), **words,
    )  # fmt: skip


def _tflops(billions: int, chip: str, count: int) -> float:
    """Of all GPUs at the batch that is best of those that fit, of the smallest where none does."""
    found = [_step(billions, chip, count, batch, ("chunked-memory",)) for batch in BATCHES]
    seconds = [one.step_time_s.value / batch for one, batch in zip(found, BATCHES, strict=True)]
    fitting = [each for one, each in zip(found, seconds, strict=True) if one.fits] or seconds[:1]
    return float(FLOPS * _model(billions).parameters * count * SEQ / min(fitting) / TERA)


def _largest(chip: str, ways: tuple[tuple[str, ...], ...]) -> float:
    """Billions of parameters of the largest network of the list that fits a node in one of these ways."""
    fitting = [size for size in SIZES if any(_step(size, chip, NODE, BATCHES[0], way).fits for way in ways)]
    return float(max(fitting, default=0))


def figures() -> Iterator[Ours]:
    for chip in ("V100", "A100"):
        ours, theirs = _largest(chip, (("chunked-memory",),)), _largest(chip, DEEPSPEED)
        yield f"largest network, {NODE} {chip}, in billions", ours
        yield f"times larger than DeepSpeed's, {NODE} {chip}", ours / theirs
    yield "175B on 32 A100 fits (1 for yes)", float(_step(175, "A100", 32, BATCHES[0], ("chunked-memory",)).fits)
    for (chip, count), sizes in SPEEDS.items():
        for size in sizes:
            yield f"{size}B on {count if count > 1 else 'one'} {chip}", _tflops(size, chip, count)
