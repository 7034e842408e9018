"""DeepSpeed Inference (Aminabadi et al. 2022): what ZeRO-Inference runs on one card, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model, Pool

VOCAB, PROMPT = 50_257, 2048
BILLION, TERA, PERCENT = 1e9, 1e12, 100.0
SHAPES = {"20B": (44, 6144, 64), "50B": (62, 8192, 64), "175B": (96, 12288, 96), "530B": (105, 20480, 128)}
RUN = {"20B": "host", "50B": "host", "175B": "nvme", "530B": "nvme"}
NARROW, WIDE = 6144, 20480
"""Channels of the largest networks up to 100 billion parameters, and beyond."""
HEAD, TOKENS = 128, 16
BATCHES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
PEAK_TFLOPS = 154.8
STREAMED = {"gpu": (), "host": ("streamed-layers",), "nvme": ("streamed-layers:tier=nvme",)}


@cache
def _card(name: str) -> Pool:
    if name == "A6000":
        one = host(cores=32, memory_gib=256, memory_gb_s=204.8, adam_gparam_s=3.1, link_gb_s=31.5)
        return cluster("RTX-A6000", 1, 1, one | {"nvme_tb": 2.0, "nvme_read_gb_s": 5.6})
    return cluster("V100-SXM3-32GB", 1, 1)


def _network(layers: int, hidden: int, heads: int) -> Model:
    blocks = plain_layers(layers, hidden, heads, 4 * hidden)
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": PROMPT + 1, "learned_positions": PROMPT + 1}
    return network("gpt", **fields, norm_bias=True, tied_embeddings=True, dtype="fp16", blocks=blocks)


def _settings(batch: int, tokens: int = PROMPT) -> dict[str, Any]:
    return {"max_num_seqs": batch, "max_num_batched_tokens": batch * tokens}


def _most(model: Model, tier: str) -> int:
    """Prompts at once that the card has room for, a power of two or one and a half of it."""
    words: dict[str, Any] = {"context": PROMPT, "techniques": STREAMED[tier]}
    found = 1
    for batch in BATCHES:
        if gnomon.fit(model, on=_card("A6000"), settings=_settings(batch), **words).max_batch < batch:
            return found
        found = batch
    return found


def _fits(model: Model, card: str, tier: str) -> bool:
    """Whether one token of one sequence can be predicted."""
    words: dict[str, Any] = {"context": TOKENS, "settings": _settings(1, TOKENS), "techniques": STREAMED[tier]}
    return gnomon.fit(model, on=_card(card), **words).fits


def _tflops(name: str) -> float:
    model, tier = _network(*SHAPES[name]), RUN[name]
    batch = _most(model, tier)
    words: dict[str, Any] = {"phase": "prefill", "batch": batch, "tokens": PROMPT, "settings": _settings(batch)}
    found = gnomon.predict(model, on=_card("A6000"), **words, techniques=STREAMED[tier], sustained=True)
    return float(2 * model.parameters * batch * PROMPT / found.time_s.value / TERA)


def _largest(card: str, tier: str, hidden: int) -> float:
    """Billions of parameters of the longest network of that width that fits: at most what the tier holds in 16 bits,
    less than a third of which no network needs for anything else."""
    chip, machine = _card(card).chip, _card(card).machine
    assert machine is not None
    room = {"gpu": chip.memory_bytes, "host": machine.memory_bytes, "nvme": machine.nvme_bytes}[tier]
    layers = int(room / (2 * 12 * hidden**2)) + 1
    low, high = 2 * layers // 3, layers
    while high - low > max(1, layers // 200):
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(_network(middle, hidden, hidden // HEAD), card, tier) else (low, middle)
    return float(_network(low, hidden, hidden // HEAD).parameters / BILLION)


def _sizes() -> Iterator[Ours]:
    run = {tier: [one for one in SHAPES.values() if _fits(_network(*one), "A6000", tier)] for tier in ("gpu", "nvme")}
    most = {tier: max((_network(*one).parameters for one in found), default=0) for tier, found in run.items()}
    yield "times larger than on the GPU alone, of the sizes run", most["nvme"] / most["gpu"] if most["gpu"] else 0.0
    yield "largest on an A6000, in billions", _largest("A6000", "gpu", NARROW)
    yield "largest on an A6000, weights on the host, in billions", _largest("A6000", "host", WIDE)
    yield "largest on an A6000, weights on NVMe, in billions", _largest("A6000", "nvme", WIDE)
    yield "largest on a V100, in billions", _largest("V100", "gpu", NARROW)
    yield "largest on a V100, weights on NVMe, in billions", _largest("V100", "nvme", WIDE)


def figures() -> Iterator[Ours]:
    yield "50B on an A6000", _tflops("50B")
    for name in ("20B", "175B", "530B"):
        yield f"{name} on an A6000, of peak", PERCENT * _tflops(name) / PEAK_TFLOPS
    yield from _sizes()
