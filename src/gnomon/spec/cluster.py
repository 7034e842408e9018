"""Chips one may use: pools of one chip each."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.spec.chip import Chip, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`count` chips of one kind, in nodes of `per_node` joined by the chip's own link."""

    chip: Chip
    count: int
    per_node: int

    def link_of(self, ranks: int) -> Link:
        """The slowest link a group of neighbouring ranks crosses."""
        return self.chip.scaleup if ranks <= self.per_node else self.chip.scaleout


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    pools: tuple[Pool, ...]

    @property
    def count(self) -> int:
        return sum(pool.count for pool in self.pools)
