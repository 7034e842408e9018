"""The search for the quickest training plan against running them all, and what it says where there is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.plans import ENGINES, OPTIMIZERS, config, peaks, search

from gnomon.api.plan_training import plan_training
from gnomon.api.simulate_training import simulate_training
from gnomon.engines import engines, training_engine
from gnomon.engines.torch.checks import check_job as check_torch
from gnomon.engines.training import Grid
from gnomon.engines.training.grid import SELDOM_CHOSEN
from gnomon.engines.training.job import check_job
from gnomon.errors import DoesNotFitError, GnomonError, InputError
from gnomon.load import config_of, parse_pool
from gnomon.load import model as load_model
from gnomon.load.training import bind_training
from gnomon.planning.training import infeasible as train_nowhere
from gnomon.planning.training.best import _shortages
from gnomon.planning.training.checks import check_schedule, check_step
from gnomon.planning.training.search import SIMPLEST, Search, search_of
from gnomon.planning.training.space import NAMES, divisors, space
from gnomon.planning.training.step import step_bound_s, step_timeline, usable_bytes
from gnomon.search.quickest import quickest
from gnomon.sim.training import SCHEDULES
from gnomon.sim.training import names as schedule_names
from gnomon.spec import Recipe, Strategy, TrainingLoad

JOB: dict[str, Any] = {"seq": 2048, "global_batch": 16}
SHORT = 20
"""Draws of short sequences; those after them are of long ones, which context parallelism is searched for."""


def drawn(folder: Path, seed: int) -> Search:
    """A small network on some chips, with as much memory as a tenth to all of its plans need."""
    draw = np.random.default_rng(seed)

    def one(*of: Any) -> Any:
        return of[int(draw.integers(len(of)))]

    heads = one(4, 6, 8)
    shape = {"layers": one(4, 6, 8, 12), "heads": heads, "head_dim": one(64, 128, 256)}
    path = (
        config(folder, "gpt", **shape, vocab_size=one(32000, 50257), tie_word_embeddings=one(True, False))
        if seed % 2 and seed < SHORT
        else config(folder, "llama", **shape, num_key_value_heads=one(2, heads), vocab_size=one(32000, 128256))
    )
    cluster = f"{one('H100', 'H200', 'A100')}:{one(4, 6, 8, 12, 16, 32, 64)}"
    engine, optimizer = ENGINES[seed % 4], OPTIMIZERS[seed // 4 % 2]
    seq = 16384 if seed >= SHORT else one(512, 2048)
    found = search(path, cluster, engine, optimizer, seq=seq, batch=one(4, 6, 8))
    usable = np.quantile(peaks(found), draw.choice([0.1, 0.5, 1.0]))
    held = (usable + found.traits.runtime_bytes) / (1 - found.traits.spare)
    pool = replace(found.pool, chip=replace(found.pool.chip, memory_bytes=float(held) * (1 + 1e-9)))
    return replace(found, bound=replace(found.bound, pool=pool))


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_needs_less_memory_than_one_sequence_at_a_time(tmp_path: Path, seed: int) -> None:
    found = drawn(tmp_path, seed)
    assert found.lean.grid.size < found.grid.size
    assert found.lean.peak_bytes.min() == found.peak_bytes.min()
    words = (found.bound, found.load, found.optimizer, found.dtype)
    listed = search_of(*words, lean=True).grid
    assert listed.size == found.lean.grid.size
    assert np.array_equal(listed.ranks, found.lean.grid.ranks)
    assert np.array_equal(listed.micro_batch, np.ones(listed.size))


@pytest.mark.parametrize(("engine", "technique"), [("megatron", "offload-optimizer"), ("torch", "lora:rank=8")])
def test_one_sequence_at_a_time_of_plans_that_a_technique_applies_to(
    tmp_path: Path, engine: str, technique: str
) -> None:
    """They are some of a search's plans that are some of another's."""
    path, load = config(tmp_path, layers=4, heads=8, num_key_value_heads=4), TrainingLoad(seq=2048, global_batch=16)
    plain = search_of(bind_training(path, "H100:16", engine), load, "adamw", "bf16")
    found = replace(plain, techniques=(technique,)).narrowed
    alone = found.grid.micro_batch == 1
    assert found.grid.size < plain.grid.size and not alone.all()
    np.testing.assert_array_equal(found.lean.peak_bytes, found.peak_bytes[alone])
    np.testing.assert_array_equal(found.lean.fits, found.fits[alone])


@pytest.mark.battery(6)
@pytest.mark.parametrize("seed", range(SHORT + 4))
def test_the_quickest_of_all_that_fit(tmp_path: Path, seed: int) -> None:
    """Every plan timed in full, and held against the memory of every rank of its pipeline."""
    found = drawn(tmp_path, seed)
    every = peaks(found)
    np.testing.assert_array_equal(found.peak_bytes, every)
    fits = every <= usable_bytes(found.pool, found.traits)
    times = np.array([step_timeline(found.figures, row, found.traits).step_s for row in range(found.grid.size)])
    bounds = step_bound_s(found.figures, found.traits)
    assert np.all(bounds <= times)
    assert np.median(bounds / times) > 0.99
    answer = quickest(found.bounds_s, found.step_s)
    assert fits[answer.best]
    assert answer.value == times[fits].min()
    assert answer.second_value == np.sort(times[fits])[1]
    assert answer.evaluated <= max(20, fits.sum() // 10), "few need to be timed"
    chosen = quickest(found.bounds_s, found.step_s, needs=found.preference).best
    tied = np.flatnonzero(fits & (times == times[chosen]) & (found.bounds_s == found.bounds_s[chosen]))
    assert times[chosen] <= times[fits].min() * (1 + 1e-9)
    settings = {row: tuple(int(getattr(found.grid, name)[row]) for name in SIMPLEST) for row in tied.tolist()}
    assert settings[chosen] == min(settings.values()), "the simplest of those that take equally long"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["llama", "gpt"])
@pytest.mark.parametrize("engine", ["megatron", "torch"])
def test_the_space_is_all_that_an_engine_takes(tmp_path: Path, engine: str, kind: str, optimizer: str) -> None:
    """Every combination of choices is tried; the space has those that are not refused, each once. Beside fused
    attention, selective recomputation saves next to nothing and is left out."""
    more = {"num_key_value_heads": 2} if kind == "llama" else {}
    path = config(tmp_path, kind, layers=4, heads=6, head_dim=64, **more)
    model, pool, load = load_model(path), parse_pool("H100:6"), TrainingLoad(seq=514, global_batch=6)
    chosen = training_engine(engine)
    grid = space(model, pool, load, chosen, optimizer, "bf16")
    listed = {tuple(int(getattr(grid, name)[row]) for name in NAMES) for row in range(grid.size)}
    assert len(listed) == grid.size
    assert all(np.unique(getattr(grid, name)).size == 1 for name in SELDOM_CHOSEN)
    expected = set()
    for tp, pp, vp, dp, micro, cut in product(range(1, 7), range(1, 5), (1, 2, 4), range(1, 7), range(1, 7), (0, 1)):
        if tp * pp * dp > 6 or (tp == 1 and cut):
            continue
        for schedule in schedule_names():
            strategy = Strategy(tp=tp, pp=pp, vp=vp, dp=dp)
            recipe = Recipe(
                micro_batch=micro, schedule=schedule, optimizer=optimizer, sequence_parallel=bool(cut) or tp == 1
            )
            if (pp == 1 and schedule != "1f1b") or 4 % (pp * vp) or not runs(path, strategy, recipe, load, engine):
                continue
            code = schedule_names().index(schedule)
            zeros, modes = range(4) if dp > 1 else (0,), (0, 2) if engine == "megatron" else (0, 1, 2, 3)
            if SCHEDULES[schedule].splits_backward:
                zeros, modes = range(2) if dp > 1 else (0,), (0,)
            # Neither context nor expert parallelism, nor what plans seldom choose.
            beside = (1, 0, 1, tp, *(int(getattr(grid, name)[0]) for name in SELDOM_CHOSEN))
            expected |= {
                (tp, pp, vp, dp, micro, zero, mode, code, cut, *beside) for zero, mode in product(zeros, modes)
            }
    assert listed == expected


EVERY_ENGINE = [f"{one.name}@{version}" for one in engines() if one.trains for version in one.versions]


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_every_plan_of_a_space_is_one_that_could_be_asked_for(tmp_path: Path, engine: str) -> None:
    path, load = config(tmp_path, layers=4, heads=8, num_key_value_heads=4), TrainingLoad(seq=8192, global_batch=16)
    found = search_of(bind_training(path, "H100:16", engine), load, "adamw", "bf16")
    drawn_rows = np.random.default_rng(0).choice(found.grid.size, min(found.grid.size, 60), replace=False)
    assert engine.startswith("transformers") or (found.grid.pp[drawn_rows] > 1).sum() > 9
    for row in drawn_rows.tolist():
        strategy = found.grid.strategy(row)
        job = found.bound.job(strategy, found.grid.recipe(row, "adamw"), load, "bf16")
        check_step(replace(job, pool=replace(job.pool, count=strategy.ranks)), found.engine)


RUN = {"lora": True, "lora:dropout=0.1": True, "qlora": True, "dora": True, "offload-activations": True}
RUN |= {"offload-optimizer": True, "offload-optimizer:stride=2": False, "offload-parameters": False}


@pytest.mark.parametrize("technique", RUN)
def test_plans_with_techniques_are_those_that_the_built_in_runner_runs(tmp_path: Path, technique: str) -> None:
    path, load = config(tmp_path, layers=4, heads=8, num_key_value_heads=4), TrainingLoad(seq=2048, global_batch=16)
    plain = search_of(bind_training(path, "H100:16", "torch"), load, "adamw", "bf16")
    found = replace(plain, techniques=(technique,))
    assert found.allowed.any() == RUN[technique]
    refused = 0
    for row in np.random.default_rng(0).choice(found.grid.size, 200, replace=False).tolist():
        strategy = replace(found.grid.strategy(row), techniques=(technique,))
        job = found.bound.job(strategy, found.grid.recipe(row, "adamw"), load, "bf16")
        try:
            check_torch(job)
        except InputError:
            refused += 1
            assert not found.allowed[row]
    assert refused or technique == "offload-optimizer"


def runs(path: str, strategy: Strategy, recipe: Recipe, load: TrainingLoad, engine: str) -> bool:
    bound = bind_training(path, "H100:6", engine)
    try:
        check_job(bound.job(strategy, recipe, load, "bf16"))
        check_schedule(bound.job(strategy, recipe, load, "bf16"), bound.engine)
        bound.engine.check(bound.model, strategy, recipe, load, "bf16")
    except GnomonError:
        return False
    return True


@pytest.mark.parametrize("number", [1, 2, 7, 12, 36, 97, 1536])
def test_divisors(number: int) -> None:
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]


@pytest.mark.parametrize("engine", ["megatron", "torch"])
def test_the_answer_is_what_simulating_its_plan_gives(engine: str) -> None:
    answer = plan_training("llama-3.1-8b", cluster="H100:16", engine=engine, tokens=1e9, **JOB)
    best = answer.best
    chosen = ("tp", "pp", "vp", "dp", "dtype", "engine", *best.plan.engine.settings)
    words = {name: best.inputs[name] for name in chosen}
    whole = words.pop("sequence_parallel") if words["tp"] == 1 else best.inputs["sequence_parallel"]
    again = simulate_training("llama-3.1-8b", on=best.inputs["on"], tokens=1e9, **JOB, **words)
    one, two = again.to_dict(), best.to_dict()
    for told in (one["inputs"], one["plan"]["engine"]["settings"]):
        told["sequence_parallel"] = whole  # one rank has none to cut, whatever is said
    assert one == two
    assert best.fits
    assert answer.bound_s <= best.step_time_s.value <= answer.runner_up["step_time_s"]
    assert sum(answer.rejected.values()) == answer.plans_considered - 1
    assert answer.rejected["does not fit in memory"] == answer.plans_considered - answer.plans_fit
    least, most = answer.shortage_bytes
    assert 0 < least < most


def test_the_answer_says_what_was_searched() -> None:
    """Each choice with every value that an independent walk over the degrees finds, and no other."""
    answer = plan_training("llama-3.1-8b", cluster="H100:16", **JOB)
    powers = {2**n for n in range(6)}
    expected: dict[str, set[Any]] = {
        "tp": {n for n in powers if n <= 16 and 8 % n == 0},  # key-value heads
        "pp": {n for n in powers if n <= 16},
        "vp": {n for n in powers if 2 * n <= 32},
        "dp": {n for n in powers if n <= 16},
        "cp": {1},
        "ep": {1},
        "micro_batch": {1, 2, 4, 8, 16},
        "zero": {0, 1, 2, 3},
        "dp_shard": {0, 2, 4, 8},  # what tensor parallelism leaves of a node
        "recompute": {"none", "full"},
        "schedule": {"1f1b", "interleaved"},  # gpipe takes as long as 1f1b, with more passes in flight
        "sequence_parallel": {False, True},
        "techniques": {"none"},
    }
    assert {name: set(values) for name, values in answer.axes.items()} == expected
    for name in ("recompute", "schedule", "zero", "micro_batch"):
        assert answer.best.inputs[name] in answer.axes[name]
    assert "ZeRO 0, 1, 2, 3" in str(answer)
    assert "micro-batch 1, 2, 4, 8, 16" in str(answer)
    assert answer.to_dict()["axes"]["pp"] == [1, 2, 4, 8, 16]


def test_what_another_schedule_is_never_slower_than_is_left_out() -> None:
    """1F1B takes no longer than GPipe and needs no more memory, plan by plan."""
    found = search("llama-3.2-1b", "H100:8", batch=8)
    grid, codes = found.grid, {name: schedule_names().index(name) for name in ("gpipe", "1f1b")}
    names = [name for name in NAMES if name != "schedule"]

    def rows(name: str) -> dict[tuple[int, ...], int]:
        here = np.flatnonzero((grid.schedule == codes[name]) & (grid.pp > 1))
        return {tuple(int(getattr(grid, one)[row]) for one in names): int(row) for row in here}

    one, other = rows("gpipe"), rows("1f1b")
    assert one
    assert one.keys() <= other.keys()
    for key, row in list(one.items())[::5]:
        slow, fast = (step_timeline(found.figures, place, found.traits).step_s for place in (row, other[key]))
        assert fast <= slow * (1 + 1e-12)
        assert found.peak_bytes[other[key]] <= found.peak_bytes[row]
    few = search_of(found.bound, found.load, found.optimizer, found.dtype, every=False)
    assert few.grid.size == grid.size - len(one)


def test_plans_with_techniques_are_counted_too() -> None:
    words: dict[str, Any] = {"cluster": "H100:4", **JOB}
    plain, auto = (plan_training("llama-3.2-1b", techniques=some, **words) for some in ((), ("auto",)))
    assert auto.axes["techniques"][0] == "none"
    assert "offload-optimizer" in auto.axes["techniques"]
    assert auto.plans_considered > plain.plans_considered
    assert auto.plans_fit > plain.plans_fit
    for answer in (plain, auto):
        assert sum(answer.rejected.values()) == answer.plans_considered - 1


def test_the_same_plan_every_time() -> None:
    one, two = (plan_training("llama-3.2-1b", cluster="H100:8", **JOB).to_dict() for _ in range(2))
    assert {name: value for name, value in one.items() if name != "seconds"} == {
        name: value for name, value in two.items() if name != "seconds"
    }


def test_more_chips_are_never_slower() -> None:
    """Chips may stay idle."""
    times = [
        plan_training("llama-3.2-1b", cluster=f"H100:{chips}", **JOB).best.step_time_s.value for chips in (1, 2, 5, 8)
    ]
    assert times == sorted(times, reverse=True)
    assert plan_training("llama-3.2-1b", cluster="H100:5", **JOB).best.plan.strategy.ranks <= 5


def test_looser_states_never_make_the_best_slower() -> None:
    """Less memory for states leaves more plans, and updates are shorter."""
    small = plan_training("llama-3.1-8b", cluster="H100:8", optimizer="adamw-bf16", **JOB)
    large = plan_training("llama-3.1-8b", cluster="H100:8", **JOB)
    assert small.plans_fit > large.plans_fit
    assert small.best.step_time_s.value < large.best.step_time_s.value


@pytest.mark.slow
def test_of_a_hundred_thousand_plans_few_are_timed() -> None:
    answer = plan_training("gpt3-175b", cluster="A100:1024", seq=2048, global_batch=1536)
    assert answer.plans_considered >= 100_000
    assert answer.plans_timed < 100


NOWHERE = {
    "70B": ("llama-3.1-70b", "H100:8", "adamw", 16),
    "part of a node": ("llama-3.1-70b", "H100:4", "adamw", 16),
    "an odd number of nodes": ("gpt-145.6b", "A100:24", "adamw", 4),
    "bf16 states": ("gpt-145.6b", "A100:8", "adamw-bf16", 4),
}


@pytest.mark.parametrize("case", NOWHERE)
def test_a_model_that_fits_nowhere_names_the_chips_it_fits(case: str) -> None:
    model, cluster, optimizer, batch = NOWHERE[case]
    words: dict[str, Any] = {"optimizer": optimizer, "seq": 2048, "global_batch": batch}
    with pytest.raises(DoesNotFitError, match=r"no plan of .* fits .*GiB usable\. It fits") as caught:
        plan_training(model, cluster=cluster, **words)
    assert caught.value.where == "--cluster"
    (named,) = re.findall(r"fits ([\w-]+:\d+)\.", caught.value.hint)
    chip, _, count = named.partition(":")
    assert int(count) % 8 == 0
    assert plan_training(model, cluster=named, **words).best.fits
    with pytest.raises(DoesNotFitError):
        plan_training(model, cluster=f"{chip}:{int(count) - 8}" if int(count) > 8 else f"{chip}:7", **words)


@pytest.mark.heavy
def test_saying_where_a_model_fits_is_no_search_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of many divisors on ever more chips has millions of plans, of which few decide what fits."""
    listed: list[int] = []

    def counted(*words: Any, **more: Any) -> Search:
        found = search_of(*words, **more)
        listed.append(found.grid.size)
        return found

    monkeypatch.setattr(train_nowhere, "search_of", counted)
    with pytest.raises(DoesNotFitError, match=r"It fits T4:80"):
        plan_training("mixtral-8x7b", cluster="T4", seq=8192, global_batch=8000)
    assert len(listed) == 4
    assert sum(listed) < 200_000


