"""Collectives inside a scale-up domain: the fastest of one-shot, two-shot and ring.

Formula rung: two efficiencies and a launch, read off published tables (AIConfigurator 0.12, all-reduce of
vLLM 0.24 in CUDA graphs on 2, 4 and 8 H100: off by 12% on average over 256 bytes to 1 GiB).
"""

from __future__ import annotations

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


def seconds(op: str, payload: Floats, ranks: int, pool: Pool, stride: int = 1) -> Floats:
    """Seconds of a collective over `payload` bytes, as nccl-tests counts them, among ranks `stride` chips apart.

    Across nodes every chip carries its share of the node's part over its own adapter; pieces flow through both
    levels at once, so the slower one decides and the other adds its latency.
    """
    if op == "send_recv":
        return one_level(op, payload, ranks, pool.link_of(ranks * stride))
    within = min(ranks, max(1, pool.per_node // stride))
    if ranks <= within:
        return one_level(op, payload, ranks, pool.chip.scaleup)
    inside = one_level(op, payload, within, pool.chip.scaleup)
    across = one_level(op, payload / within, -(-ranks // within), pool.chip.scaleout)
    return np.maximum(inside, across) + np.minimum(inside, one_level(op, np.ones(1), within, pool.chip.scaleup))


def one_level(op: str, payload: Floats, ranks: int, link: Link) -> Floats:
    """The same among chips that one link joins."""
    if ranks <= 1:
        return np.zeros_like(payload)
    share, hops = 1.0 if op == "send_recv" else (ranks - 1) / ranks, link.latency_s
    passes = PASSES[op]
    ring = passes * share * payload / (link.bandwidth_bytes_s * RING_EFFICIENCY) + passes * (ranks - 1) * hops
    best = ring
    if op == "all_reduce":
        direct = link.bandwidth_bytes_s * SHOT_EFFICIENCY
        one = (ranks - 1) * payload / direct + hops
        two = 2 * share * payload / direct + 2 * hops
        best = np.where(payload <= SHOT_LIMIT_BYTES, np.minimum(np.minimum(one, two), ring), ring)
    return np.where(payload > 0, best + LAUNCH_S, 0.0)
