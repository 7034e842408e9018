"""How long the KV cache of a prompt is on its way from a prefill to a decode replica.

Every rank of the decode replica reads its own part from the ranks of the prefill replica, all at once. Inside a node
they use the chips' own links, as far as pools of one kind of chip fit in one; else each chip its share of the node's
adapters. Bytes per second are those that NCCL's sends reach on the link; posting a read for every block and layer is
not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gnomon.cost import nccl
from gnomon.engines.base import Deployment, Engine, MemoryUse
from gnomon.spec import Link, Pool
from gnomon.spec.plan import LAYERWISE, WHOLE


@dataclass(slots=True, kw_only=True)
class KvTransfer:
    """From the last token of a prompt until its KV cache is at the decode replica, in seconds by tokens."""

    kept: MemoryUse
    """What one rank of the decode replica keeps."""
    sends: int
    receives: int
    """Ranks of either replica."""
    out: Link
    into: Link
    """One rank's way out of a prefill replica, and into a decode replica."""
    inside: bool
    """Whether both are in one node."""
    layers: int = 1
    prompt_s: Callable[[int], float] | None = None
    """What a prompt takes to compute, where layers are sent as soon as they are there."""
    known: dict[int, float] = field(default_factory=dict)

    def __call__(self, tokens: int) -> float:
        if tokens not in self.known:
            self.known[tokens] = self._exposed(tokens)
        return self.known[tokens]

    def bytes_of(self, tokens: int) -> float:
        """Over all ranks of the decode replica."""
        return self.receives * self.kept.sequence_bytes(tokens, 1)

    def full_s(self, tokens: int) -> float:
        """All layers, with nothing to overlap with."""
        total = self.bytes_of(tokens)
        sent, received = (np.array([total / ranks]) for ranks in (self.sends, self.receives))
        ways = ((sent, self.out), (received, self.into))
        return max(float(nccl.level("send_recv", part, 2, link, network=not self.inside)[0]) for part, link in ways)

    def _exposed(self, tokens: int) -> float:
        seconds = self.full_s(tokens)
        if self.prompt_s is None:
            return seconds
        ahead = (1 - 1 / self.layers) * self.prompt_s(tokens)
        return max(seconds / self.layers, seconds - ahead)


def kv_transfer(
    engine: Engine,
    prefill: Deployment,
    decode: Deployment,
    chips: int,
    how: str = WHOLE,
    prompt_s: Callable[[int], float] | None = None,
) -> KvTransfer:
    """Between two replicas of a plan that has so many chips; layer by layer where that is asked for."""
    inside = _one_node(prefill.pool, decode.pool, chips)
    out, into = (_way(each, chips, inside) for each in (prefill, decode))
    return KvTransfer(
        kept=engine.memory(decode),
        sends=prefill.strategy.ranks,
        receives=decode.strategy.ranks,
        out=out,
        into=into,
        inside=inside,
        layers=decode.model.layers,
        prompt_s=prompt_s if how == LAYERWISE else None,
    )


def _one_node(prefill: Pool, decode: Pool, chips: int) -> bool:
    """Whether all chips of a plan fit in one node, so that all of its replicas are in it."""
    return prefill.chip.name == decode.chip.name and chips <= min(prefill.node_size, decode.node_size)


def _way(deployment: Deployment, chips: int, inside: bool) -> Link:
    pool = deployment.pool
    if not inside:
        return pool.resized(chips).across(chips)
    return pool.resized(chips).between(2, pool.inside(chips))
