"""A training step's pieces for whole grids of plans: each as alone, drawn as told, and what no plan can escape."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from tests.engines.plans import ENGINES, OPTIMIZERS, pairs, search, some

from gnomon.cost import tapes
from gnomon.cost.clock import attention_joules
from gnomon.cost.machine import Machine
from gnomon.cost.tapes import Times
from gnomon.engines import training_engine
from gnomon.engines.training import Grid, StepTable, figures
from gnomon.engines.training.batches import EachRow
from gnomon.engines.training.comm import FrozenWeights
from gnomon.engines.training.layer_cost import LayerCost, ops_of, tapes_of, units
from gnomon.errors import InputError, UnknownNameError
from gnomon.graph.layers import Cut
from gnomon.graph.ops import Attention, Gemm, Op
from gnomon.load import model as load_model
from gnomon.planning.training.search import Search
from gnomon.spec import Batch, Recipe, Strategy
from gnomon.spec.training import RECOMPUTE
from gnomon.spec.workload import Floats

EVERY = pytest.mark.parametrize("engine", ENGINES)
SHARING = pytest.mark.parametrize("engine", ENGINES[1:])
"""Engines whose ranks share states out; the last two share weights as well."""
SHARDING = pytest.mark.parametrize("engine", ENGINES[2:])
PARTED = ("megatron@2.4", "megatron@3.0")
LONG = Batch.prefill([2], 4096)
APART = ("grid", "chunks", "side")
PARTS = ("first_frozen", "last_frozen")
"""Columns that have columns of their own."""
COLUMNS = [field.name for field in fields(StepTable) if field.name not in APART + PARTS]
COLUMNS += [f"{part}.{field.name}" for part in PARTS for field in fields(FrozenWeights)]


def column_of(table: StepTable, name: str) -> Any:
    return attrgetter(name)(table)


def of(found: Search, grid: Grid, factor: Any = None) -> StepTable:
    machine = found.case.machine
    return figures(found.model, found.load, grid, machine, found.traits, found.optimizer, found.dtype, EachRow(factor))


@pytest.mark.battery(6)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@EVERY
def test_many_rows_are_each_row_alone(engine: str, optimizer: str) -> None:
    found = some(search("llama-3.1-8b", "H100:16", engine, optimizer), 25, seed=len(engine))
    for row in range(found.grid.size):
        alone = of(found, found.grid.pick(np.array([row])))
        for name in COLUMNS:
            together = column_of(found.figures, name)[row]
            np.testing.assert_allclose(column_of(alone, name)[0], together, rtol=1e-12, err_msg=name)


@EVERY
def test_the_order_of_rows_does_not_matter(engine: str) -> None:
    found = some(search("gpt-1.7b", "A100:16", engine), 60)
    turned = of(found, found.grid.pick(np.arange(found.grid.size)[::-1]))
    for name in COLUMNS:
        np.testing.assert_array_equal(column_of(turned, name)[::-1], column_of(found.figures, name), err_msg=name)


def _factor(op: Op) -> Floats:
    """One draw that changes nothing, and three by the operator's name."""
    return np.array([1.0, *np.random.default_rng(len(op.name)).uniform(0.5, 2.0, 3)])


@EVERY
def test_a_draw_is_a_row_of_its_own(engine: str) -> None:
    """Rows of one plan with a draw each are what the plan costs with that draw alone, and the first is the estimate."""
    found = some(search("llama-3.1-8b", "H100:16", engine), 6)
    for row in range(found.grid.size):
        drawn = of(found, found.grid.pick(np.full(4, row)), _factor)
        for draw in range(4):
            alone = of(found, found.grid.pick(np.array([row])), lambda op, draw=draw: _factor(op)[[draw]])
            for name in COLUMNS:
                np.testing.assert_allclose(
                    column_of(drawn, name)[draw], column_of(alone, name)[0], rtol=1e-12, err_msg=name
                )
        for name in COLUMNS:
            np.testing.assert_allclose(column_of(drawn, name)[0], column_of(found.figures, name)[row], rtol=1e-12)
        assert len(set(drawn.optimizer_s.tolist())) == 4


def test_a_plan_is_a_grid_of_one() -> None:
    strategy = Strategy(tp=2, pp=4, vp=2, dp=3)
    recipe = Recipe(micro_batch=5, schedule="interleaved", recompute="full", zero=2, sequence_parallel=False)
    grid = Grid.of(strategy, recipe)
    assert (grid.size, grid.strategy(0), grid.recipe(0, "adamw")) == (1, strategy, recipe)
    assert grid.ranks.tolist() == [24]
    # One tensor-parallel rank has no sequence to cut, whatever is asked.
    assert Grid.of(Strategy(), Recipe(sequence_parallel=True)).sequence_parallel.tolist() == [0]


