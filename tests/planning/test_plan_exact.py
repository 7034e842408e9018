"""The best plan of random parts of search spaces against every plan of them, each asked for by itself as `simulate
train` does: schedules, context and expert parallelism, HSDP, recomputation by module, techniques on host and NVMe."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.load.training import bind_training
from gnomon.planning.training.asked import step_of
from gnomon.planning.training.objectives import OBJECTIVES, PlanQuery, Site
from gnomon.planning.training.runs import Limits
from gnomon.planning.training.search import Search, joins, search_of
from gnomon.spec import TrainingLoad

SPACES = (
    ("megatron", "qwen3-30b-a3b", "bf16"),
    ("megatron", "deepseek-v2-lite", "bf16"),
    ("megatron", "llama-3.1-8b", "fp8"),
    ("torch", "llama-3.1-8b", "bf16"),
    ("torchtitan@2024-eager", "qwen3-8b", "bf16"),
    ("megatron", "mixtral-8x7b", "bf16"),
    ("deepspeed", "llama-3.1-8b", "bf16"),
    ("torch", "llama-3.2-3b", "fp32"),
)
TECHNIQUES: tuple[tuple[str, ...], ...] = (
    ("offload-activations",),
    ("offload-activations:share=0.5",),
    ("offload-optimizer",),
    ("offload-optimizer:stride=2",),
    ("offload-optimizer:tier=nvme",),
    ("offload-parameters",),
    ("offload-parameters:tier=nvme",),
    ("lora:rank=8",),
    ("vocabulary-parallel",),
    ("offload-optimizer", "offload-parameters"),
    ("lora:rank=8", "offload-activations"),
)
ROWS = 25


def drawn(seed: int) -> tuple[TrainingLoad, list[Search]]:
    """Some plans of a space, without techniques and with some of them; those drawn are likely to fit."""
    random = Random(seed)
    engine, model, dtype = SPACES[seed % len(SPACES)]
    load = TrainingLoad(seq=random.choice((4096, 8192, 16384)), global_batch=random.choice((16, 32, 64)))
    chip = random.choice(("H100", "H200") if dtype == "fp8" else ("H100", "H200", "A100"))
    bound = bind_training(model, f"{chip}:{random.choice((8, 16, 64))}", engine)
    plain = search_of(bound, load, "adamw", dtype)
    likely = np.argsort(plain.peak_bytes, kind="stable")[: max(ROWS, plain.grid.size // 3)]
    rows = np.sort(np.random.default_rng(seed).choice(likely, ROWS, replace=False))
    some = replace(plain, grid=plain.grid.pick(rows))
    sets: list[tuple[str, ...]] = [(), *random.sample(TECHNIQUES, 4)]
    return load, [replace(some, techniques=words).narrowed for words in sets if joins(words)]


def alone(search: Search, row: int) -> float | None:
    """Seconds of a plan that is asked for by itself; None where it is refused or does not fit."""
    strategy = replace(search.grid.strategy(row), techniques=search.techniques)
    recipe = search.grid.recipe(row, search.optimizer)
    job = search.bound.job(strategy, recipe, search.load, search.dtype)
    job = replace(job, pool=replace(search.pool, count=strategy.ranks))
    try:
        step = step_of(job, search.engine, search.bound.profile, {})
    except InputError:
        return None
    same = (step.job.strategy, step.job.recipe) == (strategy, recipe)  # else a technique has set something
    return step.step_s.value if same and step.fits else None


@pytest.mark.heavy
@pytest.mark.battery(5)
@pytest.mark.parametrize("seed", range(24))
def test_no_plan_that_fits_is_faster(seed: int) -> None:
    load, searches = drawn(seed)
    site = Site(bound=searches[0].bound)
    task = PlanQuery(
        sites=(site,), load=load, limits=Limits(), optimizer="adamw", dtype=searches[0].dtype, techniques=()
    )
    times = []
    for one in searches:
        seconds = [alone(one, row) for row in range(one.grid.size)]
        assert [second is not None for second in seconds] == one.fits.tolist(), one.techniques
        known = [(row, second) for row, second in enumerate(seconds) if second is not None]
        assert all(one.bounds_s[row] <= second * (1 + 1e-9) for row, second in known)
        times += [second for _, second in known]
    found = OBJECTIVES["fastest"].best(task, site, searches)
    if not times:
        assert found is None
        return
    assert found is not None
    assert found.best.value == pytest.approx(min(times), rel=1e-9)
    if len(times) > 1:
        assert found.second is not None
        assert found.second.value == pytest.approx(sorted(times)[1], rel=1e-9)


@pytest.mark.slow
def test_the_spaces_have_what_they_are_meant_for() -> None:
    """Over all seeds: each axis differs, and techniques have plans that fit."""
    every = [one for seed in range(24) for one in drawn(seed)[1]]
    for name in ("tp", "pp", "vp", "cp", "ep", "zero", "recompute", "schedule", "dp_shard", "cp_comm", "expert_tp"):
        assert len({int(value) for one in every for value in getattr(one.grid, name)}) > 1, name
    assert len({one.techniques for one in every if one.fits.any()}) > 6
