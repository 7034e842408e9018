"""Plans and answers beside each other: one load, one job, and nothing that is unlike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.api.compare import compare
from gnomon.errors import DoesNotFitError, InputError
from gnomon.load.plan import read_plan, write_plan
from gnomon.spec import EngineChoice, Goal, Plan, PlanPool, ServingLoad, Strategy
from gnomon.spec.side_by_side import SideBySide
from gnomon.store import save

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan.yaml"
STEP: dict[str, Any] = {"on": "H100", "phase": "decode", "batch": 8, "context": 100}
JOB: dict[str, Any] = {"on": "H100:8", "seq": 512, "global_batch": 16}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return replace(read_plan(EXAMPLE), id="example")


def values(answer: SideBySide, figure: str) -> list[Any]:
    row = next(row for row in answer.rows if row["figure"] == figure)
    return [value["value"] if isinstance(value, dict) else value for value in row["values"]]


def ratios(answer: SideBySide, figure: str) -> list[float]:
    return next(row["ratios"] for row in answer.rows if row["figure"] == figure)


def interval(answer: SideBySide, figure: str) -> dict[str, float]:
    """Of the first."""
    return next(row["values"][0] for row in answer.rows if row["figure"] == figure)


@pytest.mark.heavy
def test_serving_plans_under_the_first_ones_load(plan: Plan, tmp_path: Path) -> None:
    other = replace(plan, id="other", strategy=replace(plan.strategy, tp=2), load=replace(plan.load, rate_per_s=1.0))
    write_plan(other, tmp_path / "other.yaml")
    found = compare(plan, tmp_path / "other.yaml")
    assert found.kind == "serving plan"
    assert found.names == ("example", str(tmp_path / "other.yaml"))
    assert found.on["rate_per_s"] == 8.0
    assert found.differs == ({"field": "strategy.tp", "values": [4, 2]},)
    assert ratios(found, "$/h") == [1.0, 0.5]
    assert values(found, "tokens/s") == [2048.0, 2048.0]
    slower = values(found, "TPOT p90")
    assert slower[1] > slower[0]
    assert ratios(found, "TPOT p90") == [1.0, slower[1] / slower[0]]
    assert values(found, "meets the goals") == [True, True]
    row = next(row for row in found.rows if row["figure"] == "TTFT p90")
    assert all(value["low"] < value["value"] < value["high"] for value in row["values"])


@pytest.mark.slow
def test_a_load_that_is_given_goes_before_the_plans_own(plan: Plan) -> None:
    usual, busy = compare(plan, plan), compare(plan, plan, rate=12)
    assert (usual.on["rate_per_s"], busy.on["rate_per_s"]) == (8.0, 12.0)
    assert busy.on["input_tokens"] == 1024
    assert values(busy, "tokens/s")[0] == 1.5 * values(usual, "tokens/s")[0]
    assert ratios(usual, "TTFT p50") == [1.0, 1.0] and usual.differs == ()
    short = compare(plan, plan, input=100, output=10, seed=3)
    assert (short.on["input_tokens"], short.on["rate_per_s"], short.on["seed"]) == (100, 8.0, 3)
    assert values(short, "TTFT p50")[0] < values(usual, "TTFT p50")[0]


@pytest.mark.heavy
def test_a_trace_is_a_load(plan: Plan, tmp_path: Path) -> None:
    rows = "".join(f"{0.2 * n},{100 + n % 7},{8 + n % 5}\n" for n in range(600))
    (tmp_path / "trace.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    found = compare(plan, plan, trace=tmp_path / "trace.csv")
    assert found.on["trace"] == str(tmp_path / "trace.csv") and "input_tokens" not in found.on
    assert values(found, "TTFT p50")[0] > 0
    faster = compare(plan, plan, trace=tmp_path / "trace.csv", rate=50)
    assert values(faster, "TTFT p90")[0] > values(found, "TTFT p90")[0]


@pytest.mark.heavy
def test_what_a_plan_was_chosen_by_comes_out_again() -> None:
    asked: dict[str, Any] = {"rate": 4, "input": 512, "output": 64, "slo": "ttft_p90=1s,tpot_p90=50ms"}
    best = gnomon.plan_serving("llama-3.1-8b", fleet="H100:2", **asked)
    found = compare(best, best.best.plan)
    assert values(found, "TTFT p90") == [best.best.ttft_s["p90"]] * 2
    assert values(found, "$/Mtok") == [best.best.usd_per_mtok] * 2
    assert values(found, "power") == [best.best.power_w] * 2


def test_training_plans_do_one_job() -> None:
    one = gnomon.simulate_training("llama-3.2-1b", **JOB)
    other = gnomon.simulate_training("llama-3.2-1b", **(JOB | {"global_batch": 32}), tp=2)
    found = compare(one, other)
    assert found.kind == "training plan" and found.on == {"seq": 512, "global_batch": 16}
    assert [row["field"] for row in found.differs] == [
        "strategy.tp",
        "strategy.dp",
        "engine.settings.sequence_parallel",
    ]
    alone = gnomon.simulate_training("llama-3.2-1b", **JOB, tp=2)
    assert values(found, "step time") == [one.step_time_s.value, alone.step_time_s.value]
    assert values(found, "fits") == [True, True]
    drawn = {"step time", "MFU", "tokens/s per GPU", "cost of a step", "energy of a step"}
    assert {row["figure"] for row in found.rows if "low" in str(row["values"][0])} == drawn
    for name in drawn:
        low, value, high = (interval(found, name)[key] for key in ("low", "value", "high"))
        assert low < value < high
    step, used = interval(found, "step time"), interval(found, "MFU")
    assert used["high"] / used["value"] == pytest.approx(step["value"] / step["low"], rel=1e-2)


def test_stored_answers_as_they_are_kept(tmp_path: Path) -> None:
    one = gnomon.predict("llama-3.2-1b", **STEP)
    other = gnomon.predict("llama-3.2-1b", **(STEP | {"on": "H200"}))
    run = save("predict", one.to_dict())
    (tmp_path / "other.json").write_text(json.dumps(other.to_dict()))
    found = compare("last", tmp_path / "other.json", run)
    assert found.names == (run, str(tmp_path / "other.json"), run)
    assert found.kind == "predict" and found.on == {} and found.plans == ()
    assert found.differs == ({"field": "on", "values": ["H100", "H200", "H100"]},)
    times = [one.time_s.value, other.time_s.value, one.time_s.value]
    assert values(found, "step time") == times
    assert ratios(found, "step time") == [1.0, times[1] / times[0], 1.0]
    row = next(row for row in found.rows if row["figure"] == "step time")
    assert row["values"][1] == {name: other.to_dict()["time_s"][name] for name in ("value", "low", "high")}


def test_simulated_loads_have_their_intervals() -> None:
    load: dict[str, Any] = {"on": "H100", "input": 100, "output": 8, "requests": 50}
    answers = [gnomon.simulate_serving("llama-3.2-1b", rate=rate, **load) for rate in (5, 50)]
    found = compare(*answers)
    assert {"field": "rate", "values": [5.0, 50.0]} in found.differs
    row = next(row for row in found.rows if row["figure"] == "TTFT p90")
    assert [(value["low"], value["high"]) for value in row["values"]] == [
        tuple(answer.bands["ttft_s"]["p90"]) for answer in answers
    ]
    power = interval(found, "power")
    assert power["low"] < power["value"] < power["high"]
    assert "low" not in interval(found, "preemptions")
    row = next(row for row in found.rows if row["figure"] == "tokens/s")
    assert (row["values"][1]["low"], row["values"][1]["high"]) == answers[1].bands["output_tokens_per_s"]["mean"]


@pytest.mark.heavy
def test_more_than_two(plan: Plan) -> None:
    plans = [replace(plan, id=f"{tp}", strategy=replace(plan.strategy, tp=tp)) for tp in (2, 4, 8)]
    found = compare(*plans)
    assert found.differs == ({"field": "strategy.tp", "values": [2, 4, 8]},)
    assert all(len(row["values"]) == len(row["ratios"]) == 3 for row in found.rows)


def test_unlike_things_are_refused(plan: Plan, tmp_path: Path) -> None:
    step = gnomon.predict("llama-3.2-1b", **STEP)
    memory = gnomon.fit("llama-3.2-1b", on="H100")
    trained = gnomon.simulate_training("llama-3.2-1b", **JOB)
    with pytest.raises(InputError, match="a comparison needs two or more"):
        compare(plan)
    with pytest.raises(InputError, match="answer 2: is an answer of `gnomon fit`, and the first is of"):
        compare(step, memory)
    with pytest.raises(InputError, match="is a serving plan, and the first is a training plan"):
        compare(trained, plan)
    with pytest.raises(InputError, match="--rate: a training plan has no requests"):
        compare(trained, trained, rate=3)
    with pytest.raises(InputError, match="answer of `gnomon chips`, which is not compared"):
        compare(gnomon.chips("H100"), gnomon.chips("H200"))
    (tmp_path / "mine.json").write_text('{"name": "mine"}')
    with pytest.raises(InputError, match=r"mine\.json: is not an answer of Gnomon"):
        compare(tmp_path / "mine.json", step)
    with pytest.raises(InputError, match="the answer holds no plan"):
        compare(step, plan)


def test_a_plan_without_a_load_needs_one(plan: Plan) -> None:
    bare = replace(plan, load=None)
    with pytest.raises(InputError, match="has no load to compare under"):
        compare(bare, plan)
    assert compare(bare, plan, rate=4, input=200, output=20).on["rate_per_s"] == 4.0
    with pytest.raises(InputError, match="the load has no lengths"):
        compare(bare, plan, rate=4, input=200)
    with pytest.raises(InputError, match="the load has no rate"):
        compare(bare, plan, input=200, output=20)


@pytest.mark.heavy
def test_a_plan_that_cannot_be_put_under_it_is_named(plan: Plan, tmp_path: Path) -> None:
    small = replace(plan, strategy=replace(plan.strategy, tp=1), dtype="bf16")
    write_plan(small, tmp_path / "small.yaml")
    with pytest.raises(DoesNotFitError, match=r"small\.yaml: a replica has no room for a request of 1,280 tokens"):
        compare(plan, tmp_path / "small.yaml")
    shared = replace(plan, strategy=replace(plan.strategy, cp=2))
    write_plan(shared, tmp_path / "shared.yaml")
    with pytest.raises(InputError, match=r"shared\.yaml, strategy\.cp: replicas with cp 2 are not simulated"):
        compare(plan, tmp_path / "shared.yaml")


DAMAGED: list[tuple[tuple[str, ...], Any]] = [
    (("time_s",), 3), (("time_s", "value"), "fast"), (("time_s", "low"), 1e9), (("inputs",), [1]), (("inputs",), None),
    (("breakdown",), {}), (("memory_bytes", "value"), -1),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), DAMAGED, ids=str)
def test_a_damaged_answer_is_refused_by_its_field(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    answer = gnomon.predict("llama-3.2-1b", **STEP).to_dict()
    spot = answer
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    (tmp_path / "damaged.json").write_text(json.dumps(answer))
    with pytest.raises(InputError, match=rf"damaged\.json, field {path[0]}"):
        compare(tmp_path / "damaged.json", tmp_path / "damaged.json")


@pytest.mark.slow
def test_plans_of_pools_have_the_figures_of_their_simulation() -> None:
    """Behind the same router, under a load alike, but for its first and last requests; for a million tokens at the
    load's own rate."""
    one = PlanPool(chip="H100", replicas=2, strategy=Strategy(), dtype="bf16", engine=EngineChoice())
    load = ServingLoad(rate_per_s=6.0, input_tokens=800, output_tokens=100, requests=500)
    pools = (replace(one, role="prefill"), replace(one, role="decode"))
    apart = Plan.of_pools(pools, model="llama-3.1-8b", router="round-robin", load=load)
    other = Plan.of_pools((one, replace(one, chip="L40S")), model="llama-3.1-8b", router="round-robin")
    found = compare(apart, other)
    rows = {row["figure"]: row["values"] for row in found.rows}
    flags = (["prefill=H100:2,tp=1", "decode=H100:2,tp=1"], ["H100:2,tp=1", "L40S:2,tp=1"])
    for place, pool in enumerate(flags):
        alone = gnomon.simulate_serving(
            "llama-3.1-8b", pools=pool, router="round-robin", rate=6, input=800, output=100, requests=500
        )
        assert rows["TTFT p90"][place]["value"] == pytest.approx(alone.ttft_s["p90"], rel=0.1)
        assert rows["TPOT p90"][place]["value"] == pytest.approx(alone.tpot_s["p90"], rel=0.1)
        assert rows["TTFT p90"][place]["low"] < rows["TTFT p90"][place]["value"] < rows["TTFT p90"][place]["high"]
        assert rows["tokens/s"][place]["value"] == pytest.approx(600)
        usd_h = rows["$/h"][place]["value"]
        assert rows["$/Mtok"][place]["value"] == pytest.approx(usd_h / (600 * 3600 / 1e6))
    fields = {row["field"] for row in found.differs}
    assert {"pools.1.role", "pools.2.chip"} <= fields
    assert "pools.1.chip" not in fields


