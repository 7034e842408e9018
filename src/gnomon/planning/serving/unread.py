"""What loads say and simulations do not follow yet, for the answer's list of what is not modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.base import Deployment, Engine
from gnomon.errors import GnomonError
from gnomon.spec import NotModelled, Requests, ServingLoad
from gnomon.spec.loads.popularity import priorities_text
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import RequestTrace

NOT_READ = ("adapter", "priority")
"""Columns of requests that the simulator reads only where the engine's settings say so."""
WHY = {
    "adapter": "all requests run as on the base model, unless the engine has adapters",
    "priority": "requests are scheduled in order of arrival, unless the engine goes by priority",
}
IN_TURNS = "requests of sessions and closed loops are sent one by one, without it"
COLUMNS = {"adapter": "adapter", "priority": "priority"}
"""Columns of a trace that they come from."""
ROUTED = "plans take turns one by one, at the earliest time they can arrive: a router may send them anywhere"


def unread_columns(
    stream: Requests,
    load: ServingLoad,
    trace: RequestTrace | None,
    limits: ServingLimits | None = None,
    one_by_one: bool = False,
) -> tuple[NotModelled, ...]:
    """Columns of a load that no figure depends on within these limits, by the flags or the columns that gave them; and
    what the trace's reader left out. `one_by_one`: requests are sent as clients have answers."""
    read = {"adapter"} if limits and limits.adapter_slots else set()
    read |= {"priority"} if limits and limits.by_priority else set()
    found = [
        NotModelled(option=option, why=IN_TURNS if name in read else WHY[name])
        for name in NOT_READ
        if getattr(stream, name) is not None and (one_by_one or name not in read)
        for option in _options(name, load)
    ]
    return (*found, *(trace.not_modelled if trace else ()))


def idle_settings(
    engine: Engine, deployment: Deployment, given: Mapping[str, Any], stream: Requests, preempted: bool = False
) -> tuple[str, ...]:
    """Settings that only order requests by a priority that they do not have, serve adapters that they do not ask for,
    or keep blocks that nobody asks for again: without one of them the scheduler's limits are the same but for that."""

    def told(limits: ServingLimits) -> ServingLimits:
        if stream.adapter is None and limits.adapter_slots:
            gone: dict[str, Any] = {
                "adapter_slots": 0,
                "host_adapters": 0,
                "adapter_copy_s": 0.0,
                "adapter_read_s": 0.0,
            }
            limits = replace(limits, **gone, policy=limits.policy if limits.by_priority else None)
        if stream.priority is None:
            limits = replace(limits, by_priority=False, policy=limits.policy if limits.adapter_slots else None)
        if stream.prefixes is None and not preempted and limits.host_blocks:
            limits = replace(limits, host_blocks=0, host_block_s=0.0, host_copy_s=0.0, policy=None, cache=None)
        return replace(limits, cache=None, kv_blocks=0)

    found, limits = [], engine.limits(deployment)
    for name in given:
        fewer = {key: value for key, value in given.items() if key != name}
        try:
            settings = engine.settings(fewer, deployment.model, deployment.pool)
            other = engine.limits(replace(deployment, settings=dict(deployment.settings) | settings))
        except GnomonError:
            continue
        alone = stream.prefixes is None and not preempted and limits.policy == other.policy
        names = ("by_priority", "host_blocks", "adapter_slots", *(["cache"] if alone else []))
        ordered = any(getattr(limits, one) != getattr(other, one) for one in names)
        if ordered and told(limits) == told(other):
            found.append(name)
    return tuple(found)


def one_by_one(load: ServingLoad, trace: RequestTrace | None) -> tuple[NotModelled, ...]:
    """Sessions, which plans do not keep together."""
    if load.turns == 1 and (trace is None or trace.requests.follows is None):
        return ()
    option = f"--turns {load.turns}" if load.turns > 1 else "column think_s"
    return (NotModelled(option=option, why=ROUTED),)


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
