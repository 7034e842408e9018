"""What a replica keeps beyond its chips, and whether its hosts have room for it."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost.tiers import HOST, NVME, rooms
from gnomon.engines.base import Deployment, MemoryUse, RankBytes
from gnomon.errors import DoesNotFitError
from gnomon.units import format_bytes


def with_tiers(use: MemoryUse, held: RankBytes, deployment: Deployment) -> MemoryUse:
    """The memory of a replica with what each rank holds on its host, and with what techniques make of the cache. Where
    a tier has no room, no sequence fits. All chips of a host do the same, be they of this replica or of others."""
    each = deployment.pool.machine_chips
    kept = {HOST: use.host_bytes + each * held.host, NVME: use.nvme_bytes + each * held.nvme}
    room = rooms(deployment.pool.machine)
    beyond = {HOST: held.host, NVME: held.nvme}
    full = next((tier for tier, size in kept.items() if beyond[tier] and size > room[tier]), "")
    use = replace(use, host_bytes=kept[HOST], nvme_bytes=kept[NVME], full_tier=full)
    use = deployment.techniques.kv_cache(use, deployment)
    return replace(use, kv_blocks=min(use.kv_blocks, 0)) if full else use


def check_tiers(use: MemoryUse, deployment: Deployment) -> None:
    """Raise DoesNotFitError where a host has no room for what the ranks of a replica keep there."""
    if tier := use.full_tier:
        kept, room = {HOST: use.host_bytes, NVME: use.nvme_bytes}[tier], rooms(deployment.pool.machine)[tier]
        raise DoesNotFitError(
            f"techniques keep {format_bytes(kept)} of {deployment.model.name} in the {tier} of each host, of "
            f"{format_bytes(room)} usable",
            hint="Keep less there, or leave the technique out.",
        )
