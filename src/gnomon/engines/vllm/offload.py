"""KV offloading of vLLM 0.24 (`kv_offloading_size`, the native backend): blocks kept in the host's memory."""

from __future__ import annotations

from typing import Any

from gnomon.engines.base import Deployment, MemoryUse
from gnomon.engines.vllm.lora import features
from gnomon.errors import InputError

GIB = 1024.0**3


def check(deployment: Deployment) -> None:
    """Refuse a host that is not known."""
    if not deployment.settings["kv_offloading_size"]:
        return
    if deployment.pool.host is None:
        raise InputError(
            f"the host of {deployment.pool.chip.name} is not known",
            where="setting kv_offloading_size",
            hint="Describe it in a cluster file, or leave kv_offloading_size out.",
        )


def limits(deployment: Deployment, use: MemoryUse) -> dict[str, Any]:
    """The second tier as the scheduler knows it. Copies reach a share of the link's bandwidth."""
    size, host, tp = deployment.settings["kv_offloading_size"], deployment.pool.host, deployment.strategy.tp
    if not size or host is None:
        return {}
    figures = features()["offload"]["figures"]
    per_rank = use.block_bytes
    return {
        "host_blocks": int(size * GIB / (per_rank * tp)),
        "host_block_s": per_rank / (host.copy_bytes_s(tp) * figures["link_share"]),
        "host_copy_s": figures["copy_us"] * 1e-6,
    }
