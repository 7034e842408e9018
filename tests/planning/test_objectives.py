"""Objectives of a training plan against a loop over every plan that fits, each run in full."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

import gnomon
from gnomon.api.plan_training import _site, plan_training
from gnomon.errors import InfeasibleError, InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.planning.run.reliability import planned_run
from gnomon.planning.training.objectives import PlanQuery
from gnomon.planning.training.runs import Limits
from gnomon.planning.training.scaled import family, scaled
from gnomon.planning.training.search import label, step_of_row
from gnomon.spec.questions.objectives import PlanTrainingQuestion

JOB: dict[str, Any] = {"model": "llama-3.2-1b", "seq": 1024, "global_batch": 4}
STEP_TOKENS = 4096
HOUR_S, DAY_S = 3600.0, 86400.0
OFTEN = "2e-3/gpu-hour"


@dataclass(frozen=True)
class Ran:
    """A plan that fits, with its run as the closed form of every single plan has it."""

    label: str
    ranks: int
    paid: int
    wall_s: float
    usd: float


@cache
def ran(cluster: str, tokens: float, failures: str | None = None) -> tuple[Ran, ...]:
    return tuple(_ran(cluster, tokens, failures))


def _ran(cluster: str, tokens: float, failures: str | None) -> Iterator[Ran]:
    question = PlanTrainingQuestion(cluster=cluster, tokens=tokens, failures=failures, **JOB)
    site = _site(question, question.model, cluster)
    task = PlanQuery(sites=(site,), load=question.load, limits=Limits(), optimizer="adamw", dtype=None, techniques=())
    (search,) = task.searches(site)
    price = search.pool.chip.price_usd_h / HOUR_S
    steps = math.ceil(tokens / STEP_TOKENS)
    for row in range(search.grid.size):
        if not search.fits[row]:
            continue
        ranks = int(search.grid.ranks[row])
        wall, paid = steps * search.step_s(row), ranks
        if site.failures:
            run = planned_run(step_of_row(search, row), site.failures)
            wall, paid = run.wall_s, ranks + run.case.spares * search.pool.per_node
        yield Ran(label(search.grid, row), ranks, paid, wall, paid * price * wall)


def least(values: Iterable[float]) -> float | None:
    return min(values, default=None)


def test_the_fastest_within_a_budget() -> None:
    plans = ran("H100:4", 1e9)
    budgets = sorted({one.usd for one in plans})
    for budget in (budgets[0] * 1.0001, budgets[len(budgets) // 4], budgets[-1]):
        answer = plan_training(cluster="H100:4", tokens=1e9, budget_usd=budget, objective="fastest", **JOB)
        expected = least(one.wall_s for one in plans if one.usd <= budget)
        assert answer.objective["value"] == pytest.approx(expected, rel=1e-9)
        assert answer.best.run["cost_usd"] <= budget * (1 + 1e-9)
        assert answer.best.run["days"] * DAY_S == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("failures", [None, OFTEN])
def test_the_fewest_gpus_by_a_deadline(failures: str | None) -> None:
    plans = ran("H100:3", 1e9, failures)
    for count in sorted({one.ranks for one in plans}):
        deadline = min(one.wall_s for one in plans if one.ranks == count) * (1 + 1e-6)
        answer = plan_training(cluster="H100:3", tokens=1e9, deadline_s=deadline, failures=failures, **JOB)
        fewest = least(one.ranks for one in plans if one.wall_s <= deadline)
        expected = least(one.wall_s for one in plans if one.ranks == fewest and one.wall_s <= deadline)
        assert answer.objective["value"] == fewest == len(answer.best.ranks)
        assert answer.best.run["days"] * DAY_S == pytest.approx(expected, rel=1e-6)
        assert answer.inputs["cluster"] == "H100-SXM-80GB:3"


@pytest.mark.heavy
@pytest.mark.parametrize("failures", [None, OFTEN])
def test_the_cheapest_of_several_clusters_by_a_deadline(failures: str | None) -> None:
    clusters = ("H100:2", "A100:3", "H200:1")
    plans = {cluster: ran(cluster, 1e9, failures) for cluster in clusters}
    every = tuple(one for some in plans.values() for one in some)
    quickest = min(one.wall_s for one in every)
    for share in (1.001, 1.5, 4.0, 20.0):
        words: dict[str, Any] = {"tokens": 1e9, "deadline_s": share * quickest, "failures": failures}
        answer = plan_training(cluster=",".join(clusters), **words, **JOB)
        expected = least(one.usd for one in every if one.wall_s <= share * quickest)
        assert answer.objective["name"] == "cheapest"
        assert answer.objective["value"] == pytest.approx(expected, rel=1e-6)
        assert answer.best.run["cost_usd"] == pytest.approx(expected, rel=1e-6)
        rows = answer.objective["compared"]
        assert [row["cluster"].split(":")[1] for row in rows] == ["2", "3", "1"]
        for row, cluster in zip(rows, clusters, strict=True):
            own = least(one.usd for one in plans[cluster] if one.wall_s <= share * quickest)
            assert row.get("value") == (None if own is None else pytest.approx(own, rel=1e-6))
            assert (own is None) == ("why" in row)


def test_the_most_tokens_for_a_budget_by_a_deadline() -> None:
    plans = ran("H100:4", STEP_TOKENS)  # a step each
    for budget, deadline in ((10.0, math.inf), (math.inf, HOUR_S), (20.0, 2 * HOUR_S), (3.0, 2 * HOUR_S)):
        limits = {"budget_usd": budget, "deadline_s": deadline}
        given = {name: value for name, value in limits.items() if math.isfinite(value)}
        answer = plan_training(cluster="H100:4", objective="most-tokens", **given, **JOB)
        steps = max(int(min(budget / one.usd, deadline / one.wall_s)) for one in plans)
        assert answer.objective["value"] == steps * STEP_TOKENS
        assert answer.best.run["steps"] == steps
        assert answer.best.run["cost_usd"] <= budget * (1 + 1e-9)
        assert answer.best.run["days"] * DAY_S <= deadline * (1 + 1e-9)


@pytest.mark.heavy
def test_the_most_tokens_with_failures() -> None:
    """No plan's run that is a step longer keeps the limits, spare nodes and waiting for repairs counted."""
    limits: dict[str, Any] = {"budget_usd": 3000.0, "deadline_s": 3 * DAY_S}
    answer = plan_training(cluster="H100:4", failures=OFTEN, **limits, **JOB)
    tokens = answer.objective["value"]
    assert answer.objective["name"] == "most-tokens"

    def keeps(one: Ran) -> bool:
        return one.usd <= limits["budget_usd"] and one.wall_s <= limits["deadline_s"]

    assert any(keeps(one) for one in ran("H100:4", tokens, OFTEN))
    assert not any(keeps(one) for one in ran("H100:4", tokens + STEP_TOKENS, OFTEN))
    assert answer.best.reliability is not None
    assert answer.best.run["cost_usd"] <= limits["budget_usd"]


