"""Whether slots for LoRA adapters limit a load: the same run with a slot for each adapter, and as much KV cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gnomon.planning.serving.evaluator import ServingEvaluator
from gnomon.search import Score
from gnomon.sim.serving import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.units import format_duration


def slots_of_run(
    run: ServingRun, limits: ServingLimits, adapters: int, again: Callable[[ServingLimits], ServingRun]
) -> dict[str, float]:
    """Of a simulated load, which `again` simulates within other limits; nothing where there are slots enough."""
    if not 0 < limits.adapter_slots < adapters:
        return {}
    means = [one.statistics("ttft")["mean"] for one in (run, again(_with_all(limits, adapters)))]
    return _told(limits, adapters, means[0] - means[1])


def slots_of_plan(score: Score, evaluator: ServingEvaluator, adapters: int) -> dict[str, float]:
    """Of a plan of equal replicas."""
    replica, plan = evaluator.replicas[score.plan.family], score.plan
    if plan.family.prefill is not None or not 0 < replica.limits.adapter_slots < adapters:
        return {}
    count = score.detail.requests
    means = [
        evaluator.part(plan, score.rate_per_s, count, replica.cost, limits, replica.curves)[0].ttft_s["mean"]
        for limits in (replica.limits, _with_all(replica.limits, adapters))
    ]
    return _told(replica.limits, adapters, means[0] - means[1])


def slots_words(found: Mapping[str, float]) -> str:
    """Behind what a plan misses, where slots have a part in it."""
    if not found.get("slot_wait_s"):
        return ""
    slots, adapters, longer = found["adapter_slots"], found["adapters"], format_duration(found["slot_wait_s"])
    return f", with {slots:,.0f} slots for {adapters:,.0f} adapters ({longer} of the mean TTFT)"


def _with_all(limits: ServingLimits, adapters: int) -> ServingLimits:
    return replace(limits, adapter_slots=adapters, host_adapters=max(limits.host_adapters, adapters))


def _told(limits: ServingLimits, adapters: int, longer_s: float) -> dict[str, float]:
    return {"adapter_slots": limits.adapter_slots, "adapters": adapters, "slot_wait_s": max(longer_s, 0.0)}
