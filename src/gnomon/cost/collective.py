"""Collectives inside a scale-up domain: latency and bandwidth of the algorithm that is fastest.

Formula rung: no coefficients of ours were measured on several chips yet.
"""

from __future__ import annotations

import numpy as np

from gnomon.spec import Link
from gnomon.spec.workload import Floats

EFFICIENCY = 0.78
"""Bus bandwidth that NCCL reaches on large messages over NVLink 4, of the link's own (nccl-tests, 8 x H100: 350 of 450 GB/s)."""
LAUNCH_S = 4e-6
"""Device time of a tiny all-reduce's kernel beside its hops (one-shot custom all-reduce, 2 x H100: about 6 us in all)."""

STEPS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "send_recv": 1.0}


def seconds(op: str, payload: Floats, ranks: int, link: Link) -> Floats:
    """Seconds of a collective over `payload` bytes a rank, as nccl-tests counts them."""
    if ranks <= 1:
        return np.zeros_like(payload)
    share = (ranks - 1) / ranks
    bandwidth = link.bandwidth_bytes_s * EFFICIENCY
    passes = STEPS[op]
    ring = passes * share * payload / bandwidth + passes * (ranks - 1) * link.latency_s
    one_shot = (ranks - 1) * payload / bandwidth + link.latency_s if op == "all_reduce" else ring
    return np.where(payload > 0, np.minimum(ring, one_shot) + LAUNCH_S, 0.0)
