"""Laws of every training technique that is found, over plans drawn at random: of a search's whole space, and of choices
that no plan can have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.techniques.texts import changes, name_of, texts

import gnomon
from gnomon.cost.lines import Steps
from gnomon.engines.training import Grid, StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import DEGREES
from gnomon.errors import GnomonError
from gnomon.load.training import bind_training
from gnomon.planning.training.search import Search, search_of
from gnomon.planning.training.step import memory_of, step_bound_s, step_timeline
from gnomon.sim.training import SCHEDULES, usual_schedule
from gnomon.spec import TrainingLoad
from gnomon.spec.training import CP_COMMS, RECOMPUTE
from gnomon.spec.workload import Floats
from gnomon.techniques import TRAINING, applied
from gnomon.techniques.plans import TrainingTechniques, allowed, applicable, settled, unchanged

TEXTS = texts(TRAINING)
CASES = {
    "dense on A100, Megatron": ("llama-3.2-1b", "A100-80GB:8", "megatron", TrainingLoad(seq=4096, global_batch=64)),
    "experts on H100, Megatron": ("mixtral-8x7b", "H100:32", "megatron", TrainingLoad(seq=4096, global_batch=64)),
    "dense on H100, TorchTitan": ("llama-3.1-8b", "H100:16", "torchtitan", TrainingLoad(seq=8192, global_batch=32)),
    "one V100, Megatron": ("gpt2-xl", "V100-SXM2-32GB", "megatron", TrainingLoad(seq=1024, global_batch=8)),
    "copies on L4, DeepSpeed": ("llama-3.2-1b", "L4:8", "deepspeed", TrainingLoad(seq=2048, global_batch=32)),
    "memory shared with the host": ("llama-3.2-1b", "GB10", "transformers", TrainingLoad(seq=2048, global_batch=4)),
}
DRAWN, PRICED, TIMED = 100, 12, 2
"""Plans that are drawn, priced where a technique applies, and timed."""
ROUNDING = 1e-9


@cache
def plain(case: str) -> Search:
    """Some plans of the space, always the same."""
    model, on, engine, load = CASES[case]
    found = search_of(bind_training(model, on, engine), load, "adamw", None)
    rows = np.random.default_rng(7).permutation(found.grid.size)[:DRAWN]
    return replace(found, grid=found.grid.pick(np.sort(rows)))


def impossible(case: str) -> TrainingCase:
    """Choices drawn one by one: most go together in no plan."""
    rng, size = np.random.default_rng(11), DRAWN
    columns = {name: 2 ** rng.integers(0, 7, size) for name in (*DEGREES, "micro_batch", "expert_tp")}
    columns |= {"zero": rng.integers(0, 4, size), "schedule": rng.integers(0, len(SCHEDULES), size)}
    columns |= {"recompute": rng.integers(0, len(RECOMPUTE), size), "cp_comm": rng.integers(0, len(CP_COMMS), size)}
    columns |= {"sequence_parallel": rng.integers(0, 2, size)}
    return replace(plain(case).case, plans=Grid(**columns))


def using(case: str, text: str) -> tuple[Search, np.ndarray]:  # type: ignore[type-arg]
    """The search with a technique, and some of the plans that it applies to."""
    search = replace(plain(case), techniques=(text,))
    return search, np.flatnonzero(search.allowed)[:PRICED]


@pytest.mark.battery(12)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("case", CASES)
def test_plans_are_rejected_with_a_reason_and_never_crash(case: str, text: str) -> None:
    chosen = applied(TRAINING, [text])
    for whole in (plain(case).case, impossible(case)):
        kept = applicable(chosen, whole)
        assert kept.shape == (whole.plans.size,)
        for row in np.random.default_rng(3).integers(0, whole.plans.size, 20).tolist():
            one = replace(whole, plans=whole.plans.pick(np.array([row])))
            why = chosen.reject_reason(one)
            assert bool(kept[row]) is (not why), "columns and one plan agree"
            assert not why or (
                why.startswith(f"{name_of(text)} does not apply: ") and "\n" not in why and len(why) < 200
            )


@pytest.mark.battery(8)
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_set_once_stays_set(text: str) -> None:
    chosen = applied(TRAINING, [text])
    for case in CASES:
        for whole in (plain(case).case, impossible(case)):
            rows = np.flatnonzero(applicable(chosen, whole))
            kept = replace(whole, plans=whole.plans.pick(rows))
            again = kept
            for one, values in chosen.pairs:
                again = one.rewrite(again, values)
            assert unchanged(chosen, again).all()
            assert (again.plans.ranks == kept.plans.ranks).all(), "as many chips as before"
            for row in range(min(rows.size, 3)):
                one_plan = replace(kept, plans=kept.plans.pick(np.array([row])))
                own = one_plan.plans.strategy(0), one_plan.plans.recipe(0, whole.optimizer)
                strategy, _ = settled(chosen, one_plan, own)
                assert strategy == again.plans.strategy(row)


def tiers(found: Search, table: object, rows: Floats, chosen: TrainingTechniques) -> list[Floats]:
    """Every number of bytes of every tier, of first, second and last ranks."""
    table = found.figures.pick(rows)
    case, pp = found.case.at(table), table.grid.pp
    each = [memory_of(table, case, rank, chosen) for rank in (0 * pp, np.minimum(1, pp - 1), pp - 1)]
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "working", "host", "nvme")
    return [np.broadcast_to(getattr(one, name), pp.shape) for one in each for name in names]


@pytest.mark.battery(12)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("case", CASES)
def test_seconds_and_bytes_are_never_negative_and_bounds_stay_bounds(case: str, text: str) -> None:
    search, rows = using(case, text)
    if not rows.size:
        return
    table, chosen = search.figures.pick(rows), search.applied
    for column in tiers(search, table, rows, chosen):
        assert np.isfinite(column).all() and (column >= -1.0).all()
    bounds = step_bound_s(table, search.traits)
    assert (bounds > 0).all()
    before = np.zeros(rows.size)
    for longer in (0.5, 1.0, 1.1, 2.0, 10.0):
        steps, waits = Steps(seconds=longer * bounds), np.zeros(rows.size)
        for one, values in chosen.pairs:
            found = one.waits(steps, search.case.at(table), values)
            waits = waits if found is None else np.asarray(found.seconds)
        assert (waits >= 0).all()
        whole = longer * bounds + waits
        assert (whole >= before * (1 - ROUNDING)).all(), "a longer step is not shorter with it"
        before = whole
    for place in range(0, rows.size, max(1, rows.size // TIMED))[:TIMED]:  # type: ignore[index]
        line = step_timeline(table, place, search.traits).step_s
        assert bounds[place] <= line * (1 + ROUNDING)


@pytest.mark.battery(12)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_not_declared_is_conserved(case: str, text: str) -> None:
    search, rows = using(case, text)
    if not rows.size:
        return
    own, without = search.figures.pick(rows), plain(case).figures.pick(rows)
    declared = changes(text)
    if "model flops" not in declared:
        np.testing.assert_allclose(own.model_flops, without.model_flops, rtol=1e-9)
    if "flops" not in declared:
        np.testing.assert_allclose(own.recomputed_flops, without.recomputed_flops, rtol=1e-9)
    if "parameters" not in declared:
        np.testing.assert_allclose(held(own), held(without), rtol=1e-9)
    if "activation bytes" not in declared:
        both = ((own, search), (without, plain(case)))
        kept = [memory_of(table, of.case.at(table), 0, of.applied).activations for table, of in both]
        np.testing.assert_allclose(*kept, rtol=1e-9)


def held(table: StepTable) -> Floats:
    """Parameters of the first rank's layers, and of both ends wherever they are."""
    ends = table.first_parameters + table.last_parameters + table.each_parameters * table.grid.pp
    return np.asarray(table.chunks.body(0).total + ends)


@pytest.mark.parametrize("name", sorted({name_of(text) for text in TEXTS}))
def test_it_applies_to_some_drawn_plan_or_to_choices_of_its_own(name: str) -> None:
    """A technique that sets choices finds plans that have them; one that applies nowhere is no technique."""
    chosen = applied(TRAINING, [name])
    assert any(allowed(chosen, plain(case).case).any() or applicable(chosen, impossible(case)).any() for case in CASES)


@pytest.mark.parametrize("text", TEXTS)
def test_values_at_both_ends_can_be_asked_for(text: str) -> None:
    """A step with them, or one line that says why not."""
    try:
        found = gnomon.simulate_training("gpt2-xl", on="A100-80GB:4", seq=1024, global_batch=16, techniques=[text])
    except GnomonError as error:
        assert error.exit_code == 2 and "\n" not in str(error)
        return
    assert 0 < found.step_time_s.value < 1e7
    assert usual_schedule(1).name
