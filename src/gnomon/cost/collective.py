"""Collectives by network level: NCCL's rings, and for small all-reduces a serving engine's own one-shot kernels.

Those are on the formula rung: two efficiencies and a launch, read off published tables (AIConfigurator 0.12,
all-reduce of vLLM 0.24 in CUDA graphs on 2, 4 and 8 H100: off by 12% on average over 256 bytes to 1 GiB).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.spec import Link, Pool
from gnomon.spec.workload import Floats

RING_EFFICIENCY = 0.76
"""Of the link's bandwidth, by NCCL on large messages."""
SHOT_EFFICIENCY = 0.56
"""Of the link's bandwidth, by vLLM's own all-reduce kernels, which read their peers' memory directly."""
SHOT_LIMIT_BYTES = 8 * 2**20
"""vLLM leaves larger messages to NCCL."""
LAUNCH_S = 3.4e-6
"""Device time of the smallest collective beside its hops."""

PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "send_recv": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nccl:
    """NCCL on one kind of link. Shares are of the link's bandwidth; seconds are those of small messages.

    Beyond bandwidth, latency and launch, a message pays for filling the pipeline: a share of its time while it is
    small, and a slowly growing amount once it is large.
    """

    ring: float
    local: float
    launch_s: float
    hop_s: float
    small: float
    ramp_s: float
    growth: float


NCCL = {
    "NVLink3": Nccl(ring=0.767, local=2.74, launch_s=9.1e-6, hop_s=0.89e-6, small=2.44, ramp_s=74e-6, growth=0.38),
    "NVLink4": Nccl(ring=0.846, local=1.81, launch_s=5.1e-6, hop_s=0.82e-6, small=1.32, ramp_s=32e-6, growth=0.32),
}
"""Fitted to all-reduces, all-gathers and reduce-scatters of NCCL 2.27 on 2, 4 and 8 A100 and H100 (AIConfigurator
0.12): off by 7.4% and 4.8% on average, 3.4% and 2.1% above 64 MiB. NVLS on 8 H100 was left out."""
RAMP_BYTES = 1e8
CHANNELS = 16
"""Thread blocks of a running NCCL collective, each on a processor of its own (16 to 24 in NCCL's logs of A100 and
H100 nodes, from memory): while it runs beside products, they have so many fewer."""


def crowding(sm_count: int) -> float:
    """The share of a hidden collective's time that the computation beside it is longer for it."""
    return CHANNELS / max(sm_count - CHANNELS, CHANNELS)


def nccl_level(op: str, payload: Floats, ranks: int, link: Link) -> Floats:
    """NCCL's ring among chips that one link joins; a link nobody measured is priced by its data sheet."""
    if link.name not in NCCL or op == "send_recv":
        return one_level(op, payload, ranks, link, shots=False)
    if ranks <= 1:
        return np.zeros_like(payload)
    c, passes = NCCL[link.name], PASSES[op]
    carried = passes * (ranks - 1) / ranks * payload / (c.ring * link.bandwidth_bytes_s)
    carried = carried + payload / ranks / (c.local * link.bandwidth_bytes_s)
    filling = np.minimum(c.small * carried, c.ramp_s * (payload / RAMP_BYTES) ** c.growth)
    return np.where(payload > 0, c.launch_s + passes * (ranks - 1) * c.hop_s + carried + filling, 0.0)


Level = Callable[[str, Floats, int, Link], Floats]


def seconds(op: str, payload: Floats, ranks: int, pool: Pool, stride: int = 1, library: str = "") -> Floats:
    """Seconds of a collective over `payload` bytes, as nccl-tests counts them, among ranks `stride` chips apart.

    Across nodes every chip carries its share of the node's part over its own adapter; pieces flow through both
    levels at once, so the slower one decides and the other adds its latency. `library` is "nccl" where all is left to
    it, else an engine's own kernels take the small all-reduces.
    """
    level: Level = nccl_level if library == "nccl" else one_level
    if op == "send_recv":
        return level(op, payload, ranks, pool.link_of(ranks * stride))
    within = min(ranks, max(1, pool.per_node // stride))
    link = pool.inside(min(ranks, within) * stride)
    if pool.count > pool.per_node > ranks * stride and pool.per_node % (ranks * stride):
        return level(op, payload, ranks, pool.across(ranks * stride))  # some group of them lies across two nodes
    if ranks <= within:
        return level(op, payload, ranks, link)
    nodes, tiny, wire = -(-ranks // within), np.ones(1), pool.across(ranks * stride)
    inside = level(op, payload, within, link)
    # Chips of a node share out what leaves it, but in an all-to-all each has messages of its own for every other.
    across = level(op, payload if op == "all_to_all" else payload / within, nodes, wire)
    enter = np.minimum(inside, level(op, tiny, within, link))
    leave = np.minimum(across, level(op, tiny, nodes, wire))
    return np.where(across >= inside, across + enter, inside + leave)


def one_level(op: str, payload: Floats, ranks: int, link: Link, shots: bool = True) -> Floats:
    """The same among chips that one link joins."""
    if ranks <= 1:
        return np.zeros_like(payload)
    share, hops = 1.0 if op == "send_recv" else (ranks - 1) / ranks, link.latency_s
    passes = PASSES[op]
    ring = passes * share * payload / (link.bandwidth_bytes_s * RING_EFFICIENCY) + passes * (ranks - 1) * hops
    best = ring
    if op == "all_reduce" and shots and (link.direct or ranks == 2):
        direct = link.bandwidth_bytes_s * SHOT_EFFICIENCY
        one = (ranks - 1) * payload / direct + hops
        two = 2 * share * payload / direct + 2 * hops
        best = np.where(payload <= SHOT_LIMIT_BYTES, np.minimum(np.minimum(one, two), ring), ring)
    return np.where(payload > 0, best + LAUNCH_S, 0.0)
