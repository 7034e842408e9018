"""FSMoE (Pan et al. 2025): gathers inside nodes beside exchanges between them, over MoE layers of many shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster
from gnomon.papers.shapes import network
from gnomon.spec import Model, Pool


class Testbed(NamedTuple):
    """Experts, one for each node, are cut over the cards of a node."""

    name: str
    card: str
    nodes: int
    cards: int
    link: str
    lengths: tuple[int, ...]

    @property
    def pool(self) -> Pool:
        return cluster(self.card, self.nodes * self.cards, self.cards, links={"scaleout": self.link, "adapters": 1})


A = Testbed("A", "RTX-A6000", 6, 8, "InfiniBand HDR", (512, 1024, 2048))
B = Testbed("B", "RTX-2080Ti", 8, 4, "InfiniBand EDR", (256, 512, 1024))
BATCHES, HEADS, WIDTHS, TIMES_WIDER = (1, 2, 4), (8, 16, 32), (1024, 2048, 4096), (2, 3, 4)
CAPACITIES, GATED, TOPK = (1.2, 2.4, 0.0), (False, True), 2
EVERY = 97
"""Of the 1,458 layers of the grid, every so many are priced: a prime, so that all settings take turns."""
WORDS = 64
"""Of a vocabulary that takes next to nothing."""


@cache
def _layer(width: int, inner: int, heads: int, experts: int, gated: bool) -> Model:
    mixer = {"kind": "attention", "heads": heads, "kv_heads": heads, "head_dim": width // heads}
    ffn = {"kind": "moe", "experts": experts, "topk": TOPK, "inner": inner, "gated": gated}
    blocks = [{"count": 1, "mixer": mixer, "ffn": ffn}]
    return network("moe-layer", hidden=width, vocab=WORDS, max_context=4096, dtype="fp16", blocks=blocks)


def _sooner(on: Testbed) -> float:
    """The mean over layers of how much sooner both passes end with two networks than with one."""
    grid = list(product(BATCHES, HEADS, on.lengths, WIDTHS, TIMES_WIDER, CAPACITIES, GATED))
    return fmean(_gain(on, *shape) for shape in grid[EVERY // 2 :: EVERY])


def _gain(
    on: Testbed, batch: int, heads: int, length: int, width: int, wider: int, capacity: float, gated: bool
) -> float:
    slots: dict[str, Any] = {"capacity_factor": capacity, "pad_to_capacity": True} if capacity else {}
    model = _layer(width, wider * width, heads, on.nodes, gated)
    one, two = (
        gnomon.simulate_training(
            model, on=on.pool, tp=on.cards, ep=on.nodes, seq=length, global_batch=batch * on.nodes,
            micro_batch=batch, recompute="none", techniques=(f"expert-overlap:networks={networks}",), **slots,
        ).step_parts["pipeline_s"]
        for networks in (1, 2)
    )  # fmt: skip
    return float(one / two)


def figures() -> Iterator[Ours]:
    for on in (B, A):
        yield f"testbed {on.name}, FSMoE over Tutel", _sooner(on)