@pytest.mark.heavy
def test_failures_decide_between_plans() -> None:
    """With failures the fastest is the one that is over first, not the one with the shortest step."""
    plans = ran("H100:3", 1e9, "0.5/gpu-hour")
    answer = plan_training(cluster="H100:3", tokens=1e9, failures="0.5/gpu-hour", **JOB)
    assert answer.best.run["days"] * DAY_S == pytest.approx(least(one.wall_s for one in plans), rel=1e-6)


LONG: dict[str, Any] = {"model": "llama-3.2-1b", "cluster": "H100:2", "global_batch": 2, "optimizer": "adamw-bf16"}


@pytest.mark.heavy
@pytest.mark.battery(3)
@pytest.mark.parametrize("hours", [None, 40.0, 30.0])
def test_the_longest_context(hours: float | None) -> None:
    """Every multiple of --seq is planned on its own; most lengths do not fit, or take too long."""
    limits = {} if hours is None else {"tokens": 1e9, "deadline_s": hours * HOUR_S}
    able = []
    for times in range(1, 9):
        with suppress(InfeasibleError):
            plan_training(seq=times * 16384, objective="fastest", **limits, **LONG)
            able.append(times * 16384)
    answer = plan_training(seq=16384, longest_context=True, **limits, **LONG)
    assert answer.objective["value"] == answer.best.inputs["seq"] == max(able)
    assert answer.best.step_time_s.value == pytest.approx(
        plan_training(seq=max(able), **LONG).best.step_time_s.value, rel=1e-12
    )
    (beyond,) = answer.objective["compared"]
    assert beyond["seq"] == max(able) + 16384
    assert 16384 < max(able) < 131072 or hours is None


