"""Serving and training engines by name and version."""

from __future__ import annotations

from gnomon.engines.base import Deployment, Engine, MemoryUse
from gnomon.errors import unknown_name

__all__ = ["Deployment", "Engine", "MemoryUse", "engine"]

NAMES = ("vllm",)


def engine(label: str) -> Engine:
    """The engine of `name` or `name@version`; a version that is not known is refused."""
    name, _, version = label.partition("@")
    if name != "vllm":
        raise unknown_name("engine", name, NAMES)
    from gnomon.engines.vllm.engine import Vllm

    return Vllm(version)