@pytest.mark.parametrize(("chip", "named"), [("RTX4090", "lora"), ("RTX-4080", "qlora")])
def test_adapters_are_named_where_nothing_else_would_fit(chip: str, named: str) -> None:
    words: dict[str, Any] = {"seq": 2048, "global_batch": 4, "engine": "transformers"}
    with pytest.raises(DoesNotFitError, match=rf"With --with {named}, adapters beside frozen weights, it fits here"):
        plan_training("llama-3.1-8b", cluster=chip, **words)
    assert plan_training("llama-3.1-8b", cluster=chip, techniques=[named], **words).best.fits


@pytest.mark.heavy
def test_a_model_that_no_number_of_chips_fits(tmp_path: Path) -> None:
    """One sequence of two million tokens, eight ways to cut it at most without context parallelism; with it, more."""
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama-3.1-8b") | {"max_position_embeddings": 2**21}))
    words: dict[str, Any] = {"cluster": "H100:8", "seq": 2**21, "global_batch": 1}
    with pytest.raises(DoesNotFitError, match=r"More chips do not help\.$"):
        plan_training(tmp_path, engine="megatron@3.0", **words)
    with pytest.raises(DoesNotFitError, match=r"It fits H100-SXM-80GB:64"):
        plan_training(tmp_path, **words)
    with pytest.raises(InputError, match=r"--seq: 2,097,152 is more than the 131,072 tokens llama-3.1-8b supports"):
        plan_training("llama-3.1-8b", **words)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "batch": ({"global_batch": 0}, r"--global-batch: 0 is below 1"),
    "sequence": ({"seq": -1}, r"--seq: -1 is below 1"),
    "half a sequence": ({"seq": 0.5}, r"--seq: 0\.5 is not a whole number"),
    "positions": ({"model": "gpt-1.7b", "seq": 4096}, r"--seq: 4096 .*at most 2048"),
    "optimizer": ({"optimizer": "adam"}, r"--optimizer: .*'adam'.*adamw"),
    "engine": ({"engine": "vllm"}, r"--engine: vllm does not train.*megatron, torch"),
    "cluster": ({"cluster": "H100:8,"}, r"--cluster: '' is not CHIP or CHIP:COUNT"),
    "chip": ({"cluster": "H1000:8"}, r"--cluster: unknown chip 'H1000'.*H100"),
    "experts": ({"model": "qwen3-30b-a3b", "engine": "megatron@3.0"}, r"mixture of experts"),
    "format": ({"dtype": "fp4"}, r"fp4"),
    "a format the chip lacks": ({"dtype": "fp8", "cluster": "A100:8"}, r"fp8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused(name: str) -> None:
    change, message = REFUSED[name]
    words: dict[str, Any] = {"model": "llama-3.1-8b", "cluster": "H100:8", **JOB} | change
    with pytest.raises(InputError, match=message):
        plan_training(words.pop("model"), **words)


def test_unasked_it_is_in_a_format_that_the_chip_has() -> None:
    found = plan_training("llama-3.2-1b", cluster="V100-32GB:8", seq=512, global_batch=8)
    assert found.inputs["dtype"] == found.best.plan.dtype == "fp16"


def test_progress_is_told() -> None:
    seen: list[int] = []
    answer = plan_training("llama-3.2-1b", cluster="H100:4", progress=seen.append, **JOB)
    assert seen == list(range(1, answer.plans_timed + 1))


def test_a_grid_picks_and_keeps_its_columns() -> None:
    grid = search("llama-3.2-1b", "H100:4").grid
    for row in (0, grid.size // 2, grid.size - 1):
        one = Grid.of(grid.strategy(row), grid.recipe(row, "adamw"))
        assert [int(getattr(one, name)[0]) for name in NAMES] == [int(getattr(grid, name)[row]) for name in NAMES]


def test_memory_is_not_asked_for_where_a_technique_applies_to_no_plan(tmp_path: Path) -> None:
    path, load = config(tmp_path, layers=4, heads=8, num_key_value_heads=4), TrainingLoad(seq=2048, global_batch=16)
    plain = search_of(bind_training(path, "H100:16", "megatron"), load, "adamw", "bf16")
    found = replace(plain, techniques=("expert-overlap",))
    assert _shortages([found]) == (0.0, 0.0)
    assert not {"figures", "tier_peaks", "peak_bytes"} & set(vars(found))
