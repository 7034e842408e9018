"""StreamDiffusionV2 (Feng et al. 2025): a stream of video through four GPUs, by steps and by layers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, GPUS, FRAMES, KEPT = "H100", 4, 4, 6
"""GPUs, frames of video in a latent one, and latent frames that a chunk attends to."""
SMALL, LARGE, PATCH = (512, 512), (832, 480), 16
GRAPH = {"launch": "graph"}
NETWORKS = {"14B": ("wan-2.1-t2v-14b", 40, 40), "1.3B": ("wan-2.1-t2v-1.3b", 30, 12)}
"""Layers and heads of 128 values."""
MICRO, LIMIT_S = 1e-6, 0.5


Network = tuple[str, int, int]


@cache
def _end_s(way: str, width: int) -> float:
    """Encoder or decoder, for each latent frame after the first."""
    files = (Path(__file__).with_name(f"{way}-{width}-{latents}.trace.json.gz") for latents in (1, 2))
    one, two = (gnomon.predict(file, on=ON, settings=GRAPH).time_s.value for file in files)
    return float(two - one)


@cache
def _pass_s(network: Network, tokens: int) -> float:
    """A pass over a chunk, with attention to the latent frames before it."""
    model, layers, heads = network
    own = gnomon.predict(model, on=ON, phase="forward", tokens=tokens, settings=GRAPH).time_s.value
    sizes = {"batch": 1, "heads": heads, "kv_heads": heads, "q_len": tokens, "head_dim": 128, "causal": 0}
    attention = [{"op": "attention_forward", "dtype": "bf16", "kv_len": n * tokens} | sizes for n in (1, KEPT)]
    alone, full = (row["time_us"] * MICRO for row in gnomon.ops(attention, on=ON))
    return float(own + layers * (full - alone))


def _chunk(network: Network, size: tuple[int, int], steps: int) -> tuple[float, float]:
    """Seconds of the slowest stage, and of a chunk through all of them."""
    width, height = size
    ends = [_end_s(way, width) for way in ("encode", "decode")]
    through = steps * _pass_s(network, (width // PATCH) * (height // PATCH)) + sum(ends)
    return max(through / GPUS, *ends), through


def figures() -> Iterator[Ours]:
    for name, network in NETWORKS.items():
        for words, size, steps in (("", SMALL, 1), (", four steps", SMALL, 4), (", 832x480", LARGE, 1)):
            yield f"{name}{words}", FRAMES / _chunk(network, size, steps)[0]
        yield f"first frame of {name} within 0.5 s (1 for yes)", float(_chunk(network, SMALL, 1)[1] <= LIMIT_S)
