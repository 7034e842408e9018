"""What loads say and simulations do not follow yet, for the answer's list of what is not modelled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines import Deployment, Engine
from gnomon.errors import GnomonError
from gnomon.spec import NotModelled, Requests, ServingLimits, ServingLoad
from gnomon.spec.loads.popularity import priorities_text
from gnomon.spec.workload import RequestTrace

NOT_READ = ("adapter", "priority")
"""Columns of requests that the simulator does not read yet: a name goes as soon as it does."""
WHY = {
    "adapter": "all requests run as on the base model",
    "priority": "requests are scheduled in order of arrival",
}
COLUMNS = {"adapter": "adapter", "priority": "priority"}
"""Columns of a trace that they come from."""
ROUTED = "plans take turns one by one, at the earliest time they can arrive: a router may send them anywhere"


def unread_columns(stream: Requests, load: ServingLoad, trace: RequestTrace | None) -> tuple[NotModelled, ...]:
    """Columns of a load that no figure depends on, by the flags or the columns that gave them; and what the trace's
    reader left out."""
    found = [
        NotModelled(option=option, why=WHY[name])
        for name in NOT_READ
        if getattr(stream, name) is not None
        for option in _options(name, load)
    ]
    return (*found, *(trace.not_modelled if trace else ()))


def one_by_one(load: ServingLoad, trace: RequestTrace | None) -> tuple[NotModelled, ...]:
    """Sessions, which plans do not keep together."""
    if load.turns == 1 and (trace is None or trace.requests.follows is None):
        return ()
    option = f"--turns {load.turns}" if load.turns > 1 else "column think_s"
    return (NotModelled(option=option, why=ROUTED),)


def idle_cache(
    given: Mapping[str, Any], deployed: Callable[[Mapping[str, Any]], tuple[Engine, Deployment]], stream: Requests
) -> Iterator[NotModelled]:
    """Settings of the engine that only say how the KV cache keeps prefixes, where no prompts share any; `deployed`
    gives a replica with some settings."""
    if stream.prefixes is not None:
        return

    def limited(settings: Mapping[str, Any]) -> tuple[ServingLimits, Hashable]:
        engine, deployment = deployed(settings)
        return engine.limits(deployment), engine.cost_key(deployment)

    for name in given:
        try:
            one, other = map(limited, (given, {key: value for key, value in given.items() if key != name}))
        except GnomonError:  # without it there is no such replica
            continue
        if one != other and replace(one[0], cache=None) == replace(other[0], cache=None) and one[1] == other[1]:
            yield NotModelled(option=f"{name}={given[name]}", why="no prompts share a beginning")


def unused_times(trace: RequestTrace | None, clients: int | None) -> tuple[NotModelled, ...]:
    """Arrivals of a trace that a closed loop does not follow."""
    if clients is None or trace is None or not trace.timed:
        return ()
    why = "clients of a closed loop send when they have an answer"
    return (NotModelled(option="arrival times of --trace", why=why),)


def _options(name: str, load: ServingLoad) -> tuple[str, ...]:
    if load.trace and load.turns == 1:
        return (f"column {COLUMNS[name]}",)
    flags = {
        "adapter": f"--adapters {load.adapters}",
        "priority": f"--priorities {priorities_text(load.priorities)}",
    }
    return (flags[name],)
