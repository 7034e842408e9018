"""Chips one may use: pools of one chip each, in nodes that a network joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnomon.spec.answers import NotModelled
from gnomon.spec.chip import Chip, Link
from gnomon.spec.host import Host

ACROSS_SOCKETS, BETWEEN_BRIDGES = " across sockets", " between bridges"
"""What the name of a node's link ends with where a group of chips needs more than the chips of one processor, or of
one bridge, can reach by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine: chips joined by a link of their own, adapters to the network, and a host."""

    name: str
    chips: int
    scaleup: Link
    adapter: Link
    """One adapter: the bandwidth of its port, one direction."""
    adapters: int
    host: Host | None = None
    bridged: bool = False
    """Whether the chips' own bridges are fitted; the rest of the node is joined by `scaleup`."""
    sockets: int = 1
    """Processors that share the chips out, where these have no link but that of their slots."""
    oversubscription: float = 1.0
    """What leaves the switches of a pod has the bandwidth of the adapters divided by this."""
    pod_nodes: int = 1
    """Nodes whose adapters reach each other at full bandwidth: under one switch, or one per rail."""
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    confidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def scaleout(self) -> Link:
        """One chip's share of the adapters, which all chips of the node use at once."""
        return replace(self.adapter, bandwidth_bytes_s=self.adapter.bandwidth_bytes_s * self.adapters / self.chips)


KWH_J = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerGrid:
    """Where electricity comes from: grams of CO2 equivalent per kilowatt-hour, mean of a year."""

    name: str
    place: str
    g_co2_kwh: float
    aliases: tuple[str, ...] = ()
    source: str = ""
    confidence: str = "read"

    def co2_g(self, energy_j: float) -> float:
        """Grams of CO2 equivalent of so much electricity."""
        return energy_j / KWH_J * self.g_co2_kwh

    @property
    def told(self) -> dict[str, str | float]:
        """As answers name it."""
        return {"name": self.name, "place": self.place, "g_co2_kwh": self.g_co2_kwh, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One chip for an hour at one cloud, on demand or spot; region `any` is the median over its regions."""

    chip: str
    cloud: str
    region: str
    kind: str
    usd_h: float
    date: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`count` chips of one kind, in nodes of `per_node` joined by the chip's own link, or by what `node` says."""

    chip: Chip
    count: int
    per_node: int
    node: Node | None = None
    grid: PowerGrid | None = None
    file: str = ""
    """The cluster's file it was read from."""
    not_modelled: tuple[NotModelled, ...] = ()
    """Fields of that file that no answer depends on."""
    fabric_fields: tuple[str, ...] = ()
    """Fields of that file that only say how much of its bandwidth the network keeps beyond a pod of nodes."""
    power_limit_w: float = 0.0
    """What each chip may draw, where that was lowered; 0 for the chip's own limit."""

    @classmethod
    def of(
        cls, chip: Chip, count: int, node: Node | None = None, grid: PowerGrid | None = None, file: str = ""
    ) -> Pool:
        """So many chips, in whole nodes as far as they go."""
        per_node = min(count, node.chips if node else chip.scaleup_size)
        return cls(chip=chip, count=count, per_node=per_node, node=node, grid=grid, file=file)

    @property
    def words(self) -> str:
        """As it is written on a command line."""
        return f"{self.file or self.chip.reference}:{self.count}"

    def __str__(self) -> str:
        return self.words

    @property
    def limit_inputs(self) -> dict[str, float]:
        """The lowered power limit among the inputs of an answer."""
        return {"power_limit_w": self.power_limit_w} if self.power_limit_w else {}

    @property
    def limited_words(self) -> str:
        """The lowered power limit in a title, ` at 400 W`; empty where there is none."""
        return f" at {self.power_limit_w:g} W" if self.power_limit_w else ""

    @property
    def node_size(self) -> int:
        """Chips of a full node."""
        return self.node.chips if self.node else self.chip.scaleup_size

    @property
    def unusual_node_size(self) -> int:
        """Chips of a full node where that differs from the chip's usual number, else 0."""
        return self.node_size if self.node_size != self.chip.scaleup_size else 0

    @property
    def scaleup(self) -> Link:
        return self.node.scaleup if self.node else self.chip.scaleup

    @property
    def scaleout(self) -> Link:
        return self.node.scaleout if self.node else self.chip.scaleout

    @property
    def host(self) -> Host | None:
        return self.node.host if self.node else None

    @property
    def machine(self) -> Host | None:
        """The host that a rank shares with its neighbours: a node's, or that of a tray of a rack."""
        return self.host.one if self.host else None

    @property
    def machine_chips(self) -> int:
        """Chips of such a machine, as far as they are there."""
        machines = self.host.machines if self.host else 1
        return min(self.per_node, max(1, self.node_size // machines))

    def resized(self, count: int) -> Pool:
        """The same kind of nodes with another number of chips."""
        return replace(self, count=count, per_node=min(count, self.node_size))

    def inside(self, span: int) -> Link:
        """The slowest link among so many neighbouring chips of one node."""
        node, link = self.node, self.scaleup
        bridge = self.chip.bridge if node and node.bridged else None
        if bridge and span <= self.chip.bridge_size:
            return bridge
        if node is None or link.direct:
            return link
        if node.sockets > 1 and span > -(-node.chips // node.sockets):
            return replace(link, name=link.name + ACROSS_SOCKETS)
        return replace(link, name=link.name + BETWEEN_BRIDGES) if bridge else link

    def between(self, ranks: int, link: Link) -> Link:
        """A link of one node as so many of its chips can use it: in a mesh, the wires that lead to each other."""
        if not link.mesh or not 1 < ranks < self.node_size:
            return link
        return replace(link, bandwidth_bytes_s=link.bandwidth_bytes_s * (ranks - 1) / (self.node_size - 1))

    def across(self, span: int) -> Link:
        """One chip's way to another node, in a group that spans so many neighbouring chips."""
        link, node = self.scaleout, self.node
        if node is None or span <= node.pod_nodes * self.per_node:
            return link
        return replace(link, bandwidth_bytes_s=link.bandwidth_bytes_s / node.oversubscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    pools: tuple[Pool, ...]

    @property
    def count(self) -> int:
        return sum(pool.count for pool in self.pools)
