"""What caches of experts fetch, evict and use."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from gnomon.lab.expert_caches import (
    EVERY,
    EVICT,
    FETCH,
    GUESSED,
    LRU,
    POPULAR,
    USE,
    CacheCosts,
    hits,
    plan,
    slots_of,
    timeline_s,
)
from gnomon.lab.routes import Routes, drawn

EXPERTS = 12
SHAPE = (6, 4, 5, 1)
POLICIES = (LRU, POPULAR, GUESSED, EVERY)


def routes(accuracy: float = 0.7) -> Routes:
    return drawn(SHAPE, EXPERTS, 0.6, accuracy, 5, stay=0.5)


@pytest.mark.parametrize("each", [2, 3, 8])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_used_is_there_and_no_more_than_there_is_room_for(policy: str, each: int) -> None:
    found, there = routes(), set[tuple[int, int]]()
    for step, told in enumerate(plan(policy, found, EXPERTS, each)):
        for layer, (actions, load) in enumerate(zip(told, found.loads(step), strict=True)):
            assert sorted(key[1] for what, key in actions if what == USE) == sorted(load)
            for what, key in actions:
                assert (key in there) == (what != FETCH)
                if what == FETCH:
                    there.add(key)
                elif what == EVICT:
                    there.remove(key)
                else:
                    assert key[0] == layer
                assert len(there) <= slots_of(policy, SHAPE[1], EXPERTS, each)
                assert policy != LRU or sum(one[0] == layer for one in there) <= each


def test_lru_is_that_of_a_plain_one() -> None:
    """Where a layer's experts all fit, each is looked up once, those that are there first."""
    found, each = routes(), 5
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(SHAPE[1])]
    for step, told in enumerate(plan(LRU, found, EXPERTS, each)):
        for cache, actions, load in zip(caches, told, found.loads(step), strict=True):
            order = sorted(load, key=lambda one, load=load: (-load[one], one))  # type: ignore[misc]
            missed = [one for one in order if one not in cache]
            assert [key[1] for what, key in actions if what == FETCH] == missed
            for one in sorted(order, key=lambda one, missed=missed: one in missed):  # type: ignore[misc]
                cache[one] = None
                cache.move_to_end(one)
            while len(cache) > each:
                cache.popitem(last=False)


def test_the_most_popular_stay() -> None:
    found = routes()
    kept = {(layer, one) for layer in range(SHAPE[1]) for one in found.cached(layer, 2)}
    steps = plan(POPULAR, found, EXPERTS, 3)
    evicted = {key for step in steps for layer in step for what, key in layer if what == EVICT}
    assert evicted and not evicted & kept


def test_perfect_guesses_miss_the_first_layer_alone() -> None:
    found = routes(1.0)
    told = plan(GUESSED, found, EXPERTS, 8)
    for step in told:
        for layer, actions in enumerate(step[1:], 1):
            assert not any(what == FETCH and key[0] == layer for what, key in actions)
    assert hits(told) > hits(plan(LRU, found, EXPERTS, 8))


def test_copies_and_launches_bound_a_timeline() -> None:
    found = routes()
    told = plan(LRU, found, EXPERTS, 3)
    fetched = sum(what == FETCH for step in told for layer in step for what, _ in layer)
    used = sum(what == USE for step in told for layer in step for what, _ in layer)
    slow_link = timeline_s(told, CacheCosts(link_s=1.0, gpu_s=0.0, launch_s=0.0, layer_s=0.0))
    assert slow_link == pytest.approx(fetched)
    slow_host = timeline_s(told, CacheCosts(link_s=0.0, gpu_s=0.0, launch_s=1.0, layer_s=0.5))
    assert slow_host == pytest.approx(used + 0.5 * SHAPE[0] * SHAPE[1])
