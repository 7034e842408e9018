"""How experts of a layer are shared out between the link and the CPU."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gnomon.lab.hybrid import AHEAD, FETCHED, HOSTED, SHARED, WAYS, Costs, step_plan
from gnomon.lab.routes import Routes, drawn

SHAPE = (4, 5, 6, 3)


def costs(**changed: float) -> Costs:
    return Costs(**{"link_s": 1.0, "cpu_bytes_s": 1.0, "cpu_flops_s": 1.0, "nbytes": 0.5, "row_flops": 0.1} | changed)


def routes(accuracy: float = 0.5) -> Routes:
    return drawn(SHAPE, 16, 0.6, accuracy, 3)


def cached(found: Routes) -> list[tuple[int, ...]]:
    return [found.cached(layer, 4) for layer in range(SHAPE[1])]


@pytest.mark.parametrize("way", WAYS)
def test_each_expert_is_computed_once(way: str) -> None:
    found = routes()
    for step in range(SHAPE[0]):
        before: tuple[int, ...] = ()
        for load, plan in zip(found.loads(step), step_plan(way, found, step, cached(found), costs()), strict=True):
            assert sorted((*plan.near, *plan.early, *plan.fetched, *plan.hosted)) == sorted(load)
            assert set(plan.early) == set(before) & set(load) and (way == AHEAD or not plan.ahead)
            assert not (way == FETCHED and plan.hosted) and not (way == HOSTED and plan.fetched)
            before = plan.ahead


def test_sharing_out_is_no_slower_than_either_alone() -> None:
    found, there = routes(), cached(routes())
    for link, cpu in ((1.0, 0.5), (0.5, 1.0), (1.0, 20.0), (20.0, 1.0)):
        told = costs(link_s=link, nbytes=cpu, row_flops=0.0)
        took = {way: [p.seconds for p in step_plan(way, found, 0, there, told)] for way in (FETCHED, HOSTED, SHARED)}
        for fetched, hosted, shared in zip(*(took[way] for way in (FETCHED, HOSTED, SHARED)), strict=True):
            assert shared <= min(fetched, hosted) + 1e-12


def test_experts_with_most_rows_are_fetched() -> None:
    found = routes()
    for load, plan in zip(found.loads(0), step_plan(SHARED, found, 0, [()] * SHAPE[1], costs()), strict=True):
        assert plan.fetched and plan.hosted
        assert min(load[one] for one in plan.fetched) >= max(load[one] for one in plan.hosted)


def test_a_perfect_guess_is_never_wasted() -> None:
    found = routes(1.0)
    assert (found.chosen == found.guessed).all()
    plans = step_plan(AHEAD, found, 0, cached(found), costs(cpu_bytes_s=0.4))
    assert any(plan.ahead for plan in plans)
    assert all(set(plan.ahead) == set(following.early) for plan, following in pairwise(plans))


def test_tokens_visit_distinct_experts_and_the_popular_more() -> None:
    found = drawn((50, 2, 20, 3), 16, 1.0, 0.8, 1)
    assert all(len(set(token)) == 3 for token in found.chosen.reshape(-1, 3).tolist())
    for layer in range(2):
        visits = [int((found.chosen[:, layer] == one).sum()) for one in found.popular[layer]]
        assert sum(visits[:4]) > 2 * sum(visits[-4:])
    right = float((found.chosen == found.guessed).mean())
    assert 0.78 < right < 0.85  # a wrong guess may be right by chance
