"""NCCL among chips that one link joins: rings, trees and reduction in the switch; the least of them is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gnomon.cost.link_fits import link_fit
from gnomon.spec import Link
from gnomon.spec.cluster import ACROSS_SOCKETS, BETWEEN_BRIDGES
from gnomon.spec.workload import Floats

PASSES = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_to_all": 1.0,
    "broadcast": 1.0,
    "send_recv": 1.0,
}
"""How often a rank's share of the bytes crosses its link."""
WHOLE = ("broadcast", "send_recv")
"""All bytes cross the link; of the others, a rank already holds its own part."""
EFFICIENCY = 0.76
"""Of the link's bandwidth, on large messages over a link without measurements."""
LAUNCH_S = 3.4e-6
"""Device time of the smallest collective beside its hops, on such a link."""
NETWORK, TWO_NODES = "network", "two nodes"
"""Where the fit of the smallest messages over a network stands in the shipped file."""
NETWORK_US = {"collective_us": (12.0, 1.0, 100.0), "send_us": (12.0, 1.0, 100.0)}
"""Device time of the smallest collective and the smallest send over a network, through a thread of the host, beside
their hops: where their fit starts, their least and their most."""


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
    staged_bytes_s: float = np.inf
    """Throughput of host memory where a piece is put down there and taken up again: added to its time on the link."""
    step_s: float = 0.0
    """What each step of a ring takes longer once messages are large, and pieces wait to be complete."""
    switch: float = 0.0
    """Of the bandwidth where the switch adds up (NVLS); 0 where it cannot."""
    switch_s: float = 0.0


RAMP_BYTES = 1e8
RANGES = {
    "ring": (0.8, 0.02, 1.0),
    "local": (2.0, 0.5, 20.0),
    "launch_us": (6.0, 1.0, 30.0),
    "hop_us": (1.0, 0.1, 20.0),
    "small": (1.5, 0.0, 6.0),
    "ramp_us": (30.0, 0.0, 300.0),
    "growth": (0.3, 0.0, 1.0),
}
"""Where a fit of each figure starts, its least and its most."""
STAGED = {"staged_gb_s": (40.0, 2.0, 500.0), "step_us": (5.0, 0.0, 30.0)}
"""Further figures where pieces pass through host memory: where their fit starts, their least and their most."""
SWITCH = {"switch": (0.6, 0.1, 1.0), "switch_us": (80.0, 0.0, 300.0)}
"""Further figures where the switch adds up: where their fit starts, their least and their most."""


def figures(c: Mapping[str, float]) -> Nccl:
    """Fitted figures, as a fit and its file name them."""
    return Nccl(**dict(_si(name, value) for name, value in c.items()))


def _si(name: str, value: float) -> tuple[str, float]:
    if name.endswith("_gb_s"):
        return name.replace("_gb_s", "_bytes_s"), value * 1e9
    return (name[:-2] + "s", value * 1e-6) if name.endswith("_us") else (name, value)


LIKE = {
    "NVLink2": "NVLink3",
    "NVLink2 bridge": "NVLink3",
    "NVLink3 bridge": "NVLink3",
    "NVLink4 bridge": "NVLink4",
    "NVLink4 mesh": "NVLink4",
    "NVLink6": "NVLink5",
}
"""Links without measurements, and those whose shares and latencies they are taken to have. Above 20 us, a measured
NVLink by another's figures and its own bandwidth is off by 11 to 28%; by its data sheet alone by 27 to 38%, always too
fast."""
LIKE_SPREAD = 0.25
ADDING = ("NVLink6",)
"""Those of them whose switch adds up."""
PCIE, OLD_PCIE = "PCIe", "PCIe 3.0"
"""How names of such links begin. One fit stands for all of them but the oldest, which has its own."""
MACHINES_SPREAD = 0.4
"""Of log(predicted / measured) from one machine without NVLink to the next: on those with switches alone, or with NCCL
set by hand, the fit to usual ones is 0.5 to 2.3 times what was measured (measurements/published)."""


@cache
def fit_of(link: str) -> str:
    """The name of the fit that stands for a link."""
    if link.startswith(OLD_PCIE):
        return "PCIe 3.0 x16"
    if link.startswith(PCIE):
        return PCIE + next((way for way in (ACROSS_SOCKETS, BETWEEN_BRIDGES) if link.endswith(way)), "")
    return LIKE.get(link, link)


