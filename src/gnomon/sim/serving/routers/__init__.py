"""Routers by name. Random assignment is what a Kubernetes Service does."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.errors import unknown_name
from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest, Router
from gnomon.sim.serving.routers.least import LeastKvRouter, LeastRequestsRouter
from gnomon.sim.serving.routers.plain import RandomRouter, RoundRobinRouter, WeightedRouter
from gnomon.sim.serving.routers.prefix_aware import PrefixAwareRouter

__all__ = ["ROUTERS", "ReplicaLoad", "RoutedRequest", "Router", "router"]

ROUTERS: dict[str, Callable[[int], Router]] = {
    "random": RandomRouter,
    "round-robin": RoundRobinRouter,
    "least-requests": LeastRequestsRouter,
    "least-kv": LeastKvRouter,
    "prefix-aware": PrefixAwareRouter,
    "weighted": WeightedRouter,
}


def router(name: str, seed: int = 0) -> Router:
    """A router by its name, with nothing routed yet."""
    if name not in ROUTERS:
        raise unknown_name("router", name, ROUTERS)
    return ROUTERS[name](seed)