def test_the_largest_of_a_list() -> None:
    names = "llama-3.2-1b,llama-3.1-8b,qwen3-4b,llama-3.2-3b"
    words: dict[str, Any] = {"cluster": "H100:1", "seq": 1024, "global_batch": 4}
    fits = {}
    for name in names.split(","):
        with suppress(InfeasibleError):
            fits[name] = plan_training(name, **words).resolved
    largest = max(fits, key=lambda name: load_model(name).parameters)
    assert len(fits) < 4
    answer = plan_training(names, objective="largest-model", **words)
    assert answer.best.inputs["model"] == largest
    assert answer.objective["value"] == load_model(largest).parameters
    assert answer.best.fits
    assert answer.best.targets
    tried = [row["model"] for row in answer.objective["compared"]]
    assert set(tried) == {name for name in names.split(",") if name not in fits}


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize("days", [None, 1.0])
def test_the_largest_of_a_family(days: float | None) -> None:
    words: dict[str, Any] = {"cluster": "H100:2", "seq": 1024, "global_batch": 4}
    words |= {} if days is None else {"tokens": 2e9, "deadline_s": days * DAY_S}
    model = load_model("llama-3.2-1b")
    able = []
    for eighths in range(1, 20):
        one = scaled(model, eighths)
        with suppress(InfeasibleError):
            plan_training(one, **words | {"objective": "fastest"})
            able.append(one.parameters)
    answer = plan_training("llama-3.2-1b", objective="largest-model", **words)
    assert answer.objective["value"] == max(able)
    assert answer.objective["value"] < scaled(model, 19).parameters
    assert answer.best.fits
    assert "-x" in answer.best.inputs["model"]
    assert answer.command == ""


def test_a_scaled_model_is_that_many_times_as_wide_and_deep() -> None:
    model = load_model("llama-3.1-8b")
    double = scaled(model, 16)
    assert (double.hidden, double.layers, double.blocks[0].attention.heads) == (8192, 64, 64)
    assert scaled(model, 8) is model
    inner = 8 * (model.parameters - 2 * model.vocab * model.hidden)
    assert double.parameters == pytest.approx(inner + 4 * model.vocab * model.hidden, rel=1e-4)
    with pytest.raises(InputError, match=r"deepseek-v3 is no plain decoder.*MODEL,MODEL"):
        list(family(load_model("deepseek-v3"), 1e15))


UNREACHED: dict[str, tuple[dict[str, Any], str, str]] = {
    "deadline": ({"tokens": 1e12, "deadline_s": DAY_S}, "--deadline", "the fastest .* takes .* Give --deadline"),
    "budget": ({"tokens": 1e12, "budget_usd": 5.0}, "--budget", "the cheapest .* Give --budget"),
    "both": ({"tokens": 1e12, "budget_usd": 5.0, "deadline_s": DAY_S}, "--deadline", "Give --deadline .* and --budget"),
    "no step": ({"budget_usd": 1e-9}, "--budget", "no run of a single step"),
}


