"""The clock under the power limit: arithmetic is slowed until the board draws what it may, and no more than that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import catalog
from gnomon.cost.clock import BURST, LIMIT, slowdown
from gnomon.load.profiles import profile_for
from gnomon.spec.workload import Floats

H200 = catalog.chip("H200")
POWER = dict(profile_for(H200).power)
BASE_W = POWER["active_w"]

seconds = st.floats(1e-6, 1.0)
watts = st.floats(0.0, 3000.0)


def slowed(
    compute_s: float, compute_w: float, other_s: float, other_w: float, limit: float = POWER[LIMIT]
) -> tuple[float, float]:
    """The slowdown of so much arithmetic and so much else, powers without the board's constant part; and its cap."""
    found = slowdown(
        POWER | {LIMIT: limit},
        H200,
        compute_s=np.array([compute_s]),
        compute_j=np.array([compute_s * compute_w]),
        other_s=np.array([other_s]),
        other_j=np.array([other_s * other_w]),
    )
    return float(found[0]), limit * H200.tdp_w


def drawn(s: float, compute_s: float, compute_w: float, other_s: float, other_w: float) -> float:
    """Mean power: arithmetic takes s times as long at a power lower by s squared."""
    hot = (compute_w + BASE_W) / s**2 * compute_s * s
    return (hot + (other_w + BASE_W) * other_s) / (compute_s * s + other_s)


@given(seconds, watts, seconds, st.floats(0.0, 400.0))
def test_the_mean_power_is_held_to_the_limit(
    compute_s: float, compute_w: float, other_s: float, other_w: float
) -> None:
    s, cap = slowed(compute_s, compute_w, other_s, other_w)
    full = drawn(1.0, compute_s, compute_w, other_s, other_w)
    if full <= cap:
        assert s == 1.0
    else:
        assert s > 1.0
        assert drawn(s, compute_s, compute_w, other_s, other_w) == pytest.approx(cap, rel=1e-6)


@given(watts)
def test_arithmetic_alone_is_slowed_by_the_root_of_its_excess(compute_w: float) -> None:
    s, cap = slowed(0.1, compute_w, 0.0, 0.0)
    assert s == pytest.approx(max(1.0, ((compute_w + BASE_W) / cap) ** 0.5))


@given(seconds, watts, seconds, watts, st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_a_higher_limit_is_never_slower(
    compute_s: float, compute_w: float, other_s: float, other_w: float, one: float, two: float
) -> None:
    work = compute_s, compute_w, other_s, other_w
    low, high = (slowed(*work, limit=limit)[0] for limit in sorted((one, two)))
    assert low >= high * (1 - 1e-9) >= 1 - 1e-9


@given(watts, st.floats(0.0, 100.0))
def test_what_only_streams_lends_to_what_multiplies(compute_w: float, other_w: float) -> None:
    """Beside work below the limit, arithmetic is never slowed more than alone."""
    assert slowed(0.1, compute_w, 0.1, other_w)[0] <= slowed(0.1, compute_w, 0.0, 0.0)[0] * (1 + 1e-9)


def test_no_arithmetic_is_not_slowed() -> None:
    assert slowed(0.0, 0.0, 1.0, 5000.0)[0] == 1.0


def test_a_board_whose_limit_is_not_known_keeps_its_clock() -> None:
    hot: Floats = np.array([1e6, 1.0])
    plain = {name: value for name, value in POWER.items() if name != LIMIT}
    found = slowdown(plain, H200, compute_s=np.ones(2), compute_j=hot, other_s=np.zeros(2), other_j=np.zeros(2))
    assert found.tolist() == [1.0, 1.0]


def test_a_large_product_on_an_h200() -> None:
    """A burst of 788 TFLOP/s settles at 665: the clock falls by 1.18."""
    flops, rate = 2 * 8192.0**3, 788e12
    s, _ = slowed(flops / rate, POWER[BURST] * rate, 0.0, 0.0)
    assert rate / s / 665e12 == pytest.approx(1, abs=0.05)
