"""Collectives over the levels of a network: NCCL's algorithms, or a serving engine's own kernels for small sums.

Bytes are counted as nccl-tests counts them. Inside a node a collective crosses the chips' own link; among nodes each
chip carries its part over its own adapter (its rail), and both levels work at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnomon.cost import nccl, token_once
from gnomon.cost.link_fits import link_fit
from gnomon.cost.nccl import PASSES
from gnomon.graph.routing import TokenRouting
from gnomon.spec import Link, Pool
from gnomon.spec.workload import Floats

__all__ = ["PASSES", "one_node", "seconds", "sm_contention"]

CHANNELS = 16
"""Thread blocks of a running NCCL collective, each on a processor of its own (16 to 24 in NCCL's logs of A100 and
H100 nodes, from memory): GEMMs that overlap with it have so many fewer."""

FLAT = ("all_reduce", "all_gather", "reduce_scatter")
"""What NCCL does in one ring over all ranks of all nodes, never in a ring of rings (NVIDIA/nccl issue 471): of 16 ranks
in two nodes, 15/16 of the bytes cross between nodes where a sum of sums would take half of them. Against two ranks in
two nodes, all-reduces of 4 and of 8 take 1.48 and 1.83 times as long per adapter on A100 (vidur's tables), and of all
bytes 1.58 and 1.71 times on V100 (apex's): 1.5 and 1.75 by one ring, 1 by rings of rings. A switch that adds up
(NVLSTree) does make sums of sums."""


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


LIMITS = {"NVLink3": 4 * 2**20, "NVLink4": 32 * 2**20, "NVLink5": 32 * 2**20}
"""Bytes up to which vLLM's tables show its own kernels: 0.14 on an A100, 0.24 on an H100 and a B200."""
UNMEASURED = Shots(launch_s=nccl.LAUNCH_S, one=0.56, two=0.56, meet_s=0.0, limit_bytes=8 * 2**20)
SHOTS = {
    "launch_us": (4.0, 1.0, 20.0),
    "one": (0.55, 0.05, 1.0),
    "two": (0.7, 0.05, 1.0),
    "meet_us": (4.0, 0.0, 20.0),
}
"""Where a fit of each figure starts, its least and its most."""


def shots(c: Mapping[str, float], limit_bytes: float) -> Shots:
    """Fitted figures, as a fit and its file name them."""
    return Shots(
        launch_s=c["launch_us"] * 1e-6, one=c["one"], two=c["two"], meet_s=c["meet_us"] * 1e-6, limit_bytes=limit_bytes
    )


@cache
def measured_shots(link: str, library: str = "") -> Shots:
    """Of an engine's own kernels; vLLM's where no table has others."""
    found = link_fit(library, link) or link_fit("vllm", link)
    return shots(found.coefficients, LIMITS[link]) if found else UNMEASURED


def sm_contention(sm_count: int) -> float:
    """The share of an overlapped collective's time by which the computation it overlaps with takes longer."""
    return CHANNELS / max(sm_count - CHANNELS, CHANNELS)


def one_node(op: str, payload: Floats, ranks: int, link: Link, library: str = "") -> Floats:
    """Seconds among chips that one link joins; `library` as of `seconds`."""
    best = nccl.level(op, payload, ranks, link)
    if library == "nccl" or op != "all_reduce" or ranks <= 1 or not (link.direct or ranks == 2):
        return best
    c = measured_shots(link.name, library)
    own = np.minimum(own_sum(c, payload, ranks, link), best)
    return np.where((payload > 0) & (payload <= c.limit_bytes), own, best)


def own_sum(c: Shots, payload: Floats, ranks: int, link: Link) -> Floats:
    """Seconds of an engine's own all-reduce, the faster of the two ways."""
    hop, bandwidth = link.latency_s, link.bandwidth_bytes_s
    one = (ranks - 1) * payload / (c.one * bandwidth) + hop
    two = 2 * (ranks - 1) / ranks * payload / (c.two * bandwidth) + 2 * hop + c.meet_s
    return np.asarray(np.minimum(one, two) + c.launch_s)


def seconds(
    op: str, payload: Floats, ranks: int, pool: Pool, stride: int = 1, library: str = "", nodes: int = 0,
    routed: TokenRouting | None = None,
) -> Floats:  # fmt: skip
    """Seconds of a collective over `payload` bytes among ranks `stride` chips apart, or spread evenly over `nodes`.

    Pieces flow through both levels at once, so the slower one decides and the other adds its latency. `library` is
    "nccl" where all is left to it, else an engine's own kernels (of that name, or vLLM's) take the small all-reduces of
    a node. `routed` says of
    tokens for experts that each crosses to a node once, or also to each rank of one.
    """
    if nodes:
        within, span = -(-ranks // nodes), ranks if nodes == 1 else nodes * pool.per_node
    else:
        within, span = min(ranks, max(1, pool.per_node // stride)), ranks * stride
        if op != "send_recv" and _straddles(pool, span):
            return nccl.level(op, payload, ranks, pool.across(span), network=True)
    link = pool.between(2 if op == "send_recv" else within, pool.inside(within * stride))
    if ranks <= within and routed and routed.each_rank and op == "all_to_all":
        return token_once.seconds(payload, routed, (ranks, link), (1, link))
    if ranks <= within:
        return one_node(op, payload, ranks, link, library)
    wire = pool.across(span)
    if op == "send_recv":
        return nccl.level(op, payload, ranks, wire, network=True)
    inner, outer = (within, link), (-(-ranks // within), wire)
    if routed and op == "all_to_all":
        return token_once.seconds(payload, routed, inner, outer)
    return _two_levels(op, payload, inner, outer)


def _straddles(pool: Pool, span: int) -> bool:
    """Whether some group of so many neighbours lies across two nodes, though one would hold it. Chips that are no whole
    number of nodes (256 in NVL72 racks) are taken to be rented so that groups stay whole."""
    return pool.count > pool.per_node > span and pool.per_node % span != 0 and pool.count % pool.per_node == 0


def _flat(ranks: int, level: int) -> float:
    """Bytes that a ring over all ranks takes across each link of a level, over those of a ring of that level alone."""
    return (1 - 1 / ranks) / (1 - 1 / level) if level > 1 else 1.0


def _two_levels(op: str, payload: Floats, inner: tuple[int, Link], outer: tuple[int, Link]) -> Floats:
    (within, link), (nodes, wire) = inner, outer
    near, far = payload, payload / within
    if op == "all_to_all":  # a rank's bytes for other nodes are its own: neighbours cannot carry them for each other
        near, far = payload / nodes, payload
    elif op in FLAT and not (op == "all_reduce" and nccl.adds_up(link)):
        near, far = (part * _flat(within * nodes, level) for part, level in ((near, within), (far, nodes)))
    tiny = np.ones(1)
    inside = nccl.level(op, near, within, link)
    across = nccl.level(op, far, nodes, wire, network=True)
    enter = np.minimum(inside, nccl.level(op, tiny, within, link))
    leave = np.minimum(across, nccl.level(op, tiny, nodes, wire, network=True))
    return np.maximum(across + enter, inside + leave)