@cache
def measured(link: str) -> Nccl | None:
    """What was fitted to NCCL on a link of that name, or on one like it, if anything was."""
    found = link_fit("nccl", fit_of(link))
    if not found:
        return None
    made = figures(found.coefficients)
    return made if link not in LIKE or link in ADDING else replace(made, switch=0.0)


def adds_up(link: Link) -> bool:
    """Whether the switch of a node makes the sums of its chips (NVLS)."""
    known = measured(link.name)
    return known is not None and known.switch > 0


@cache
def network_s(op: str) -> float:
    """Device seconds of the smallest message over a network beside its hops."""
    found, name = link_fit(NETWORK, TWO_NODES), "send_us" if op == "send_recv" else "collective_us"
    return 1e-6 * (found.coefficients[name] if found else NETWORK_US[name][0])


def _figures(link: Link, op: str, network: bool) -> Nccl:
    """Figures of a link; without measurements, those of its data sheet."""
    known = None if network else measured(link.name)
    if known:
        return known
    launch = network_s(op) if network else LAUNCH_S
    return Nccl(ring=EFFICIENCY, local=np.inf, launch_s=launch, hop_s=link.latency_s, small=0, ramp_s=0, growth=1)


def level(op: str, payload: Floats, ranks: int, link: Link, *, network: bool = False) -> Floats:
    """Seconds of a collective among chips, or over a `network` among nodes, of which each has its own way. Across
    sockets it takes no less than on one."""
    if link.name.endswith(ACROSS_SOCKETS):
        near = level(op, payload, ranks, replace(link, name=link.name.removesuffix(ACROSS_SOCKETS)))
        return np.maximum(near, by(_figures(link, op, network=False), op, payload, ranks, link))
    found = by(_figures(link, op, network), op, payload, ranks, link, network=network)
    known = None if network or link.name in LIKE else link_fit("nccl", fit_of(link.name))
    return found * known.factor(op, payload, ranks) if known else found


def by(c: Nccl, op: str, payload: Floats, ranks: int, link: Link, *, network: bool = False) -> Floats:
    """Seconds of a collective by the given figures."""
    if ranks <= 1:
        return np.zeros_like(payload)
    best = _ring(op, payload, ranks, link, c)
    if op == "all_reduce" and network:
        best = np.minimum(best, _tree(payload, ranks, link, c))
    if op == "all_reduce" and c.switch and not network:
        best = np.minimum(best, _switch(payload, ranks, link, c))
    return np.where(payload > 0, best, 0.0)


def _hops(op: str, ranks: int) -> float:
    """Steps that a small message takes: sends to all others go out at once, and meet in pairs."""
    return {"all_to_all": math.log2(ranks), "send_recv": 1.0}.get(op, PASSES[op] * (ranks - 1))


def _ring(op: str, payload: Floats, ranks: int, link: Link, c: Nccl) -> Floats:
    share = 1.0 if op in WHOLE else (ranks - 1) / ranks
    carried = PASSES[op] * share * payload * (1 / (c.ring * link.bandwidth_bytes_s) + 1 / c.staged_bytes_s)
    fixed = c.launch_s + _hops(op, ranks) * c.hop_s
    if op == "send_recv":
        return np.asarray(fixed + carried)
    carried = carried + payload / ranks / (c.local * link.bandwidth_bytes_s)
    return np.asarray(fixed + carried + _filling(payload, carried, c, _hops(op, ranks)))


def _tree(payload: Floats, ranks: int, link: Link, c: Nccl) -> Floats:
    """Two binary trees, each with half of the bytes: up and down again, in as many steps as a tree has floors."""
    carried = 2.0 * payload / (c.ring * link.bandwidth_bytes_s)
    steps = 2 * math.ceil(math.log2(ranks))
    return np.asarray(c.launch_s + steps * c.hop_s + carried + _filling(payload, carried, c, steps))


def _switch(payload: Floats, ranks: int, link: Link, c: Nccl) -> Floats:
    """Each rank sends all it has into the switch and reads its part of the sum, then sends that to all at once."""
    carried = (1 + 1 / ranks) * payload / (c.switch * link.bandwidth_bytes_s)
    return np.asarray(c.launch_s + c.switch_s + carried)


def _filling(payload: Floats, carried: Floats, c: Nccl, steps: float) -> Floats:
    grown = c.ramp_s * (payload / RAMP_BYTES) ** c.growth
    return np.asarray(np.minimum(c.small * carried, grown + steps * c.step_s))
