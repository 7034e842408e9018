"""Tokens sent to experts of other nodes and back, where each crosses to a node once (DeepEP, Megatron-LM's flex
dispatcher): over the sender's own adapter to its counterpart there, which hands it on inside the node.

Both levels work at once. A plain all-to-all sends a copy for each expert instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from gnomon.cost.link_fits import link_fit
from gnomon.graph.routing import TokenRouting
from gnomon.spec import Link
from gnomon.spec.workload import Floats

LIBRARY, FIT = "deepep", "across nodes"
"""Where the fit stands in the shipped file."""
COEFFICIENTS = {
    "wire": (0.9, 0.2, 1.0),
    "inside": (0.5, 0.05, 1.0),
    "launch_us": (60.0, 5.0, 400.0),
    "node_us": (10.0, 0.0, 100.0),
}
"""Where a fit starts, the least and the most: shares of the adapter and of the node's own link, seconds of the smallest
exchange, and what each node adds to it."""
CORNER = 3.0
"""How sharply the slower of the two levels decides."""
Level = tuple[int, Link]


def volumes(payload: Floats, routing: TokenRouting, ranks: int, nodes: int) -> tuple[Floats, Floats]:
    """Bytes of a rank that cross to other nodes, and that are handed on inside one, of a payload that counts a copy for
    each expert."""
    once, within = payload / routing.topk, -(-ranks // nodes)
    far = once * routing.reached(nodes) * (nodes - 1) / nodes
    near = once * routing.reached(ranks) * (within - 1) / within
    return np.asarray(far), np.asarray(near)


def seconds(payload: Floats, routing: TokenRouting, inner: Level, outer: Level) -> Floats:
    """Of one exchange among `inner` ranks of each of the `outer` nodes, each level with its link."""
    return by(_fitted(), payload, routing, inner, outer)


def by(c: Mapping[str, float], payload: Floats, routing: TokenRouting, inner: Level, outer: Level) -> Floats:
    """Seconds by the given figures."""
    (within, link), (nodes, wire) = inner, outer
    far, near = volumes(payload, routing, within * nodes, nodes)
    across = far / (c["wire"] * wire.bandwidth_bytes_s)
    inside = near / (c["inside"] * link.bandwidth_bytes_s)
    moved = (across**CORNER + inside**CORNER) ** (1 / CORNER)
    fixed = (c["launch_us"] + c["node_us"] * nodes) * 1e-6
    return np.where(payload > 0, fixed + moved, 0.0)


@cache
def _fitted() -> Mapping[str, float]:
    found = link_fit(LIBRARY, FIT)
    return found.coefficients if found else {name: ends[0] for name, ends in COEFFICIENTS.items()}
