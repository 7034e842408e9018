"""Bounds of many pipelines: how near they come on realistic ones, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.sim.training import regular, schedule, timeline
from gnomon.sim.training.bounds import pipeline_bound_s
from gnomon.sim.training.pipelines import Pipelines

SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""Those whose bounds are nearly exact."""

ONE = Pipelines(schedule=1, pp=4, vp=1, micros=8, forward_s=1.0, backward_s=2.0)


def exact_s(row: dict[str, Any]) -> float:
    """The timeline of one row of columns."""
    pp, vp = int(row["pp"]), int(row["vp"])
    sends = (float(row["forward_send_s"]), float(row["backward_send_s"]))
    times = regular(pp, vp, row["forward_s"], row["backward_s"], *sends, blocking=bool(row["blocking"]))
    times.forward_s[0, 0] += row["first_forward_s"]
    times.backward_s[0, 0] += row["first_backward_s"]
    times.forward_s[-1, -1] += row["last_forward_s"]
    times.backward_s[-1, -1] += row["last_backward_s"]
    orders = schedule(SCHEDULES[int(row["schedule"])]).tasks(pp, vp, int(row["micros"]))
    return timeline(orders, times).pipeline_s


def realistic(code: int, count: int) -> Pipelines:
    """Heads of up to three layers in chunks of one, small embeddings, sends up to 5% of a forward."""
    draw = np.random.default_rng(code)
    pp = draw.integers(2, 33, count)
    vp = draw.integers(2, 7, count) if SCHEDULES[code] == "interleaved" else np.ones(count, int)
    micros = draw.integers(1, 129, count)
    micros = np.maximum(1, micros // pp) * pp if SCHEDULES[code] == "interleaved" else micros
    head = draw.choice([0, 1, 1], count) * draw.uniform(0, 3, count)
    backward = draw.uniform(1, 3, count)
    send = draw.choice([0, 1, 1], count) * draw.uniform(0, 0.05, count)
    embedding = draw.choice([0, 0.02, 0.1], count)
    return Pipelines(
        schedule=np.full(count, code),
        pp=pp,
        vp=vp,
        micros=micros,
        forward_s=1.0,
        backward_s=backward,
        first_forward_s=embedding * draw.random(count),
        first_backward_s=embedding * backward * draw.random(count),
        last_forward_s=head,
        last_backward_s=head * backward * draw.uniform(0.6, 1, count),
        forward_send_s=send,
        backward_send_s=send * draw.uniform(0.5, 1, count),
        blocking=draw.random(count) < 0.4,
    )


@pytest.mark.parametrize("code", range(len(SCHEDULES)))
def test_bounds_are_exact_for_nearly_all_realistic_plans(code: int) -> None:
    plans = realistic(code, 150)
    columns = plans.columns()
    rows = [{name: column[i] for name, column in columns.items()} for i in range(150)]
    exact = np.array([exact_s(row) for row in rows])
    gaps = 1 - pipeline_bound_s(plans) / exact
    assert gaps.min() >= 0
    assert gaps.max() < 1e-3
    assert np.mean(gaps < 1e-9) >= (0.98 if SCHEDULES[code] == "interleaved" else 1)


def test_fields_broadcast() -> None:
    plans = replace(ONE, pp=np.array([[2], [4]]), micros=np.array([1, 3, 8]), last_forward_s=np.array([0.0, 1.0, 2.0]))
    bounds = pipeline_bound_s(plans)
    assert bounds.shape == (2, 3)
    single = replace(ONE, pp=4, micros=3, last_forward_s=1.0)
    assert float(pipeline_bound_s(single)) == bounds[1, 1] == pytest.approx(3 * 4 + 3 * 3 - 3 + 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": 99}, "there is no schedule 99"),
        ({"vp": np.array([1, 2])}, "not 2"),
        ({"schedule": 2, "vp": 2, "micros": np.array([4, 6])}, "Nearest: 4 or 8"),
        ({"pp": 0}, "pp: 0 is not a valid pipeline size"),
        ({"forward_s": np.array([1.0, -1.0])}, "forward_s: -1.0 is not a valid time"),
        ({"last_backward_s": float("nan")}, "last_backward_s: nan"),
    ],
)
def test_impossible_plans_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pipeline_bound_s(replace(ONE, **change))
