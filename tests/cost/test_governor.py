"""The clock under the power limit: what it holds, whom it slows, and what that saves."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cost.steps import CASES, model_of

from gnomon import catalog
from gnomon.cost.clock import LIMIT
from gnomon.cost.governor import Governor, KernelWork, governor_of, kernel_power
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch

H200 = catalog.chip("H200")
POWER = dict(profile_for(H200).power)
GOVERNOR = governor_of(POWER, H200)

shares = st.floats(0.0, 1.0)
watts = st.floats(0.0, 3000.0)


def drawn(governor: Governor, clocked: float, full_w: float, slowdown: float) -> float:
    """Mean power of work that is `full_w` at full clock beyond the constant draw."""
    return governor.active_w + full_w * governor.energy_share(slowdown) / (1 + clocked * (slowdown - 1))


@given(shares, watts)
def test_the_power_is_held_to_the_limit(clocked: float, full_w: float) -> None:
    x = GOVERNOR.slowdown(clocked, full_w)
    assert 1 <= x <= GOVERNOR.most
    if GOVERNOR.active_w + full_w <= GOVERNOR.limit_w:
        assert x == 1
    elif x < GOVERNOR.most:
        assert drawn(GOVERNOR, clocked, full_w, x) == pytest.approx(GOVERNOR.limit_w, rel=1e-9)
    else:
        assert drawn(GOVERNOR, clocked, full_w, x) >= GOVERNOR.limit_w * (1 - 1e-9)


@given(shares, watts, st.floats(200.0, 700.0), st.floats(200.0, 700.0))
def test_a_higher_limit_is_never_slower_and_never_draws_less(clocked: float, full_w: float, a: float, b: float) -> None:
    low, high = (replace(GOVERNOR, limit_w=limit) for limit in sorted((a, b)))
    slow, fast = low.slowdown(clocked, full_w), high.slowdown(clocked, full_w)
    assert slow >= fast * (1 - 1e-12)
    assert drawn(low, clocked, full_w, slow) <= drawn(high, clocked, full_w, fast) * (1 + 1e-9)


def test_without_a_limit_the_clock_stays() -> None:
    free = governor_of({name: value for name, value in POWER.items() if name != LIMIT}, H200)
    assert free.limit_w == inf
    assert not free.acts
    assert free.slowdown(1.0, 1e6) == 1.0


def test_kernels_at_the_memorys_bandwidth_do_not_follow_the_clock() -> None:
    moved = np.array([1e8, 1e9, 4e9])
    found = kernel_power(POWER, H200, KernelWork("gemm", np.zeros(3), moved, np.full(3, 1e-3)), 0.0)
    assert np.all(np.diff(found.clocked) < 0)
    full = kernel_power(POWER, H200, KernelWork("gemm", np.zeros(1), np.array([5e9]), np.full(1, 1e-3)), 0.0)
    assert full.clocked[0] == 0


@pytest.mark.parametrize("case", CASES[::6])
def test_a_sustained_step_is_no_faster_and_holds_the_limit(case: str) -> None:
    model = model_of(case)
    for steps in (Batch.decode(64, 1000), Batch.prefill([1], 8192)):
        burst = model.price(steps)
        kept = burst.sustained
        governor = model.machine.governor
        assert kept.time_s.value >= burst.time_s.value
        assert kept.clock_slowdown >= 1
        power = kept.joules.value / kept.time_s.value
        assert power <= governor.limit_w * (1 + 1e-6)
        if kept.clock_slowdown > 1:
            assert power == pytest.approx(governor.limit_w, rel=0.03)  # of a host's waits nothing is slowed


def test_two_prices_at_one_clock_are_the_price_of_both() -> None:
    model, steps = model_of(CASES[0]), Batch.prefill([1], 4096)
    both = (model.price(steps) + model.price(steps)).at(1.5)
    one = model.price(steps).at(1.5)
    operators = sum(line.time_s.value for line in one.operators)
    assert sum(line.time_s.value for line in both.operators) == pytest.approx(2 * operators, rel=1e-12)
    assert both.joules.value == pytest.approx(2 * one.joules.value, rel=1e-3)
