"""Stages that are run one after the other are those of the system that runs them together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import Case, cases, sharing_cases

from gnomon.sim.serving.apart import as_one, decode, prefill
from gnomon.sim.serving.routers import ROUTERS, router
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec.plan import LOAD_AWARE
from gnomon.spec.plan import ROUTERS as NAMES


def seconds(tokens: int) -> float:
    return 0.002 + 1e-5 * tokens


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.one_of(cases(), sharing_cases()),
    name=st.sampled_from(["random", "round-robin", "weighted"]),
    prefills=st.integers(1, 3),
    decodes=st.integers(1, 3),
)
def test_apart_is_the_system(case: Case, name: str, prefills: int, decodes: int) -> None:
    load, cost, limits = case
    limits = replace(limits, kv_blocks=limits.kv_blocks + 2, max_context=2000)
    models = [ReplicaModel(cost=cost, limits=limits, weight=1 + place) for place in range(3)]
    ahead, behind = models[:prefills], models[:decodes]
    whole = simulate_system(
        load,
        (
            ServingStage(replicas=ahead, router=router(name, 0)),
            ServingStage(replicas=behind, router=router(name, 1), transfer_s=seconds),
        ),
    )
    first = prefill(load, ahead, router(name, 0))
    second = decode(first, behind, router(name, 1), seconds)
    run = as_one([first, second])
    for column in ("first_token_s", "finish_s", "scheduled_s", "cached_tokens"):
        np.testing.assert_allclose(getattr(run, column), getattr(whole, column), rtol=1e-9, err_msg=column)
    runs = [one for stage in whole.stages for one in stage]
    assert run.steps == sum(one.steps for one in runs)
    assert run.busy_s == pytest.approx(sum(one.busy_s for one in runs))
    assert run.preemptions == sum(one.preemptions for one in runs)


def test_plans_name_the_routers_there_are() -> None:
    assert tuple(ROUTERS) == NAMES
    assert {name for name in ROUTERS if router(name).load_aware} == set(LOAD_AWARE)
