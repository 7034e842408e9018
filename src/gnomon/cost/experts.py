"""Tokens dispatched to the ranks of their experts and combined again, by kernels made for it, such as DeepEP's.

A token goes once to each rank that holds any of its experts. Thread blocks copy rows, each at its own throughput, until
the link is full; in addition every token is looked up, and every rank reads or adds up its own rows once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.dtypes import WIDTH
from gnomon.graph.ops import Shape
from gnomon.spec import Chip, Link
from gnomon.spec.workload import Floats

DISPATCH, COMBINE, PREPARE = "moe_dispatch", "moe_combine", "moe_prepare"
BLOCKS = 20.0
"""Thread blocks that DeepEP uses by default."""
USUAL_BLOCKS = 24.0
SUMMED = 2.0
"""Bytes of an element that is added up."""
SCALES = 1.03
"""Bytes with the scale that 128 elements of eight bits share."""
CORNER = 3.0
"""How sharply copying goes from too few blocks to a full link."""
USUAL_HIDDEN = 4096.0
COEFFICIENTS = {
    "link": (0.7, 0.05, 1.0),
    "block_gb_s": (15.0, 0.5, 200.0),
    "own": (0.5, 0.02, 1.0),
    "token_ns": (5.0, 0.0, 500.0),
    "launch_us": (25.0, 1.0, 400.0),
    "row_us": (2.0, 0.0, 50.0),
}
"""Where a fit starts, the least and the most: shares of the link and of the memory, the throughput of a thread block,
what a token takes beside its bytes with 24 of them, and what one row of 4096 channels takes from end to end."""


def width_of(kind: str, dtype: str) -> float:
    """Bytes of an element on its way: what was computed returns in 16 bits."""
    scaled = WIDTH[dtype] < SUMMED
    return SUMMED if kind == COMBINE else WIDTH[dtype] * (SCALES if scaled else 1.0)


def reached(ranks: Floats, experts: Floats, topk: Floats) -> Floats:
    """How many ranks hold some of a token's experts, on average, where experts are chosen evenly."""
    each = experts / ranks
    missed = np.ones(np.broadcast(ranks, experts, topk).shape)
    for taken in range(int(np.max(topk, initial=0))):
        left = np.maximum(experts - taken, 1.0)
        missed = np.where(taken < topk, missed * np.clip((left - each) / left, 0.0, 1.0), missed)
    return np.asarray(ranks * (1 - missed))


def seconds(shape: Shape, chip: Chip, link: Link, c: Mapping[str, float]) -> Floats:
    """Device seconds of one exchange; `width` has the bytes of an element on its way, `blocks` the thread blocks."""
    tokens, ranks, blocks = shape["tokens"], shape["ranks"], shape.get("blocks", np.array(BLOCKS))
    row, memory = shape["hidden"] * shape["width"], chip.memory_bandwidth_bytes_s
    copies = tokens * reached(ranks, shape["experts"], shape["topk"])
    wire = copies * (ranks - 1) / ranks * row / (c["link"] * link.bandwidth_bytes_s)
    copied = copies * row / (blocks * c["block_gb_s"] * 1e9)
    moved = (wire**CORNER + copied**CORNER) ** (1 / CORNER)
    own = np.where(row > 0, tokens * shape["hidden"] * SUMMED / (c["own"] * memory), 0.0)
    looked_up = tokens * c["token_ns"] * 1e-9 * USUAL_BLOCKS / blocks
    fixed = (c["launch_us"] + c["row_us"] * shape["hidden"] / USUAL_HIDDEN) * 1e-6
    return np.where(tokens > 0, fixed + moved + own + looked_up, 0.0)
