"""ZeRO-Infinity (Rajbhandari et al. 2021): one trillion parameters on 512 V100, and the largest networks of a DGX-2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model
from gnomon.spec.answers import TrainingReport

CHIP, BOX, GPUS = "V100-SXM3-32GB", 16, 512
SEQ, VOCAB, HEAD = 1024, 50_304, 128
BILLION, TERA, THOUSAND = 1e9, 1e12, 1e3
FLOPS = 8
"""Of a parameter and a token, recomputation among them."""
TABLE = {
    "0.5T": (124, 18432, 7.0, 4, "host"), "1T": (128, 25600, 5.0, 4, "host"), "5T": (174, 49152, 3.0, 4, "nvme"),
    "10T": (200, 65536, 2.0, 4, "nvme"), "20T": (205, 88064, 1.25, 8, "nvme"),
}  # fmt: skip
"""Layers, channels, sequences per GPU, ranks of a tensor-parallel group, and where states and weights are."""
WIDTHS = {"small": (2048, 16), "large": (8192, 64)}
STAGES, HEADS = 50, 160
"""Of the largest network over 800 GPUs: two layers per stage, heads of any width."""


@cache
def _network(layers: int, hidden: int, heads: int) -> Model:
    blocks = plain_layers(layers, hidden, heads, 4 * hidden)
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ, "norm_bias": True}
    return network("gpt", **fields, tied_embeddings=True, blocks=blocks)


def _away(tier: str, weights: bool = True) -> list[str]:
    """States on a tier, and weights; inputs of layers on the host."""
    more = "" if tier == "host" else f":tier={tier}"
    return [f"offload-optimizer{more}", "offload-activations", *([f"offload-parameters{more}"] * weights)]


def _step(model: Model, gpus: int, each: int, **words: Any) -> TrainingReport:
    """A step in which every tensor-parallel group takes so many sequences."""
    fixed: dict[str, Any] = {"recompute": "full", "dtype": "fp16", "sequence_parallel": False, "seq": SEQ}
    fixed |= {"engine": "deepspeed@0.3", "tp": 1, "pp": 1} | words
    batch = each * gpus // (fixed["tp"] * fixed["pp"])
    return gnomon.simulate_training(model, on=f"{CHIP}:{gpus}", global_batch=batch, micro_batch=each, **fixed)


def _tflops(name: str) -> float:
    """Of one GPU."""
    layers, hidden, each, tp, tier = TABLE[name]
    model = _network(layers, hidden, hidden // HEAD)
    found = _step(model, GPUS, round(each * tp), tp=tp, zero=3, techniques=_away(tier))
    return float(FLOPS * model.parameters * each * SEQ / found.step_time_s.value / TERA)


def _most(fits: Callable[[int], bool], high: int) -> int:
    """The largest number for which it fits, of those below `high`."""
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest(width: str, most: int, **words: Any) -> float:
    """Billions of parameters of the longest network of a width that fits a DGX-2, one sequence per group."""
    hidden, heads = WIDTHS[width]
    layers = _most(lambda n: _step(_network(n, hidden, heads), BOX, 1, **words).fits, most)
    return float(_network(layers, hidden, heads).parameters / BILLION)


def _box() -> Iterator[Ours]:
    what = "largest network of a DGX-2, {}, in billions"
    yield what.format("states on the host"), _largest("large", 256, zero=3, techniques=_away("host"))
    yield what.format("ZeRO 3"), _largest("large", 128, zero=3)
    yield what.format("3D parallelism"), _largest("large", 128, tp=BOX, engine="megatron@2.4")
    offloaded = _largest("large", 128, zero=2, techniques=_away("host", weights=False))
    yield what.format("ZeRO-Offload"), offloaded
    yield what.format("data parallelism"), _largest("small", 64, zero=0)


def _trillions() -> Iterator[Ours]:
    """Over nodes: 800 GPUs in a pipeline, and what fits with states away."""
    gpus, layers = STAGES * BOX, 2 * STAGES
    wide = _most(
        lambda n: _step(_network(layers, HEADS * n, HEADS), gpus, 1, tp=BOX, pp=STAGES, engine="megatron@2.4").fits,
        256,
    )
    largest = _network(layers, HEADS * wide, HEADS).parameters / BILLION / THOUSAND
    yield "largest network of 800 V100 with 3D parallelism, in trillions", largest
    for what, layers, nodes, tier in (
        ("1T on one DGX-2 fits (1 for yes)", 128, 1, "nvme"),
        ("1T on 256 V100 with states on hosts fits (1 for yes)", 128, 16, "host"),
        ("2T on 512 V100 with states on hosts fits (1 for yes)", 256, 32, "host"),
    ):
        model = _network(layers, 25600, 200)
        found = _step(model, nodes * BOX, 1, tp=4, zero=3, techniques=_away(tier))
        yield what, float(found.fits)


def figures() -> Iterator[Ours]:
    yield "1T on 512 V100", _tflops("1T") * GPUS / THOUSAND
    for name in ("0.5T", "5T", "10T", "20T"):
        yield f"{name} on 512 V100, per GPU", _tflops(name)
    yield from _trillions()
    yield from _box()
