"""GPU-oriented data communication (Min et al. 2021): several GPUs that read features of one host in place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host

HOST: dict[str, Any] = {"cores": 24, "memory_gib": 256, "memory_gb_s": 102.4, "adam_gparam_s": 1.6, "link_gb_s": 31.5}
GPUS, CARD, SERVER = 2, "RTX-3090", "A100-SXM-40GB"
NODES, DRAWN, SEEDS, TRAINED = 232_965, 286_000, 1000, 153_431
ROW, COMPUTE_S = 602 * 4, 2.10
LIST, UNALIGNED, MANY = 64 * 8, 129 * 4, 1_000_000
MICRO, GIGA = 1e-6, 1e9
ROWS = NODES * (1 - math.exp(-DRAWN / NODES))
"""Different nodes of a batch."""


def _seconds(on: Any, **row: Any) -> float:
    return float(gnomon.ops([{"dtype": "fp32"} | row], on=on)[0]["time_us"]) * MICRO


def figures() -> Iterator[Ours]:
    pool, batches = cluster(CARD, GPUS, GPUS, host(**HOST)), TRAINED / SEEDS / GPUS
    gathers = {"rows": round(ROWS), "row_bytes": ROW, "readers": GPUS}
    collected, read = (
        COMPUTE_S / GPUS + batches * _seconds(pool, op=op, **gathers) for op in ("host_gather", "host_rows")
    )
    yield "two GPUs, epoch: sooner by", collected / read
    lists = _seconds(SERVER, op="host_rows", rows=MANY, row_bytes=LIST)
    yield "A100, rows of 512 bytes read in place", MANY * LIST / lists / GIGA
    odd = {"op": "host_rows", "rows": MANY, "row_bytes": UNALIGNED}
    yield "aligned rows of 129 floats: sooner by", _seconds(pool, **odd, unaligned=1) / _seconds(pool, **odd)