def test_groups_hold_every_row_once() -> None:
    grid = search("gpt-1.7b", "H100:8").grid
    groups = grid.groups(("tp", "zero", "recompute"))
    assert sorted(np.concatenate([rows for _, rows in groups]).tolist()) == list(range(grid.size))
    for (tp, zero, recompute), rows in groups:
        assert set(grid.tp[rows]) == {tp}
        assert set(grid.zero[rows]) == {zero}
        assert set(grid.recompute[rows]) == {recompute}
    assert len({values for values, _ in groups}) == len(groups)


@EVERY
def test_the_work_of_a_step_does_not_depend_on_the_plan(engine: str) -> None:
    """Model FLOPs are three times the forward's: nothing that is run again, the scores in one kernel's backward too."""
    found = search("llama-3.1-8b", "H100:16", engine, batch=8)
    model, tokens, seq = found.model, 8 * 2048, 2048
    layer = 4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336
    attention = 3 * tokens * (seq if engine in PARTED else (seq + 1) / 2) * 4 * 4096
    expected = tokens * 6 * (32 * layer + model.vocab * model.hidden) + 32 * attention
    np.testing.assert_allclose(found.figures.model_flops, expected, rtol=1e-12)


@EVERY
def test_again_is_what_the_mode_runs_again(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:8", engine, batch=8)
    tokens, seq = 8 * 2048, 2048
    layer = 4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336
    last = 4096 * 14336 if engine == "torch" else 0
    attention = 32 * tokens * (seq if engine in PARTED else (seq + 1) / 2) * 4 * 4096
    scores = 0.0 if engine in PARTED else attention / 2
    selective = 0.0 if engine == "torch" else attention
    expected = {"none": 0.0, "selective": selective, "full": 32 * 2 * tokens * (layer - last) + attention}
    for code, mode in enumerate(RECOMPUTE):
        rows = found.grid.recompute == code
        np.testing.assert_allclose(found.figures.recomputed_flops[rows], scores + expected[mode], rtol=1e-12)


def device_only(found: Search, tdp_w: float | None = None) -> StepTable:
    """Its seconds were launches free, and those of a chip with another power limit."""
    traits = replace(found.traits, launch_s={})
    machine = found.case.machine
    if tdp_w is not None:
        machine = replace(machine, pool=replace(machine.pool, chip=replace(machine.chip, tdp_w=tdp_w)))
    return figures(found.model, found.load, found.grid, machine, traits, found.optimizer, found.dtype)


@EVERY
def test_recomputing_more_never_takes_less(engine: str) -> None:
    """On the device at full clock: the host takes longer over a step that is recomputed selectively, and under a power
    limit the clock is that of the mean power of a step."""
    found = search("llama-3.1-8b", "H100:16", engine)
    plain = device_only(found, tdp_w=1e6)
    for low, high in pairwise(np.intersect1d(found.grid.recompute, range(len(RECOMPUTE)))):
        least, most = np.array(list(pairs(found.grid, "recompute", low, high))).T
        assert np.all(plain.backward_s[most] >= plain.backward_s[least] * (1 - 1e-9))
        np.testing.assert_allclose(plain.forward_s[most], plain.forward_s[least], rtol=1e-9)


@EVERY
def test_more_tokens_a_micro_batch_take_longer(engine: str) -> None:
    found = search("llama-3.2-1b", "H100:8", engine, batch=8)
    one, two = np.array(list(pairs(found.grid, "micro_batch", 1, 2))).T
    for name in ("forward_s", "backward_s", "last_forward_s", "saved_activation_bytes"):
        column = column_of(found.figures, name)
        assert np.all(column[two] >= column[one]), name
    assert np.array_equal(found.figures.micros[one], 2 * found.figures.micros[two])


@EVERY
def test_a_launch_takes_its_time(engine: str) -> None:
    """Kernels are launched one by one, and no pass is quicker than its launches; long ones do not notice."""
    short = search("llama-3.2-1b", "H100:8", engine, seq=128, batch=8)
    plain = device_only(short)
    assert np.all(short.figures.forward_s >= plain.forward_s)
    assert np.any(short.figures.forward_s > 1.5 * plain.forward_s)
    alone = (short.grid.tp == 1) & (short.grid.zero < 2) & (short.grid.recompute == 0) & (short.grid.micro_batch == 1)
    least = np.min((short.figures.forward_s / short.figures.layers)[alone])
    kernels = sum(op.count for op in tapes_of(short.model, Cut(seq=128), short.traits)["layer"].forward_ops())
    assert least == pytest.approx(kernels * short.traits.launch_s["none"])
    long = search("llama-3.1-8b", "H100:2", engine, seq=8192, batch=8)
    np.testing.assert_array_equal(long.figures.forward_s, device_only(long).forward_s)


def a_layer_on_an_h200(engine: str, mode: str) -> tuple[LayerCost, list[Op], Times, Machine]:
    """A layer that nothing but the power limit holds back: with its operators both ways, and their seconds."""
    found = search("llama-3.1-8b", "H200", engine, seq=4096)
    machine = found.case.machine
    parts = tapes_of(found.model, Cut(seq=4096), found.traits)
    times = tapes.price(ops_of([parts]), machine, LONG)
    layer = units(parts, mode, times, machine, LONG, found.traits)["layer"]
    assert layer.clock_slowdown[0] > 1.05
    return layer, [*parts["layer"].forward_ops(), *parts["layer"].backward_ops(mode)], times, machine


@pytest.mark.parametrize("mode", RECOMPUTE)
@EVERY
def test_the_clock_is_what_the_layers_work_allows(engine: str, mode: str) -> None:
    """Both passes together draw the limit: arithmetic is slower by s and its power lower by s squared."""
    layer, ops, times, machine = a_layer_on_an_h200(engine, mode)
    power, s = machine.profile.power, layer.clock_slowdown[0]
    busy = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for op in ops:
        hot = isinstance(op, (Gemm, Attention))
        joules = op.count * power["burst_j_per_flop"] * op.flops(LONG)[0]
        if isinstance(op, Attention):
            joules = attention_joules(power, machine.chip, op.count * op.flops(LONG)[0], times[op][0])
        busy[hot][0] += times[op][0]
        busy[hot][1] += joules + op.count * power["j_per_byte"] * op.bytes(LONG)[0] + power["active_w"] * times[op][0]
    (compute_s, compute_j), (other_s, other_j) = busy[True], busy[False]
    cap = power["limit"] * machine.chip.tdp_w
    assert compute_j / s + other_j == pytest.approx(cap * (compute_s * s + other_s), rel=1e-9)


def test_slower_attention_kernels_of_one_work_draw_more_joules() -> None:
    """Softmax keeps the processors busy for longer: an earlier kernel costs time, and clock of the layer's GEMMs."""
    found = search("llama-3.1-8b", "H200", "torch", seq=4096)
    parts = tapes_of(found.model, Cut(seq=4096), found.traits)
    times = tapes.price(ops_of([parts]), found.case.machine, LONG)
    late = {op: seconds * (2.0 if isinstance(op, Attention) else 1.0) for op, seconds in times.items()}
    usual, slow = (
        units(parts, "none", some, found.case.machine, LONG, found.traits)["layer"] for some in (times, late)
    )
    assert slow.flops[0] == usual.flops[0]
    assert slow.clock_slowdown[0] > 1.05
    assert slow.energy_j[0] > 1.05 * usual.energy_j[0]


def test_a_layer_that_is_held_back_draws_the_limit() -> None:
    layer, _, _, machine = a_layer_on_an_h200("torch", "none")
    power = machine.profile.power
    drawn = layer.energy_j / (layer.forward_s + layer.backward_s) + power["active_w"]
    assert drawn[0] == pytest.approx(power["limit"] * machine.chip.tdp_w, rel=0.02)


@SHARING
def test_gradients_are_reduced_or_scattered(engine: str) -> None:
    """ZeRO 1 scatters half of what a sum among all would carry, then gathers the new weights."""
    found = search("llama-3.1-8b", "H100:16", engine)
    f = found.figures
    whole, shared = np.array(list(pairs(found.grid, "zero", 0, 1))).T
    assert np.all(f.reduce_s[shared] < f.reduce_s[whole])
    assert np.all(f.reduce_s[shared] > 0.35 * f.reduce_s[whole])
    assert np.all(f.gather_s[whole] == 0)
    assert np.all(f.gather_s[shared] > 0)
    assert np.all(f.optimizer_s[shared] < f.optimizer_s[whole])
    alone = found.grid.copies == 1
    assert np.all(f.reduce_s[alone] == 0)
    assert np.all(f.gather_s[alone] == 0)


@EVERY
def test_a_rank_updates_all_it_has(engine: str) -> None:
    found = search("llama-3.1-8b", "H200", engine)
    machine, states = found.case.machine, found.traits.optimizers["adamw"]
    own = np.array([float(found.model.parameters)])
    expected = 0.0
    for update in (*states.updates, states.clear):
        moved = {"bytes_read": own * update.reads, "bytes_written": own * update.writes}
        expected += machine.seconds("elementwise", "bf16", moved | {"efficiency": np.array([update.efficiency])})[0]
    np.testing.assert_allclose(found.figures.optimizer_s, expected, rtol=1e-6)


@SHARDING
def test_weights_that_are_shared_out_are_gathered_in_the_passes(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    whole, shared = np.array([pair for pair in pairs(found.grid, "zero", 0, 3) if found.grid.dp[pair[0]] > 1]).T
    f = found.figures
    assert np.all(f.gather_s[shared] == 0)
    assert np.all(f.forward_s[shared] > f.forward_s[whole])


@SHARDING
def test_the_head_is_gathered_as_well(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    whole, shared = np.array([pair for pair in pairs(found.grid, "zero", 0, 3) if found.grid.dp[pair[0]] > 1]).T
    assert np.all(found.figures.last_forward_s[shared] > found.figures.last_forward_s[whole])


@EVERY
def test_stages_send_and_a_single_one_does_not(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    several = found.grid.pp > 1
    assert np.all(found.figures.send_s[~several] == 0)
    assert np.all(found.figures.send_s[several] > 0)
    # What a cut sequence sends is a part of the whole.
    whole, cut = np.array([(a, b) for a, b in pairs(found.grid, "sequence_parallel", 0, 1) if several[a]]).T
    assert np.all(found.figures.send_s[cut] <= found.figures.send_s[whole])


@EVERY
def test_quiet_passes_have_no_collectives(engine: str) -> None:
    found = search("llama-3.1-8b", "H100:16", engine)
    (layer,), alone = found.figures.chunks.kinds, (found.grid.tp == 1) & (found.grid.zero < 2)
    assert np.all(layer.compute_only_forward_s <= layer.forward_s * (1 + 1e-12))
    assert np.all(layer.compute_only_backward_s <= layer.backward_s * (1 + 1e-12))
    np.testing.assert_allclose(layer.compute_only_forward_s[alone], layer.forward_s[alone])
    np.testing.assert_allclose(layer.compute_only_backward_s[alone], layer.backward_s[alone])


@EVERY
def test_chunks_cut_the_network(engine: str) -> None:
    """Layers over all chunks are the model's, and so is their time but for what each chunk waits for."""
    found = search("llama-3.1-8b", "H100:16", engine)
    grid, f = found.grid, found.figures
    assert np.all(f.layers * grid.pp * grid.vp == 32)
    assert np.all(f.micros * grid.micro_batch * grid.dp == 16)
    plain = (grid.zero < 2) & (grid.tp == 1) & (grid.micro_batch == 1) & (grid.recompute == 0)
    np.testing.assert_allclose((f.forward_s / f.layers)[plain], f.forward_s[plain][0] / f.layers[plain][0])


def test_versions_of_megatron_hide_more_and_more() -> None:
    """2.4 hides nothing, 3.0 collectives of tensor parallelism, today's gradient reduction and sends as well."""
    model = load_model("gpt-22b")
    old, middle, new = (training_engine(f"megatron@{version}").traits(model) for version in ("2.4", "3.0", "2026.08"))
    assert [traits.style.overlap_by_weight for traits in (old, middle, new)] == [False, True, True]
    assert [bool(traits.overlaps(4)) for traits in (old, middle, new)] == [False, False, True]
    assert [traits.blocking_sends for traits in (old, middle, new)] == [True, True, False]
    assert [traits.style.softmax is None for traits in (old, middle, new)] == [False, False, True]
    assert [traits.wire_bytes for traits in (old, middle, new)] == [2.0, None, None]


def test_unknown_engines_name_what_is_known() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown version of megatron '2\.5'.*2\.4"):
        training_engine("megatron@2.5")
    with pytest.raises(UnknownNameError, match=r"unknown engine 'megatrn'.*megatron"):
        training_engine("megatrn")
    with pytest.raises(InputError, match=r"vllm does not train.*megatron, torch"):
        training_engine("vllm")


@pytest.mark.parametrize("engine", [*PARTED, "torch@2.0"])
def test_mixtures_of_experts_are_refused(engine: str) -> None:
    with pytest.raises(InputError, match=r"mixture"):
        search("qwen3-30b-a3b", "H100:16", engine)
