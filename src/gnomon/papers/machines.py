"""Machines of papers that are not in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.load.cluster import SCHEMA, cluster_from_dict
from gnomon.spec import Pool


def cluster(chip: str, count: int, per_node: int, host: Mapping[str, Any] | None = None, *, scaleout: str = "") -> Pool:
    """A pool of chips in nodes, for `on=` of any public function; without a host, the chip's default host, and without
    the name of a link between nodes, of which each has one then, the node's usual ones."""
    fields = {"schema": SCHEMA, "chip": chip, "count": count, "per_node": per_node}
    link = {"scaleout": scaleout, "adapters": 1} if scaleout else {}
    (pool,) = cluster_from_dict(fields | link | ({"host": dict(host)} if host else {}), "cluster").pools
    return replace(pool, file="")


def host(
    *, cores: int, memory_gib: float, memory_gb_s: float, adam_gparam_s: float, link_gb_s: float, nvme_gb_s: float = 4.0
) -> dict[str, Any]:
    """A host as in a cluster file. Copies of its chips do not share a link."""
    link = {"name": "host link", "gb_s": link_gb_s, "latency_us": 5.0}
    disks = {"nvme_tb": 3.2, "nvme_read_gb_s": nvme_gb_s, "nvme_write_gb_s": nvme_gb_s}
    rates = {"memory_gb_s": memory_gb_s, "adam_gparam_s": adam_gparam_s}
    return {"cores": cores, "memory_gib": memory_gib, **rates, **disks, "link": link, "link_sharing": 1}
