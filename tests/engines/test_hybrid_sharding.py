"""HSDP: states shared out inside groups of data-parallel ranks, and replicated across them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.engines import training_engine
from gnomon.engines.training import Grid
from gnomon.engines.training.comm import CommModel, FrozenWeights, ParamCount
from gnomon.errors import InputError
from gnomon.load.profiles import profile_for
from gnomon.spec import Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.answers import TrainingReport

ENGINES = (("torchtitan", 2), ("torchtitan", 3), ("megatron", 1), ("megatron", 3), ("deepspeed", 3))
PARAMETERS, WEIGHT = 2**30, 2.0


def step(engine: str, zero: int, dp_shard: int, **others: Any) -> TrainingReport:
    asked: dict[str, Any] = {"on": "H100:32", "seq": 4096, "global_batch": 64, "recompute": "full"} | others
    return gnomon.simulate_training("llama-3-8b", engine=engine, zero=zero, dp_shard=dp_shard, **asked)


def figures(found: TrainingReport) -> tuple[float, float, float]:
    return found.step_time_s.value, found.peak_memory_bytes.value, float(found.energy_j)


@pytest.mark.parametrize(("engine", "zero"), ENGINES)
@pytest.mark.parametrize("pp", [1, 2])
def test_a_group_of_all_ranks_is_full_sharding(engine: str, zero: int, pp: int) -> None:
    if pp > 1 and engine == "deepspeed":
        return  # which has no pipeline with ZeRO 3
    assert figures(step(engine, zero, 32 // pp, pp=pp)) == figures(step(engine, zero, 0, pp=pp))


@pytest.mark.parametrize(("engine", "zero"), ENGINES)
def test_a_group_of_one_rank_is_data_parallelism(engine: str, zero: int) -> None:
    assert figures(step(engine, zero, 1)) == pytest.approx(figures(step(engine, 0, 0)), rel=1e-12)


@pytest.mark.parametrize(("engine", "zero"), ENGINES)
def test_larger_groups_hold_less(engine: str, zero: int) -> None:
    peaks = [step(engine, zero, shards).peak_memory_bytes.value for shards in (2, 4, 8, 16, 32)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1]


def model_of(zero: int, engine: str, **settings: Any) -> tuple[CommModel, ParamCount]:
    """The communication of a plan of 32 data-parallel ranks, whose collectives take a second per byte on a ring."""
    job = gnomon.load.model("llama-3-8b")
    pool = Pool(chip=catalog.chip("H100"), count=64, per_node=8)
    traits = training_engine(engine).traits(job)
    machine = Machine(pool, profile_for(pool.chip), traits.framework)
    grid = Grid.of(Strategy(tp=2, dp=32), Recipe(zero=zero, sequence_parallel=False, **settings))
    load = TrainingLoad(seq=4096, global_batch=64)
    found = CommModel(job, load, grid, machine, traits, traits.optimizers["adamw"], "bf16", None)
    return found, ParamCount(np.full(1, float(PARAMETERS)), np.zeros(1))


def moved(op: str, payload: np.ndarray, ranks: int, stride: int) -> np.ndarray:
    """Bytes that each rank of a ring sends."""
    return payload * (ranks - 1) / ranks * (2 if op == "all_reduce" else 1)


@pytest.mark.parametrize("shards", [1, 2, 8, 32])
def test_bytes_are_those_of_a_scatter_in_the_group_and_a_sum_across(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine, zero in (("megatron", 1), ("torchtitan", 3)):
        comm, held = model_of(zero, engine, dp_shard=shards)
        monkeypatch.setattr(comm, "priced", moved)
        wire, replicas = comm._wire_bytes * PARAMETERS, 32 // shards
        both = wire * ((shards - 1) / shards + 2 * (replicas - 1) / replicas / shards)
        reduced = comm.reduce(held) if zero == 1 else comm.scattered(held)
        assert reduced == pytest.approx(both)
        none = np.zeros(1)
        gathered = comm.gather(held, none) if zero == 1 else comm.gathered(held, FrozenWeights(none, none), none)
        assert gathered == pytest.approx(comm.states.weight_bytes * PARAMETERS * (shards - 1) / shards)


def test_a_group_stands_inside_a_node_and_its_replicas_across(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, held = model_of(3, "torchtitan", dp_shard=4)
    seen: set[tuple[str, int, int]] = set()

    def noted(op: str, payload: np.ndarray, ranks: int, stride: int) -> np.ndarray:
        seen.add((op, ranks, stride))
        return payload

    monkeypatch.setattr(comm, "priced", noted)
    comm.scattered(held)
    assert seen == {("reduce_scatter", 4, 2), ("all_reduce", 8, 8)}


def test_mics_sums_over_replicas_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, held = model_of(3, "deepspeed", dp_shard=8)
    monkeypatch.setattr(comm, "priced", moved)
    wire = comm._wire_bytes * PARAMETERS
    assert comm.reduce(held) == pytest.approx(wire / 8 * 2 * 3 / 4)
    own = comm._handled(held, comm._wire_bytes, comm.traits.sharded_weights.reduced)
    assert comm.scattered(held) - own == pytest.approx(wire * 7 / 8)


def test_experts_are_shared_out_over_as_many_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, _ = model_of(1, "megatron", dp_shard=8)
    grid = Grid.of(Strategy(tp=2, dp=32, ep=4), Recipe(zero=1, expert_tp=1, dp_shard=8))
    assert (int(grid.shards[0]), int(grid.replicas[0]), int(grid.expert_shards[0])) == (8, 4, 4)
    seen: list[tuple[str, int, int]] = []

    def noted(op: str, payload: np.ndarray, ranks: int, stride: int) -> np.ndarray:
        seen.append((op, ranks, stride))
        return payload

    comm.grid = grid
    monkeypatch.setattr(comm, "priced", noted)
    comm.reduce(ParamCount(np.ones(1), np.ones(1)))
    assert {("reduce_scatter", 4, 4), ("all_reduce", 4, 16)} <= set(seen)


def test_second_copies_are_gathered_inside_and_held_too(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, held = model_of(3, "deepspeed", hpz=8)
    monkeypatch.setattr(comm, "priced", moved)
    frozen = FrozenWeights(np.zeros(1), np.zeros(1))
    own = comm._handled(held, comm.states.weight_bytes, comm.traits.sharded_weights.copied)
    size = comm.states.weight_bytes * PARAMETERS
    assert comm.gathered(held, frozen) - own == pytest.approx(size * 31 / 32)
    assert comm.regathered(held, frozen, 0.0) - own == pytest.approx(size * 7 / 8)


def test_second_copies_of_all_ranks_gain_nothing() -> None:
    plain, whole, near = (step("deepspeed", 3, 0, hpz=ranks) for ranks in (0, 32, 8))
    assert figures(whole)[0] == figures(plain)[0]
    assert figures(near)[0] < figures(plain)[0]
    parameters = 8.03e9
    for found, ranks in ((whole, 32), (near, 8)):
        more = figures(found)[1] - figures(plain)[1]
        assert more == pytest.approx(WEIGHT * parameters / ranks, rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"engine": "megatron", "zero": 0}, "share nothing out with zero 0"),
        ({"engine": "megatron", "zero": 1, "dp_shard": 5}, "cannot be split into 5 equal parts"),
        ({"engine": "megatron@3.0", "zero": 1}, "shards ZeRO 1 over all data-parallel ranks"),
        ({"engine": "deepspeed", "zero": 2}, "Use 3 as zero, or 0 here"),
        ({"engine": "transformers", "zero": 3}, "shards ZeRO 3 over all data-parallel ranks"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        step(**({"dp_shard": 8} | asked))
    assert caught.value.where == "--dp-shard"


def test_replicas_are_equal_parts_of_the_ranks_with_the_same_experts() -> None:
    with pytest.raises(InputError, match="4 replicas of 2 ranks that hold the same experts"):
        gnomon.simulate_training(
            "qwen3-30b-a3b", on="H100:32", seq=4096, global_batch=64, ep=16, zero=1, dp_shard=8, engine="megatron"
        )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"engine": "deepspeed", "zero": 2, "hpz": 8}, "of weights that ZeRO 3 shards"),
        ({"engine": "deepspeed", "zero": 3, "hpz": 8, "dp_shard": 16}, "over all ranks"),
        ({"engine": "deepspeed", "zero": 3, "hpz": 1}, "which ZeRO 2 keeps"),
        ({"engine": "deepspeed", "zero": 3, "hpz": 5}, "cannot be split into 5"),
        ({"engine": "megatron", "zero": 3, "hpz": 8}, "keeps no second copy"),
    ],
)
def test_second_copies_that_cannot_be_are_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        step(**({"dp_shard": 0} | asked))
    assert caught.value.where == "--hpz"
