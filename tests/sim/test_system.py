"""Deployments of several replicas: stages with transfers, sessions, unlike replicas, routers that look at prefixes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import Case, cases, sharing_cases
from tests.sim.costs import Adapted, Cliffs, Smooth
from tests.sim.plain import Plain

from gnomon.sim.serving import simulate
from gnomon.sim.serving.base import Queue
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.sim.serving.closed import simulate_closed
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.ordered import OrderedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.sim.serving.routers import ROUTERS, ReplicaLoad, RoutedRequest, router
from gnomon.sim.serving.system import ReplicaModel, ServingStage, SystemRun, simulate_system
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests

LIMITS = ServingLimits(kv_blocks=4000, max_sequences=64, max_step_tokens=2048, max_context=8192, ingress_s=0.01)


def seconds(tokens: int) -> float:
    return 0.002 + 1e-5 * tokens


def disaggregated(case: Case, makes_first: bool, prefills: int = 1, decodes: int = 1) -> SystemRun:
    load, cost, limits = case
    model = ReplicaModel(cost=cost, limits=replace(limits, kv_blocks=limits.kv_blocks + 2, max_context=2000))
    return simulate_system(
        load,
        (
            ServingStage(replicas=(model,) * prefills, router=router("round-robin")),
            ServingStage(
                replicas=(model,) * decodes, router=router("round-robin"), transfer_s=seconds, makes_first=makes_first
            ),
        ),
    )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), makes_first=st.booleans())
def test_two_stages_are_two_plain_replicas_with_a_transfer_between(case: Case, makes_first: bool) -> None:
    load, cost, limits = case
    limits = replace(limits, kv_blocks=limits.kv_blocks + 2, max_context=2000)
    run = disaggregated(case, makes_first)
    ones = np.ones(len(load), np.int64)
    first = Plain(replace(load, output_tokens=ones), cost, limits).run()
    left = first.left_at
    order = np.lexsort((np.arange(len(load)), left))
    goes_on = order[(load.output_tokens[order] > 1) | makes_first]
    there, busy = np.zeros(len(load)), -np.inf
    prompts = load.input_tokens + (not makes_first)
    for request in goes_on:
        busy = there[request] = max(left[request], busy) + seconds(int(prompts[request]))
    ended = np.setdiff1d(order, goes_on)
    np.testing.assert_allclose(run.finish_s[ended], first.finish_s[ended], rtol=1e-9)
    if not goes_on.size:
        return
    outputs = load.output_tokens - (not makes_first)
    second = Plain(Requests(there[goes_on], prompts[goes_on], outputs[goes_on]), cost, limits, loaded=True).run()
    np.testing.assert_allclose(run.finish_s[goes_on], second.finish_s, rtol=1e-9)
    if makes_first:
        np.testing.assert_allclose(run.first_token_s[goes_on], second.first_s, rtol=1e-9)
    else:
        np.testing.assert_allclose(run.first_token_s, first.first_s, rtol=1e-9)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.one_of(cases(), sharing_cases()),
    name=st.sampled_from(sorted(ROUTERS)),
    prefills=st.integers(1, 3),
    decodes=st.integers(0, 3),
)
def test_every_request_is_served_once(case: Case, name: str, prefills: int, decodes: int) -> None:
    """Whatever the router: tokens are conserved, times are in order, and every replica ends empty."""
    load, cost, limits = case
    model = ReplicaModel(cost=cost, limits=limits)
    stages = [ServingStage(replicas=(model, replace(model, weight=2.0), model)[:prefills], router=router(name, 3))]
    if decodes:
        stages.append(ServingStage(replicas=(model,) * decodes, router=router(name, 4), transfer_s=seconds))
    run = simulate_system(load, stages)
    for runs in run.stages:
        assert sum(len(each.requests) for each in runs) == len(load)
    made = sum(int(each.requests.output_tokens.sum()) for each in run.stages[-1])
    assert made == int(load.output_tokens.sum())
    assert (run.first_token_s >= load.arrival_s).all()
    assert (run.finish_s >= run.first_token_s - 1e-12).all()
    again = simulate_system(load, [replace(stage, router=router(name, 3 + at)) for at, stage in enumerate(stages)])
    assert again.finish_s.tolist() == run.finish_s.tolist()


def test_turns_of_a_session_follow_the_answers_before_them() -> None:
    rng = np.random.default_rng(1)
    count = 60
    follows = np.where(np.arange(count) % 3 == 0, -1, np.arange(count) - 1)
    think = rng.exponential(0.5, count)
    arrival = np.where(follows < 0, np.arange(count) * 0.1, 0.0)
    limits = replace(LIMITS, request_s=0.002, egress_s=0.001)
    load = Requests(arrival, rng.integers(1, 300, count), rng.integers(1, 40, count), follows=follows, think_s=think)
    stage = ServingStage(replicas=(ReplicaModel(cost=Smooth(), limits=limits),), router=router("random"))
    run = simulate_system(load, (stage,))
    turns = follows >= 0
    np.testing.assert_allclose(run.requests.arrival_s[turns], run.finish_s[follows[turns]] + think[turns], rtol=1e-12)
    order = np.argsort(run.requests.arrival_s, kind="stable")
    alone = simulate(replace(run.requests, follows=None, think_s=None).take(order), Smooth(), limits)
    np.testing.assert_allclose(alone.finish_s, run.finish_s[order], rtol=1e-9)


def test_a_router_that_looks_at_prefixes_finds_more_in_the_cache() -> None:
    rng = np.random.default_rng(2)
    count, groups = 3000, 60
    node = rng.integers(0, groups, count)
    end = np.full(groups, 1600)
    load = Requests(
        np.cumsum(rng.exponential(0.05, count)), 1600 + rng.integers(1, 300, count), rng.integers(1, 60, count),
        prefixes=Prefixes(node, np.full(groups, -1), end),
    )  # fmt: skip
    model = ReplicaModel(cost=Smooth(), limits=replace(LIMITS, kv_blocks=2500, cache=HashedBlocks))
    found = {}
    for name in ("random", "prefix-aware"):
        run = simulate_system(load, (ServingStage(replicas=(model,) * 4, router=router(name)),))
        found[name] = float(run.cached_tokens.sum() / load.input_tokens.sum())
    assert found["prefix-aware"] > found["random"] + 0.1


def test_weights_decide_who_gets_how_much() -> None:
    loads = [ReplicaLoad(1.0), ReplicaLoad(3.0)]
    weighted = router("weighted", 1)
    chosen = [weighted.choose(RoutedRequest(i, 10, []), loads) for i in range(4000)]
    assert 0.72 < float(np.mean(chosen)) < 0.78


@pytest.mark.parametrize("cost", [Smooth(), Cliffs()])
def test_no_replica_of_a_stage_waits_for_another_transfer(cost: Smooth | Cliffs) -> None:
    """With more replicas that decode, transfers run side by side and answers come no later."""
    rng = np.random.default_rng(4)
    load = Requests(np.cumsum(rng.exponential(0.01, 200)), rng.integers(100, 800, 200), rng.integers(2, 40, 200))
    one, four = (disaggregated((load, cost, replace(LIMITS, max_context=2000)), True, 2, n) for n in (1, 4))
    assert np.median(four.finish_s - load.arrival_s) < np.median(one.finish_s - load.arrival_s)


SERVED = ServingLimits(
    kv_blocks=26, max_sequences=8, max_step_tokens=64, max_context=400, ingress_s=1e-3, cache=HashedBlocks
)
SCHEDULERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "counted": {"cache": CountedBlocks},
    "priorities": {"policy": OrderedPolicy, "by_priority": True},
    "adapters": {"policy": OrderedPolicy, "adapter_slots": 2, "host_adapters": 3, "adapter_copy_s": 0.01},
    "drafts": {"policy": SteppedPolicy, "drafts": 3, "draft_shares": ((1.0, (0.8, 0.5, 0.2)),)},
    "offloading": {"policy": SteppedPolicy, "cache": TieredBlocks, "host_blocks": 90, "host_block_s": 1e-3},
}
SCHEDULERS["adapters and priorities"] = SCHEDULERS["adapters"] | SCHEDULERS["priorities"]
SCHEDULERS["drafts, adapters and priorities"] = SCHEDULERS["adapters and priorities"] | SCHEDULERS["drafts"]
SCHEDULERS["drafts and offloading"] = SCHEDULERS["drafts"] | SCHEDULERS["offloading"]
SCHEDULERS["offloading and adapters"] = SCHEDULERS["adapters"] | SCHEDULERS["offloading"]


def mixed_load(seed: int, count: int = 80) -> Requests:
    """Requests that share beginnings, with adapters and priorities, close together."""
    rng = np.random.default_rng(seed)
    node, end = rng.integers(-1, 4, count), np.array([20, 50, 64, 90])
    own = rng.integers(1, 60, count)
    return Requests(
        np.cumsum(rng.exponential(0.005, count)),
        np.where(node < 0, 0, end[node]) + own,
        rng.integers(1, 40, count),
        prefixes=Prefixes(node, np.full(4, -1), end),
        adapter=rng.integers(-1, 4, count),
        priority=rng.integers(0, 3, count),
    )


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("clients", [1, 12, 40])
def test_a_closed_loop_reads_adapters_and_priorities(name: str, clients: int) -> None:
    """It is the run of the arrivals that came of it."""
    limits = replace(SERVED, **SCHEDULERS[name])
    loop = simulate_closed(mixed_load(clients), clients, Adapted(Smooth()), limits)
    again = simulate(loop.requests, Adapted(Smooth()), limits)
    np.testing.assert_allclose(again.finish_s, loop.finish_s, rtol=1e-12)
    np.testing.assert_allclose(again.first_token_s, loop.first_token_s, rtol=1e-12)
    assert again.cached_tokens.tolist() == loop.cached_tokens.tolist()


@pytest.mark.parametrize("name", ["priorities", "adapters", "drafts, adapters and priorities"])
def test_sessions_read_adapters_and_priorities(name: str) -> None:
    load = mixed_load(5)
    follows = np.where(np.arange(80) % 4 > 0, np.arange(80) - 1, -1)
    load = replace(load, follows=follows, think_s=np.full(80, 0.05))
    limits = replace(SERVED, **SCHEDULERS[name])
    turns = simulate_closed(load, None, Adapted(Smooth()), limits)
    again = simulate(turns.requests, Adapted(Smooth()), limits)
    np.testing.assert_allclose(again.finish_s, turns.finish_s, rtol=1e-12)
    without = simulate_closed(replace(load, adapter=None, priority=None), None, Adapted(Smooth()), limits)
    assert not np.array_equal(without.finish_s, turns.finish_s)


@pytest.mark.battery(8)
@pytest.mark.parametrize("routed", ROUTERS)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_nothing_is_lost_or_made(name: str, routed: str) -> None:
    """Every scheduler, cache and router: each request is served once and gets its tokens, each replica does what it
    does alone with its share, and at every call of the scheduler its blocks are those of the requests in the batch."""
    limits = replace(SERVED, **SCHEDULERS[name])
    load = mixed_load(3)
    watched = replace(limits, policy=counting(limits.policy or ChunkedPolicy))
    model = ReplicaModel(cost=Adapted(Smooth()), limits=watched)
    run = simulate_system(load, (ServingStage(replicas=(model,) * 2, router=router(routed, 1)),))
    assert sorted(np.concatenate(run.served[0]).tolist()) == list(range(80))
    assert (run.finish_s >= run.first_token_s).all()
    assert (run.first_token_s > load.arrival_s).all()
    for share, at in zip(run.stages[0], run.served[0], strict=True):
        assert share.requests.input_tokens.tolist() == load.input_tokens[at].tolist()
        alone = simulate(share.requests, Adapted(Smooth()), limits)
        np.testing.assert_allclose(share.finish_s, alone.finish_s, rtol=1e-9)
        assert share.cached_tokens.tolist() == alone.cached_tokens.tolist()
        assert share.preemptions == alone.preemptions
        if not limits.drafts and not share.preemptions:
            made = share.totals.decodes + len(at)
            assert made == share.requests.output_tokens.sum()
            assert share.totals.prefill_tokens == (share.requests.input_tokens - share.cached_tokens).sum()
    assert sum(one.preemptions for one in run.stages[0]) > 0 or routed not in ("round-robin", "random")


def counting(policy: Any) -> Any:
    """A scheduler that counts its requests and blocks at every call."""

    class Counted(policy):  # type: ignore[misc]
        __slots__ = ()

        def decide(self, queue: Queue, now: float) -> Any:
            decision = super().decide(queue, now)
            self.check()
            return decision

        def release(self) -> None:
            super().release()
            if not self.count and not getattr(self, "_placeless", None):
                assert self.cache.free == SERVED.kv_blocks

        def check(self) -> None:
            assert 0 <= self.cache.free <= SERVED.kv_blocks
            assert 0 <= self.count <= SERVED.max_sequences
            held = SERVED.kv_blocks - self.cache.free
            assert held <= sum(-(-tokens // SERVED.block_tokens) for tokens in self.held_tokens())
            cache = self.cache
            if isinstance(cache, HashedBlocks) and cache._tracks:
                at, unheld = cache._queue.after, 0
                while at is not cache._queue:
                    assert at.holders == 0
                    unheld += at.high - at.low
                    at = at.after
                assert cache.free == cache._blank + unheld
            if isinstance(cache, TieredBlocks):
                assert len(cache._host) <= SCHEDULERS["offloading"]["host_blocks"]

        def held_tokens(self) -> list[int]:
            """Of all that have blocks, as if nobody shared."""
            if isinstance(self, SteppedPolicy):
                assert self._placeless <= self._of.keys()
                return [one.held for one in self._of.values()]
            prompts = [self.partial_tokens] if self.partial >= 0 else []
            waits = [self._prompt[one] + self._output[one] for one in self._stack]
            return prompts + waits

    return Counted
