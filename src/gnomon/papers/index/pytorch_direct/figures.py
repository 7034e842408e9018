"""PyTorch-Direct (Min et al. 2021): rows of features read in place by the GPU, or collected by the processor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host

CARD = "RTX-3090"
HOST: dict[str, Any] = {"cores": 24, "memory_gib": 256, "memory_gb_s": 102.4, "adam_gparam_s": 1.6}
LINKS = {"PCIe 4.0": 31.5, "PCIe 3.0": 15.75}
"""GB/s of 16 lanes."""
NODES, DRAWN, SEEDS, TRAINED = 232_965, 286_000, 1000, 153_431
ROW, COMPUTE_S, MICRO = 602 * 4, 2.10, 1e-6
ROWS = NODES * (1 - math.exp(-DRAWN / NODES))
"""Different nodes of a batch."""


def _transfer_s(link: str, op: str) -> float:
    """One batch."""
    pool = cluster(CARD, 1, 1, host(**HOST, link_gb_s=LINKS[link]))
    row = {"op": op, "dtype": "fp32", "rows": round(ROWS), "row_bytes": ROW}
    return float(gnomon.ops([row], on=pool)[0]["time_us"]) * MICRO


def figures() -> Iterator[Ours]:
    batches = TRAINED / SEEDS
    for link in LINKS:
        collected, read = _transfer_s(link, "host_gather"), _transfer_s(link, "host_rows")
        if link == "PCIe 4.0":
            yield "transfer time saved", 100 * (1 - read / collected)
        epochs = COMPUTE_S + batches * collected, COMPUTE_S + batches * read
        yield f"{link}, gathered by the processor: epoch", epochs[0]
        yield f"{link}, read by the GPU: epoch", epochs[1]
        yield f"{link}, epoch: sooner by", epochs[0] / epochs[1]