@pytest.mark.heavy
def test_a_plan_of_pools_stands_beside_one_of_a_single_pool(plan: Plan) -> None:
    """Two pools of equal replicas do what one pool of all of them does."""
    (pool,) = plan.each_pool
    halves = tuple(replace(pool, replicas=count) for count in (1, 1))
    joined = replace(plan, replicas=2, router="round-robin")
    split = replace(Plan.of_pools(halves, model=plan.model, router="round-robin"), load=plan.load, goals=plan.goals)
    found = compare(joined, split)
    rows = {row["figure"]: row for row in found.rows}
    assert rows["$/h"]["ratios"][1] == pytest.approx(1)
    assert rows["TPOT p50"]["ratios"][1] == pytest.approx(1, rel=0.1)
    assert rows["tokens/s"]["ratios"][1] == pytest.approx(1, rel=0.02)


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize("rate", [8.0, 16.0, 60.0])
def test_a_plan_written_as_pools_has_the_figures_of_the_same_plan_in_one(rate: float) -> None:
    """Behind a router that looks at the replicas all of them are simulated, so that the runs are the same."""
    one = PlanPool(chip="L40S", replicas=1, strategy=Strategy(), dtype="fp8", engine=EngineChoice())
    load = ServingLoad(rate_per_s=rate, input_tokens=800, output_tokens=100, requests=3000)
    goals = (Goal("ttft", "p90", 0.5), Goal("tpot", "p90", 0.04))
    given: dict[str, Any] = {"model": "llama-3.1-8b", "router": "least-requests", "load": load, "goals": goals}
    flat, split = Plan.of_pools((replace(one, replicas=2),), **given), Plan.of_pools((one, one), **given)
    assert not flat.pools and split.pools
    found = compare(flat, split)
    near = 1e-6 if rate < 60 else 1e-3  # replicas that fall behind end at times of their own
    for row in found.rows:
        first, other = (each if isinstance(each, (bool, type(None))) else each["value"] for each in row["values"])
        assert other == pytest.approx(first, rel=0.01 if "W" in row["figure"] else near), row["figure"]


def test_pools_are_not_simulated_with_context_parallelism(plan: Plan) -> None:
    (pool,) = plan.each_pool
    halves = (pool, replace(pool, strategy=Strategy(cp=2)))
    with pytest.raises(InputError, match="cp 2 are not simulated") as error:
        compare(plan, replace(Plan.of_pools(halves, model=plan.model), load=plan.load))
    assert "pools[1].strategy.cp" in str(error.value)