@pytest.mark.parametrize("case", UNREACHED)
def test_limits_that_no_plan_keeps(case: str) -> None:
    given, where, message = UNREACHED[case]
    with pytest.raises(InfeasibleError, match=message) as caught:
        plan_training(cluster="H100:4", **given, **JOB)
    assert caught.value.where == where
    words = caught.value.hint.replace(",", " ").split()
    enough = {name: words[words.index(flag) + 1] for flag, name in FLAGS.items() if flag in words}
    if enough:
        assert plan_training(cluster="H100:4", tokens=given["tokens"], objective="fastest", **enough, **JOB).best.fits


FLAGS = {"--deadline": "deadline_s", "--budget": "budget_usd"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"objective": "quickest"}, r"--objective: unknown objective 'quickest'.*fastest"),
    "deadline alone": ({"deadline_s": DAY_S}, r"--deadline: does nothing without --tokens"),
    "no budget": ({"objective": "most-tokens"}, r"most-tokens needs a limit.*--budget 1M"),
    "tokens of most tokens": ({"objective": "most-tokens", "tokens": 1e9, "budget_usd": 5}, r"--tokens: is what"),
    "two": ({"objective": "cheapest", "fewest_gpus": True, "tokens": 1e9}, r"cheapest and fewest-gpus are two"),
    "cheapest of no run": ({"objective": "cheapest"}, r"--objective: cheapest needs the run.*--tokens"),
    "zero": ({"budget_usd": 0}, r"--budget: '0' is not above zero"),
    "no amount": ({"budget_usd": "$"}, r"--budget: '\$' is not an amount"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_looked_for_is_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        plan_training(cluster="H100:4", **given, **JOB)


def test_a_chip_without_a_price_costs_nothing_that_could_be_compared() -> None:
    pool = parse_pool("H100:4")
    free = replace(pool, chip=replace(pool.chip, price_usd_h=0.0))
    with pytest.raises(InputError, match=r"the price of H100-SXM-80GB is not known"):
        plan_training(cluster=free, tokens=1e9, objective="cheapest", **JOB)


@pytest.mark.parametrize(("text", "usd"), [("1M$", 1e6), ("$1.5M", 1.5e6), ("500k", 5e5), (2e6, 2e6), ("2e6", 2e6)])
def test_amounts(text: Any, usd: float) -> None:
    assert PlanTrainingQuestion(cluster="H100", budget_usd=text, **JOB).budget_usd == usd


def test_the_text_says_what_was_looked_for() -> None:
    answer = gnomon.plan_training(cluster=["H100:4", "A100:2"], tokens=1e9, deadline_s=30 * DAY_S, **JOB)
    text = str(answer)
    assert "objective cheapest run within 30 days: $" in text
    assert "compared  H100-SXM-80GB:4: $" in text
    assert "objective" not in str(plan_training(cluster="H100:4", **JOB))
    assert answer.to_dict()["objective"]["limits"] == {"deadline_s": 30 * DAY_S}


def test_the_best_of_all_techniques_and_the_runner_up() -> None:
    """Searches with techniques one after the other against every plan of each, timed."""
    words: dict[str, Any] = {"model": "llama-3.2-3b", "seq": 4096, "global_batch": 4}
    answer = plan_training(cluster="H100:2", techniques=("auto",), **words)
    question = PlanTrainingQuestion(cluster="H100:2", **words)
    site = _site(question, question.model, "H100:2")
    task = PlanQuery(
        sites=(site,), load=question.load, limits=Limits(), optimizer="adamw", dtype=None, techniques=("auto",)
    )
    searches = task.searches(site)
    assert any(one.has_side for one in searches)
    times = []
    for one in searches:
        rows = [row for row in range(one.grid.size) if one.fits[row]]
        seconds = [one.step_s(row) for row in rows]
        assert all(one.bounds_s[row] <= time for row, time in zip(rows, seconds, strict=True))
        assert all(one.loose_bounds_s[row] <= one.bounds_s[row] for row in rows)
        times += seconds
    assert answer.plans_fit == len(times)
    least, second, *_ = sorted(times)
    assert answer.best.step_time_s.value == pytest.approx(least, rel=1e-9)
    assert answer.runner_up["step_time_s"] == pytest.approx(second, rel=1e-9)
