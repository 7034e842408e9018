"""What every technique of a training plan keeps to, whoever wrote it: the registry's whole list is tried on networks of
both kinds, chips of five generations and plans of every shape."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.estimates import check_band
from tests.techniques.texts import changes, tried

import gnomon
from gnomon.engines.training.memory import rank_held
from gnomon.errors import InputError, UnknownNameError
from gnomon.spec.answers import TrainingReport
from gnomon.techniques import CONSERVED, TRAINING, AnyTechnique, applied, canonical, techniques

ALL = [one for one in techniques().values() if TRAINING in one.work]
NAMES = [one.name for one in ALL]
PLANS: dict[str, dict[str, Any]] = {
    "one V100": {"model": "gpt2-xl", "on": "V100-SXM2-32GB", "seq": 1024, "global_batch": 8},
    "copies on L4": {"model": "llama-2-7b", "on": "L4:8", "seq": 2048, "global_batch": 8, "recompute": "full"},
    "copies on H100": {"model": "llama-2-7b", "on": "H100:8", "seq": 4096, "global_batch": 16},
    "copies with all states on A100": {
        "model": "llama-2-7b", "on": "A100-80GB:16", "seq": 2048, "global_batch": 32, "zero": 0,
    },
    "tensor parallel on A100": {"model": "llama-2-13b", "on": "A100-80GB:8", "seq": 4096, "global_batch": 8, "tp": 4},
    "pipeline on A100": {"model": "llama-2-7b", "on": "A100-80GB:16", "seq": 2048, "global_batch": 64, "pp": 8},
    "interleaved on H100": {
        "model": "llama-2-7b", "on": "H100:8", "seq": 2048, "global_batch": 64, "pp": 4, "vp": 2,
    },
    "context on H200": {"model": "llama-3.1-8b", "on": "H200:8", "seq": 32768, "global_batch": 4, "cp": 4},
    "experts on H200": {"model": "mixtral-8x7b", "on": "H200:16", "seq": 4096, "global_batch": 16, "ep": 8},
    "PEFT on one H100": {
        "model": "llama-3.2-1b", "on": "H100", "seq": 2048, "global_batch": 4, "engine": "transformers",
    },
    "experts in a pipeline on H100": {
        "model": "mixtral-8x7b", "on": "H100:32", "seq": 4096, "global_batch": 64, "ep": 8, "pp": 4,
    },
}  # fmt: skip
"""States are shared out over all copies, so that every byte of them is held once, but for one plan."""


TRIED = [text for one in ALL for text in tried(one)]


@cache
def step(plan: str, *named: str) -> TrainingReport:
    usual = {} if "engine" in PLANS[plan] else {"zero": 1}
    return gnomon.simulate_training(**(usual | PLANS[plan]), techniques=named)


@cache
def reason(plan: str, *named: str) -> str:
    """Why the techniques do not apply to a plan; empty where they do."""
    plain = step(plan).step
    return applied(TRAINING, named).reject_reason(plain.case)


def usable(*named: str) -> list[str]:
    return [plan for plan in PLANS if not reason(plan, *named)]


def held(found: TrainingReport) -> float:
    """Parameters of one copy on one tensor-parallel rank of every stage."""
    stages = found.plan.strategy.pp
    return sum(float(rank_held(found.step.figures, rank).total[0]) for rank in range(stages))


def state_bytes(found: TrainingReport) -> float:
    """Of optimizer states, on all chips and where an update on a host finds them; copies of them are none."""
    strategy = found.plan.strategy
    each = strategy.ranks // strategy.pp
    chips = each * sum(parts["optimizer"] for parts in found.memory_parts)
    optimizer = found.step.case.traits.optimizers[found.step.job.recipe.optimizer]
    return chips + float(found.step.figures.away_parameters[0]) * optimizer.state_bytes * strategy.ranks


@pytest.mark.parametrize("one", ALL, ids=NAMES)
def test_it_says_what_it_is(one: AnyTechnique) -> None:
    assert one.title and one.idea
    assert one.changes <= set(CONSERVED[TRAINING])
    assert set(one.excludes) <= set(techniques()) - {one.name}
    for trial in one.trials:
        assert trial.paper and applied(TRAINING, [trial.words])
        assert not trial.against or applied(TRAINING, [trial.against])


@pytest.mark.parametrize("one", ALL, ids=NAMES)
def test_names_it_had_before_mean_the_same(one: AnyTechnique) -> None:
    for alias in one.aliases:
        assert alias not in techniques() and canonical(f"{alias}:x=1") == one.name
        assert applied(TRAINING, [alias]) == applied(TRAINING, [one.name])
        with pytest.raises(InputError, match="twice"):
            applied(TRAINING, [alias, one.name])
    for parameter in one.parameters:
        value = parameter.choices[0] if parameter.choices else f"{parameter.high:g}"
        for alias in parameter.aliases:
            assert applied(TRAINING, [f"{one.name}:{alias}={value}"]) == applied(
                TRAINING, [f"{one.name}:{parameter.name}={value}"]
            )


@pytest.mark.parametrize("one", ALL, ids=NAMES)
def test_defaults_and_tried_values_are_in_their_ranges(one: AnyTechnique) -> None:
    for parameter in one.parameters:
        for value in (parameter.default, *parameter.tried):
            text = f"{value:g}" if isinstance(value, float) else value
            assert parameter.read(text, "here") == value
    assert all(applied(TRAINING, [text]).names == (one.name,) for text in tried(one))


@pytest.mark.parametrize("one", [one for one in ALL if one.parameters], ids=lambda one: one.name)
def test_values_out_of_range_are_refused_by_name(one: AnyTechnique) -> None:
    for parameter in one.parameters:
        wrong = ["gibberish", "nan"] if parameter.choices else ["gibberish", "nan", f"{parameter.high * 2 + 1:g}", "-1"]
        for value in wrong:
            with pytest.raises(InputError, match=one.name) as caught:
                applied(TRAINING, [f"{one.name}:{parameter.name}={value}"])
            assert parameter.range in caught.value.hint


@pytest.mark.parametrize("one", ALL, ids=NAMES)
def test_unknown_parameters_are_answered_with_the_known_ones(one: AnyTechnique) -> None:
    with pytest.raises(InputError, match="'no_such=1' is not a parameter") as caught:
        applied(TRAINING, [f"{one.name}:no_such=1"])
    assert all(parameter.name in caught.value.hint for parameter in one.parameters)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="--with") as caught:
        gnomon.simulate_training(**PLANS["one V100"], techniques=["ofload-optimizer"])
    assert "offload-optimizer" in caught.value.hint


@pytest.mark.parametrize("one", ALL, ids=NAMES)
def test_it_is_asked_for_once(one: AnyTechnique) -> None:
    with pytest.raises(InputError, match="twice"):
        applied(TRAINING, [one.name, one.name])


@pytest.mark.battery(6)
@pytest.mark.parametrize("text", TRIED)
@pytest.mark.parametrize("plan", PLANS)
def test_it_runs_where_it_applies_and_is_refused_with_its_reason_elsewhere(plan: str, text: str) -> None:
    why = reason(plan, text)
    if why:
        with pytest.raises(InputError) as caught:
            step(plan, text)
        assert why in str(caught.value)
    else:
        check_band(step(plan, text).step_time_s)


@pytest.mark.battery(3)
@pytest.mark.parametrize("text", TRIED)
def test_it_applies_somewhere(text: str) -> None:
    assert usable(text)


@pytest.mark.battery(2)
@pytest.mark.parametrize("text", TRIED)
def test_work_is_conserved(text: str) -> None:
    for plan in usable(text):
        plain, found = step(plan), step(plan, text)
        both = found.step, plain.step
        if "flops" not in changes(text):
            assert both[0].flops == pytest.approx(both[1].flops, rel=1e-9)
        if "model flops" not in changes(text):
            assert both[0].flops["model"] == pytest.approx(both[1].flops["model"], rel=1e-9)
        if "tokens" not in changes(text):
            assert both[0].job.load.step_tokens == both[1].job.load.step_tokens
        if "parameters" not in changes(text):
            assert held(found) == pytest.approx(held(plain), rel=1e-9)


@pytest.mark.battery(3)
@pytest.mark.parametrize("text", TRIED)
def test_states_lie_on_a_chip_or_a_host_and_nowhere_twice(text: str) -> None:
    for plan in usable(text):
        if "state bytes" not in changes(text) and PLANS[plan].get("zero") != 0:  # copies follow from the degrees there
            assert state_bytes(step(plan, text)) == pytest.approx(state_bytes(step(plan)), rel=1e-6), plan


@pytest.mark.battery(6)
@pytest.mark.parametrize(("one", "other"), list(combinations(NAMES, 2)))
def test_pairs_are_refused_or_come_to_the_same_in_any_order(one: str, other: str) -> None:
    known = techniques()
    if other in known[one].excludes or one in known[other].excludes:
        for pair in ((one, other), (other, one)):
            with pytest.raises(InputError, match="cannot be combined"):
                applied(TRAINING, pair)
        return
    for plan in PLANS:
        assert reason(plan, one, other) == reason(plan, other, one)
        if not reason(plan, one, other):
            there, back = step(plan, one, other), step(plan, other, one)
            assert there.step_time_s.value == back.step_time_s.value
            assert there.memory_parts == back.memory_parts
            check_band(there.step_time_s)


USUAL = {"memory_gb_s": 200, "adam_gparam_s": 3, "nvme_write_gb_s": 4, "link": 20, "scaleup": 300, "scaleout": 12}
BETTER = {"memory_gb_s": 800, "adam_gparam_s": 12, "nvme_write_gb_s": 32, "link": 60, "scaleup": 900, "scaleout": 50}


def machine(folder: Path, **better: float) -> str:
    """Two nodes of four A100 with hosts of their own, some figure of them better than usual."""
    figures = USUAL | better
    host = {"cores": 64, "memory_gib": 4096, "nvme_tb": 8.0, "nvme_read_gb_s": 8.0}
    host |= {name: figures[name] for name in ("memory_gb_s", "adam_gparam_s", "nvme_write_gb_s")}
    link = {"name": "host link", "gb_s": figures["link"], "latency_us": 5.0}
    joined = {name: {"name": name, "gb_s": figures[name], "latency_us": 3.0} for name in ("scaleup", "scaleout")}
    said = {"schema": "gnomon.cluster/1", "chip": "A100-80GB", "count": 8, "per_node": 4} | joined
    path = folder / f"{'-'.join(better) or 'usual'}.yaml"
    path.write_text(yaml.safe_dump(said | {"host": host | {"link": link}}))
    return str(path)


@pytest.mark.battery(6)
@pytest.mark.parametrize("text", TRIED)
def test_a_better_machine_is_never_slower(text: str, tmp_path: Path) -> None:
    compared = 0
    for degrees in ({}, {"pp": 4}, {"zero": 0}):
        load = {"model": "llama-2-7b", "seq": 4096, "global_batch": 64, "zero": 1} | degrees
        try:
            usual = gnomon.simulate_training(**load, on=machine(tmp_path), techniques=[text]).step_time_s.value
        except InputError:
            continue
        for name, value in BETTER.items():
            on = machine(tmp_path, **{name: value})
            better = gnomon.simulate_training(**load, on=on, techniques=[text]).step_time_s.value
            assert better <= usual * (1 + 1e-9), name
            compared += 1
    if not compared:
        pytest.skip("it applies to other networks, engines or chips")


@pytest.mark.parametrize("text", NAMES)
def test_a_search_prices_the_plan_it_answers_with(text: str) -> None:
    """A technique that changes degrees leaves a search the plans that have them, or it says that none has."""
    load = {"model": "llama-2-7b", "seq": 2048, "global_batch": 32}
    try:
        found = gnomon.plan_training(**load, cluster="A100-80GB:8", techniques=[text])
    except InputError as refused:
        assert refused.where == "--with" and text in str(refused)
        return
    strategy = found.best.plan.strategy
    degrees = {name: getattr(strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    told = {name for name, value in degrees.items() if f"{name.upper()} {value}," in found.label}
    assert told == {name for name, value in degrees.items() if value > 1}
    settings = dict(found.best.plan.engine.settings)
    again = gnomon.simulate_training(
        **load, on=f"A100-80GB:{strategy.ranks}", techniques=[text], **degrees, **settings
    ).step_time_s.value
    assert found.best.step_time_s.value == pytest.approx(again, rel=1e-9)
    assert found.bound_s <= again * (1 + 1e-9)
