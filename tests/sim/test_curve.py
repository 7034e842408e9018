"""Sums of decode steps against adding them up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.sim.costs import Cliffs, Smooth
from tests.sim.plain import interpolate

from gnomon.cost.step import Curve
from gnomon.errors import InputError
from gnomon.sim.serving.curve import DecodeCurve


@pytest.mark.parametrize("cost", [Cliffs(), Smooth()])
@pytest.mark.parametrize("sequences", [1, 3, 8, 77])
@pytest.mark.parametrize("start", [0, 5, 39, 99, 349, 4095, 90_000])
def test_sums_and_their_inverse(cost: Cliffs | Smooth, sequences: int, start: int) -> None:
    curve = cost.decode_curve(sequences)
    sums = DecodeCurve(curve, sequences)
    context = start * sequences + sequences // 2
    each = [interpolate(curve.context, curve.seconds, context / sequences + i) for i in range(400)]
    total = np.concatenate([[0], np.cumsum(each)])
    assert sums.one(context) == pytest.approx(each[0])
    for steps in (1, 2, 5, 61, 62, 400):
        assert sums.span(context, steps) == pytest.approx((total[steps - 1], total[steps]), rel=1e-9)
    waits = [*(total[[1, 7, 200]] * 0.999), *(total[[1, 7, 200]] * 1.001), 1e-9, 0.0, np.inf]
    for wait, look in itertools.product(waits, (0, 1)):
        steps, before_s, seconds = sums.span_until(context, wait, 400, look)
        assert steps == look + min(int(np.searchsorted(total, wait)), 400 - look)
        if steps:
            assert (before_s, seconds) == sums.span(context, steps)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_what_is_no_time(seconds: float) -> None:
    with pytest.raises(InputError, match="not a positive time"):
        DecodeCurve(Curve(np.array([0]), np.array([seconds])), 3)
