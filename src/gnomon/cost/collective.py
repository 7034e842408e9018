"""Collectives over the levels of a network: NCCL's algorithms, or a serving engine's own kernels for small sums.

Bytes are counted as nccl-tests counts them. Inside a node a collective crosses the chips' own link; among nodes each
chip carries its part over its own adapter (its rail), and both levels work at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.cost import nccl
from gnomon.cost.nccl import PASSES
from gnomon.spec import Link, Pool
from gnomon.spec.workload import Floats

__all__ = ["PASSES", "crowding", "one_node", "seconds"]

CHANNELS = 16
"""Thread blocks of a running NCCL collective, each on a processor of its own (16 to 24 in NCCL's logs of A100 and
H100 nodes, from memory): while it runs beside products, they have so many fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shots:
    """vLLM's own all-reduce, which reads its peers' memory: all of it at once, or a part each and then the sums."""

    launch_s: float
    one: float
    two: float
    """Shares of the link's bandwidth."""
    meet_s: float
    """What it takes all ranks to meet between the halves of the second way."""
    limit_bytes: float
    """Larger messages are left to NCCL."""


SHOTS = {
    "NVLink3": Shots(launch_s=3.9e-6, one=0.52, two=0.74, meet_s=6.0e-6, limit_bytes=4 * 2**20),
    "NVLink4": Shots(launch_s=3.4e-6, one=0.56, two=0.70, meet_s=2.6e-6, limit_bytes=32 * 2**20),
    "NVLink5": Shots(launch_s=5.8e-6, one=0.45, two=0.62, meet_s=6.0e-6, limit_bytes=32 * 2**20),
}
"""Read off published all-reduces of vLLM 0.14 (A100) and 0.24 (H100, B200) in CUDA graphs (AIConfigurator 0.12)."""
UNMEASURED = Shots(launch_s=nccl.LAUNCH_S, one=0.56, two=0.56, meet_s=0.0, limit_bytes=8 * 2**20)


def crowding(sm_count: int) -> float:
    """The share of a hidden collective's time that the computation beside it is longer for it."""
    return CHANNELS / max(sm_count - CHANNELS, CHANNELS)


def one_node(op: str, payload: Floats, ranks: int, link: Link, library: str = "") -> Floats:
    """Seconds among chips that one link joins; `library` as of `seconds`."""
    best = nccl.level(op, payload, ranks, link)
    if library == "nccl" or op != "all_reduce" or ranks <= 1 or not (link.direct or ranks == 2):
        return best
    c = SHOTS.get(link.name, UNMEASURED)
    hop, bandwidth = link.latency_s, link.bandwidth_bytes_s
    one = (ranks - 1) * payload / (c.one * bandwidth) + hop
    two = 2 * (ranks - 1) / ranks * payload / (c.two * bandwidth) + 2 * hop + c.meet_s
    own = np.minimum(np.minimum(one, two) + c.launch_s, best)
    return np.where((payload > 0) & (payload <= c.limit_bytes), own, best)


def seconds(
    op: str, payload: Floats, ranks: int, pool: Pool, stride: int = 1, library: str = "", nodes: int = 0
) -> Floats:
    """Seconds of a collective over `payload` bytes among ranks `stride` chips apart, or spread evenly over `nodes`.

    Pieces flow through both levels at once, so the slower one decides and the other adds its latency. `library` is
    "nccl" where all is left to it, else an engine's own kernels take the small all-reduces of a node.
    """
    if nodes:
        within, span = -(-ranks // nodes), ranks if nodes == 1 else nodes * pool.per_node
    else:
        within, span = min(ranks, max(1, pool.per_node // stride)), ranks * stride
        if op != "send_recv" and _straddles(pool, span):
            return nccl.level(op, payload, ranks, pool.across(span), network=True)
    link = pool.between(2 if op == "send_recv" else within, pool.inside(within * stride))
    if ranks <= within:
        return one_node(op, payload, ranks, link, library)
    wire = pool.across(span)
    if op == "send_recv":
        return nccl.level(op, payload, ranks, wire, network=True)
    return _two_levels(op, payload, (within, link), (-(-ranks // within), wire))


def _straddles(pool: Pool, span: int) -> bool:
    """Whether some group of so many neighbours lies across two nodes, though one would hold it. Chips that are no whole
    number of nodes (256 in NVL72 racks) are taken to be rented so that groups stay whole."""
    return pool.count > pool.per_node > span and pool.per_node % span != 0 and pool.count % pool.per_node == 0


def _two_levels(op: str, payload: Floats, inner: tuple[int, Link], outer: tuple[int, Link]) -> Floats:
    (within, link), (nodes, wire) = inner, outer
    near, far = payload, payload / within
    if op == "all_to_all":  # a rank's bytes for other nodes are its own: neighbours cannot carry them for each other
        near, far = payload / nodes, payload
    tiny = np.ones(1)
    inside = nccl.level(op, near, within, link)
    across = nccl.level(op, far, nodes, wire, network=True)
    enter = np.minimum(inside, nccl.level(op, tiny, within, link))
    leave = np.minimum(across, nccl.level(op, tiny, nodes, wire, network=True))
    return np.maximum(across + enter, inside + leave)
