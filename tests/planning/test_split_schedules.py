"""Schedules with split backwards in steps and searches: time, memory, what is refused, and what a search tries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines.megatron.engine import Megatron
from gnomon.engines.training import Traits
from gnomon.errors import InputError
from gnomon.load.training import bind_training
from gnomon.planning.training.asked import step_of
from gnomon.planning.training.memory import memory_over_time
from gnomon.planning.training.search import Search, search_of
from gnomon.planning.training.step import TrainingStep, step_bound_s
from gnomon.sim.training import SCHEDULES, names
from gnomon.spec import Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.answers import TrainingReport

EAGER = "torchtitan@2024-eager"
LOAD = TrainingLoad(seq=2048, global_batch=32)


def step(schedule: str, engine: str = "torch", **given: Any) -> TrainingReport:
    vp = SCHEDULES[schedule].chunks[0]
    asked: dict[str, Any] = {"on": "H100:8", "seq": 2048, "global_batch": 32, "pp": 4, "vp": vp, "zero": 0} | given
    return gnomon.simulate_training("llama-3.1-8b", schedule=schedule, engine=engine, **asked)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "interleaved-zb"])
def test_a_rank_holds_most_where_its_memory_over_time_is_highest(name: str) -> None:
    found = step(name)
    for rank in range(4):
        highest = max(moment.bytes for moment in memory_over_time(found.step, rank))
        assert highest == pytest.approx(found.step.peaks[rank], rel=1e-9)


def test_zero_bubble_saves_time_and_keeps_the_work() -> None:
    plain, found = step("1f1b"), step("zb-h1")
    assert found.step_time_s.value < plain.step_time_s.value
    assert found.bubble_fraction < plain.bubble_fraction
    assert dict(found.step.flops) == dict(plain.step.flops)
    assert found.energy_j < plain.energy_j


def test_a_v_puts_both_ends_on_the_first_rank() -> None:
    loop, folded = step("interleaved", vp=2), step("zb-v")
    weights = [[part["weights"] for part in found.memory_parts] for found in (loop, folded)]
    assert weights[0][0] > weights[0][1] < weights[0][3]
    assert weights[1][0] > weights[1][3] == pytest.approx(weights[1][1])
    assert sum(weights[0]) == pytest.approx(sum(weights[1]))


def test_what_does_not_split_is_refused() -> None:
    with pytest.raises(InputError, match=r"--schedule: Megatron-LM's pipeline has no schedule zb-h1\. Use .*torch"):
        step("zb-h1", engine="megatron")
    with pytest.raises(InputError, match=r"--schedule: TorchTitan's pipeline has no schedule zb-v"):
        step("zb-v", engine="torchtitan")
    with pytest.raises(InputError, match=r"--recompute: .*splits the backward pass.* Use none or selective"):
        step("zb-v", engine=EAGER, recompute="full")
    with pytest.raises(InputError, match=r"--tp: .*does not split"):
        step("zb-h1", tp=2)


def search(engine: str) -> Search:
    bound = bind_training("llama-3.1-8b", "H100:8", engine)
    return search_of(bound, LOAD, "adamw", None)


@pytest.mark.parametrize("engine", ["megatron", "torch", EAGER])
def test_a_search_tries_what_the_engine_runs_and_bounds_it(engine: str) -> None:
    found = search(engine)
    tried = {names()[code] for code in np.unique(found.grid.schedule).tolist()}
    assert tried == set(found.traits.schedules)
    split = np.flatnonzero(found.grid.splits)
    for row in split[:: max(1, split.size // 25)].tolist():
        strategy, recipe = found.grid.strategy(row), found.grid.recipe(row, "adamw")
        found.engine.check(found.model, strategy, recipe, LOAD, found.dtype)
    rows, _ = found.priced
    few = rows[:: max(1, rows.size // 60)].tolist()
    for row in few:
        assert found.bounds_s[row] <= found.step_s(row) * (1 + 1e-12)


class EverySchedule(Megatron):
    """Megatron-LM as if it ran every schedule."""

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        return replace(super().traits(model, optimizer, dtype), schedules=names())


def test_dualpipe_holds_the_network_twice_and_overlaps() -> None:
    bound = replace(bind_training("mixtral-8x7b", "H100:64", "megatron"), engine=EverySchedule())
    load = TrainingLoad(seq=4096, global_batch=256)

    def of(schedule: str) -> TrainingStep:
        recipe = Recipe(schedule=schedule, sequence_parallel=False)
        job = bound.job(Strategy(pp=4, dp=16, ep=8), recipe, load, "bf16")
        return step_of(job, bound.engine, bound.profile, {})

    plain, dual = of("zb-h1"), of("dualpipe")
    weights = [sum(float(step.memory(rank).weights[0]) for rank in range(4)) for step in (plain, dual)]
    assert weights[1] == pytest.approx(2 * weights[0], rel=1e-6)
    hidden = float(np.max(dual.timeline.times.overlap_s))
    assert 0 < hidden < float(dual.timeline.times.forward_s.max())
    assert dual.timeline.pipeline_s < plain.timeline.pipeline_s
    bounds = step_bound_s(dual.figures, dual.traits)
    assert bounds[0] <= dual.timeline.step_s


def test_the_busiest_rank_of_a_v_runs_embedding_and_head() -> None:
    found = gnomon.predict(
        "llama-3.1-8b", on="H100:8", phase="train", batch=32, tokens=2048, pp=4, settings={"schedule": "zb-v", "vp": 2}
    )
    ops = {line.op.split(".")[0] for line in found.breakdown}
    assert {"head", "embedding"} <= ops
