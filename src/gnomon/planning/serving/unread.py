"""What loads say and simulations do not follow yet, for the answer's list of what is not modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gnomon.engines.base import Deployment, Engine
from gnomon.errors import GnomonError
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.ordered import OrderedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.spec import NotModelled, Requests, ServingLoad
from gnomon.spec.loads.popularity import priorities_text
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import RequestTrace

NOT_READ = ("adapter", "priority")
"""Columns of requests that the simulator reads only where the engine's settings say so."""
WHY = {
    "adapter": "all requests run as on the base model: LoRA is off in the engine's settings (--set)",
    "priority": "requests are scheduled in order of arrival, unless the engine goes by priority",
}
COLUMNS = {"adapter": "adapter", "priority": "priority"}
"""Columns of a trace that they come from."""
CHUNKED = (ChunkedPolicy, OrderedPolicy, SteppedPolicy)
"""Schedulers that decide the same, each with more features than the one before it."""
ADAPTER_LIMITS = {one.name for one in fields(ServingLimits) if "adapter" in one.name}
"""Limits that only requests with adapters meet."""
ORDERING = ("by_priority", "host_blocks", *ADAPTER_LIMITS)
ROUTED = "plans take turns one by one, at the earliest time they can arrive: a router may send them anywhere"


def unread_columns(
    stream: Requests,
    load: ServingLoad,
    trace: RequestTrace | None,
    limits: Sequence[ServingLimits] = (),
) -> tuple[NotModelled, ...]:
    """Columns of a load that no figure depends on within the limits of its replicas, by the flags or the columns that
    gave them; and what the trace's reader left out."""
    read = {"adapter"} if any(one.adapter_slots for one in limits) else set()
    read |= {"priority"} if any(one.by_priority for one in limits) else set()
    found = [
        NotModelled(option=option, why=WHY[name])
        for name in NOT_READ
        if getattr(stream, name) is not None and name not in read and _asked(name, load, trace)
        for option in _options(name, load)
    ]
    return (*found, *(trace.not_modelled if trace else ()))


def idle_settings(
    engine: Engine, deployment: Deployment, given: Mapping[str, Any], stream: Requests, preempted: bool = False
) -> tuple[str, ...]:
    """Settings that only order requests by a priority that they do not have, serve adapters that they do not ask for,
    or keep blocks that nobody asks for again: without one of them the scheduler's limits are the same but for that."""

    def told(limits: ServingLimits) -> ServingLimits:
        gone: dict[str, Any] = {}
        if stream.adapter is None:
            gone |= {one.name: one.default for one in fields(ServingLimits) if one.name in ADAPTER_LIMITS}
        if stream.priority is None:
            gone["by_priority"] = False
        if stream.prefixes is None and not preempted:
            gone |= {"host_blocks": 0, "host_block_s": 0.0, "host_copy_s": 0.0}
        return replace(limits, **gone, policy=_scheduler(limits, alone), cache=None, kv_blocks=0)

    alone = stream.prefixes is None and not preempted
    limits = engine.limits(deployment)
    kept, before = dict(given), limits
    for name in (*given, *given):  # some can only be left out once others are
        fewer = {key: value for key, value in kept.items() if key != name}
        if name not in kept:
            continue
        try:
            settings = engine.settings(fewer, deployment.model, deployment.pool)
            other = engine.limits(replace(deployment, settings=dict(deployment.settings) | settings))
        except GnomonError:
            continue
        ordered = any(getattr(before, one) != getattr(other, one) for one in ORDERING)
        cached = alone and _maker(before.cache) != _maker(other.cache)
        if (ordered or cached) and told(limits) == told(other):
            kept, before = fewer, other
    return tuple(name for name in given if name not in kept)


def _scheduler(limits: ServingLimits, alone: bool) -> Any:
    """What makes the scheduler; one and the same for all that are chunked. Where every prompt is `alone`, without what
    only matters to those that share beginnings."""
    found = None if limits.policy in CHUNKED else _maker(limits.policy)
    return getattr(found, "unshared", found) if alone else found


def _maker(called: Any) -> Any:
    """What a method belongs to: two are the same where these are equal."""
    return getattr(called, "__self__", called)


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


def _asked(name: str, load: ServingLoad, trace: RequestTrace | None) -> bool:
    """Whether the load has the column, and not a technique alone, whose scheduler reads it."""
    given = {"adapter": load.adapters, "priority": load.priorities}[name]
    return bool(given) or (trace is not None and getattr(trace.requests, name) is not None)


def _options(name: str, load: ServingLoad) -> tuple[str, ...]:
    if load.trace and load.turns == 1:
        return (f"column {COLUMNS[name]}",)
    flags = {
        "adapter": f"--adapters {load.adapters}",
        "priority": f"--priorities {priorities_text(load.priorities)}",
    }
    return (flags[name],)
