"""What clients send and which router spreads it, where techniques change either."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from gnomon.engines.base import Case
from gnomon.search.arrivals import Arrivals
from gnomon.sim.serving.routers import Router, router
from gnomon.spec import Requests
from gnomon.techniques import SERVING, Applied, applied


def of_clients(techniques: Iterable[str]) -> Applied[Case]:
    """The techniques of a plan, or of all its pools, each once."""
    found: Applied[Case] = applied(SERVING, tuple(dict.fromkeys(techniques)))  # type: ignore[assignment]
    return found


def arriving(arrivals: Arrivals, techniques: Iterable[str], case: Case) -> Arrivals:
    """A load as its replicas see it."""
    chosen = of_clients(techniques)
    asks = partial(chosen.requests, case=case) if chosen.asks_otherwise else None
    routes = chosen.router(partial(router, arrivals.router), case) if chosen.routes else None
    return replace(arrivals, asks=asks, routes=routes)


def router_of(arrivals: Arrivals, seed: int = 0) -> Router:
    """The router in front of replicas, with nothing routed yet."""
    found: Router = arrivals.routes(seed) if arrivals.routes else router(arrivals.router, seed)
    return found


def sent(stream: Requests, techniques: Iterable[str], case: Case) -> Requests:
    """Requests as clients send them."""
    return of_clients(techniques).requests(stream, case)
