"""Plans from a made-up engine through the real search and the real simulator."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.planning import fake_engine

from gnomon.api.plan import plan_serving
from gnomon.errors import DoesNotFitError, InputError, NoPlanError, UnknownNameError
from gnomon.load import parse_fleet, plan_from_dict
from gnomon.load import serving as load_serving
from gnomon.planning.serving import evaluator as plan_evaluator
from gnomon.planning.serving import intervals
from gnomon.spec import Cluster, Goal
from gnomon.spec.answers import PlanReport
from gnomon.spec.plan_dict import plan_to_dict

GOALS = "ttft_p90=1s,tpot_p90=50ms"
ASK: dict[str, Any] = {"fleet": "H100:8", "rate": 4, "input": 1024, "output": 256, "slo": GOALS, "requests": 1000}


@pytest.fixture(autouse=True)
def made_up_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_serving, "bind_each", fake_engine.bind_each)
    monkeypatch.setattr(plan_evaluator, "power_use", fake_engine.power_use)


def plan(model: str = "llama-3.1-70b", **changes: Any) -> PlanReport:
    return plan_serving(model, **ASK | changes)


def test_best_meets_its_goals_and_counts_add_up() -> None:
    report = plan()
    best = report.best
    assert best.feasible
    assert best.ttft_s["p90"] <= 1.0
    assert best.tpot_s["p90"] <= 0.05
    assert report.plans_simulated <= report.plans_fit <= report.plans_considered
    assert sum(report.rejected.values()) == report.plans_considered - 1
    assert best.max_rate_per_s is not None
    assert best.max_rate_per_s >= 4
    assert best.usd_per_mtok == pytest.approx(best.usd_h / (4 * 256 * 3600 / 1e6))
    assert best.wh_per_mtok > 0
    assert report.binding in ("ttft_p90", "tpot_p90")
    assert min(best.margin.values()) == pytest.approx(best.margin[report.binding])
    assert report.command.startswith("vllm serve llama-3.1-70b")


ASKED = ({"objective": "latency"}, {"objective": "energy"}, {"objective": "throughput"}, {"rate": None}, {"slo": ""})


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize("changes", ASKED, ids=str)
def test_reasons_of_all_plans_add_up(changes: dict[str, Any]) -> None:
    """The plan that was chosen, and a reason for each of the others, as `explain` lists them."""
    report = plan(**changes)
    assert sum(report.rejected.values()) == report.plans_considered - 1
    ran = sum(count for reason, count in report.rejected.items() if "when simulated" in reason)
    assert ran == report.plans_simulated - 1


def test_plan_can_be_written_and_read_back() -> None:
    report = plan()
    made = report.best.plan
    again = plan_from_dict(json.loads(json.dumps(plan_to_dict(made))))
    assert again == made
    assert made.load is not None
    assert made.load.rate_per_s == 4
    assert made.goals == report.goals
    assert made.predicted["usd_h"] == report.best.usd_h
    assert json.dumps(report.to_dict(), allow_nan=False, default=asdict)


@pytest.mark.heavy
def test_same_question_same_answer() -> None:
    first, second = (json.dumps(plan().to_dict(), allow_nan=False, default=asdict) for _ in range(2))
    assert first == second


@pytest.mark.heavy
def test_every_cheaper_plan_misses() -> None:
    """The cheaper plan nearest to the goals is named with what it misses, and a fleet of only that much has none."""
    report = plan()
    cheaper = report.next_cheaper
    assert cheaper["usd_h"] < report.best.usd_h
    assert cheaper["why"].startswith(("misses", "cannot", "falls behind", "did not settle"))
    chips = round(cheaper["usd_h"] / (report.best.usd_h / report.best.plan.chips))
    with pytest.raises((NoPlanError, DoesNotFitError)):
        plan(fleet=f"H100:{chips}")


@pytest.mark.heavy
@pytest.mark.battery(8)
@pytest.mark.parametrize("objective", ["cost", "latency", "energy", "throughput"])
def test_the_runner_up_meets_the_goals(objective: str) -> None:
    report = plan(fleet="H100:8,H200:8", objective=objective)
    other = report.runner_up
    assert other["label"] != report.best.label
    assert other["ttft_s"]["p90"] <= 1.0
    assert other["tpot_s"]["p90"] <= 0.05
    assert min(other["margin"].values()) >= 0
    assert other["why"]
    assert plan_from_dict(other["plan"]).chips >= 1


@pytest.mark.heavy
@pytest.mark.parametrize("objective", ["cost", "throughput"])
def test_a_plan_that_differs_only_in_its_budgets_is_a_runner_up(objective: str) -> None:
    """And the best of another shape stands beside it, where one meets the goals."""
    report = plan(objective=objective, rate=4 if objective == "cost" else None)
    best, other = report.best.plan, plan_from_dict(report.runner_up["plan"])
    assert report.runner_up["usd_h"] == report.best.usd_h
    assert (other.strategy, other.dtype, other.replicas) == (best.strategy, best.dtype, best.replicas)
    assert other.engine.settings != best.engine.settings
    assert report.runner_up["why"].endswith("only step budgets differ")
    assert "budgets" not in report.alternative["why"]
    assert f"runner-up {report.alternative['label']}" in str(report)  # which is worth a line, and that is not
    assert report.runner_up["label"] not in str(report)
    shape = plan_from_dict(report.alternative["plan"])
    assert (shape.strategy, shape.dtype) != (best.strategy, best.dtype)
    assert min(report.alternative["margin"].values()) >= 0


@pytest.mark.parametrize(("chips", "dearer"), [(8, 1.5), (4, None)])
def test_no_other_plan_meets_the_goals_only_where_none_does(chips: int, dearer: float | None) -> None:
    """One format and one setting of the budgets: eight chips have room for a plan that costs half as much again, which
    no search for the cheapest one runs; four have not."""
    fixed = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
    report = plan(fleet=f"H100:{chips}", rate=6, settings=fixed, dtypes=["bf16"])
    if dearer is None:
        assert report.runner_up == {"why": "no other plan meets the goals"}
        assert not any("meets the goals" in reason for reason in report.rejected)
    else:
        assert report.runner_up["usd_h"] == pytest.approx(dearer * report.best.usd_h)
        assert min(report.runner_up["margin"].values()) >= 0


@pytest.mark.slow
def test_a_rate_is_the_least_that_the_highest_throughput_has_to_be_and_is_said_to_be() -> None:
    """The plan is the one of a load without a rate; a rate that no plan sustains has none."""
    given, free = plan(objective="throughput"), plan(rate=None)
    assert given.best.label == free.best.label
    assert given.best.max_rate_per_s == pytest.approx(free.best.max_rate_per_s, rel=0.03)
    listed = {each.option: each.why for each in given.not_modelled}
    assert "4/s is the least" in listed["--rate 4"]
    assert "at least 4/s" in given.title
    assert "--rate 4" not in {each.option for each in (*free.not_modelled, *plan().not_modelled)}
    assert "at least" not in free.title
    with pytest.raises(NoPlanError):
        plan(objective="throughput", rate=1.5 * free.best.max_rate_per_s)


@pytest.mark.heavy
def test_near_ties_cost_hardly_more_and_buy_something() -> None:
    """A chip of the same price by all but a few percent that has twice the bandwidth."""
    first, second = parse_fleet("H100:8,H200:8").pools
    like = replace(second.chip, price_usd_h=1.04 * first.chip.price_usd_h, memory_bytes=first.chip.memory_bytes)
    report = plan(fleet=Cluster(pools=(first, replace(second, chip=like))), rate=6)
    assert report.best.plan.chip.startswith("H100")
    assert any(tie["plan"]["chip"].startswith("H200") for tie in report.near_ties)
    for tie in report.near_ties:
        assert tie["usd_h"] <= 1.1 * report.best.usd_h
        assert tie["buys"]


@pytest.mark.heavy
def test_pools_are_alternatives_and_the_answer_says_so() -> None:
    report = plan(fleet="H100:8,H200:8")
    assert "H100:8 or H200:8" in report.title
    assert [each.option for each in report.not_modelled] == ["--fleet"]
    assert not plan().not_modelled


@pytest.mark.heavy
def test_every_figure_has_an_interval_and_watts_are_those_of_the_chips() -> None:
    report = plan()
    for predicted in (report.best.predicted, report.runner_up["predicted"]):
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            assert {"mean", "p50", "p90", "p99"} <= set(predicted[name])
    for name in ("output_tokens_per_s", "usd_per_mtok", "wh_per_mtok", "power_w"):
        assert report.best.predicted[name].value == pytest.approx(getattr(report.best, name))
    for scored in (report.best, *report.pareto):
        watts = scored.wh_per_mtok * 3600 / 1e6 * scored.output_tokens_per_s
        assert watts == pytest.approx(scored.power_w)
        assert watts <= scored.plan.chips * 700.0


@pytest.mark.heavy
def test_the_highest_rate_has_an_interval_and_so_has_what_follows_from_it() -> None:
    """A given rate is exact, and so are the tokens it brings; the highest that meets the goals is not."""
    drawn, given = plan(rate=None), plan()
    for figures in (drawn.best.predicted, drawn.runner_up["predicted"]):
        rate, tokens, cost = (figures[name] for name in ("rate_per_s", "output_tokens_per_s", "usd_per_mtok"))
        assert rate.low < rate.value < rate.high
        assert tokens.high / tokens.value == pytest.approx(rate.high / rate.value)
        assert cost.low / cost.value == pytest.approx(rate.value / rate.high, rel=0.02)
    assert drawn.best.predicted["rate_per_s"].value == drawn.best.max_rate_per_s
    assert "rate_per_s" not in given.best.predicted
    assert given.best.predicted["output_tokens_per_s"].low == given.best.output_tokens_per_s


@pytest.mark.heavy
def test_plans_whose_runs_are_the_same_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared draws are those that the plan's own runs would give."""
    shared = plan().runner_up["predicted"]
    monkeypatch.setattr(intervals.DrawnPlan, "shared_with", lambda self, score: False)
    own = plan().runner_up["predicted"]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert shared[name]["p90"].to_dict() == own[name]["p90"].to_dict()
    assert shared["power_w"].to_dict() == own["power_w"].to_dict()


@pytest.mark.parametrize("steepness", [0.3, 2.0, 25.0])
@pytest.mark.parametrize("place", [0.2, 0.7, 0.99, 1.0, 1.3, 3.0])
@pytest.mark.parametrize("guess", [0.6, 1.0, 1.6])
def test_where_room_is_used_up_is_found(place: float, steepness: float, guess: float) -> None:
    """From a guess that is off by up to 1.7 times, for lines and for queues that overflow."""
    guess *= place

    def straight(share: float) -> float:
        return -steepness * math.log(share / place)

    def overflowing(share: float) -> float:
        return (1 if share < place else 30) * straight(share)

    assert intervals.crossing(straight, guess) == pytest.approx(place, rel=0.03)
    assert intervals.crossing(overflowing, guess) == pytest.approx(place, rel=0.1)


@pytest.mark.slow
def test_looser_goals_more_chips_and_less_load_never_cost_more() -> None:
    base = plan().best.usd_h
    assert plan(slo="ttft_p90=2s,tpot_p90=80ms").best.usd_h <= base
    assert plan(fleet="H100:16").best.usd_h <= base
    assert plan(fleet="H100:8,H200:8").best.usd_h <= base
    assert plan(rate=1).best.usd_h <= base


def test_pareto_holds_no_beaten_plan() -> None:
    front = plan().pareto
    points = [(score.usd_h, score.ttft_s["p90"], score.tpot_s["p90"]) for score in front]
    assert points
    for one in points:
        assert not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in points)


@pytest.mark.heavy
def test_equal_price_keeps_the_first_format() -> None:
    ask: dict[str, Any] = {"rate": 1, "slo": "ttft_p90=5s,tpot_p90=200ms"}
    assert plan("llama-3.1-8b", **ask).best.plan.dtype == "bf16"
    assert plan("llama-3.1-8b", **ask, dtypes=("fp8", "bf16")).best.plan.dtype == "fp8"


@pytest.mark.slow
def test_objectives_are_what_they_say() -> None:
    cost, fast, lean = (plan(objective=name).best for name in ("cost", "latency", "energy"))
    most = plan(objective="throughput").best
    assert cost.usd_h == min(score.usd_h for score in (cost, fast, lean, most))
    assert fast.plan.predicted["e2e_s"]["mean"] <= cost.plan.predicted["e2e_s"]["mean"] * 1.01
    assert lean.wh_per_mtok <= min(fast.wh_per_mtok, cost.wh_per_mtok) * 1.02
    assert most.max_rate_per_s is not None
    assert cost.max_rate_per_s is not None
    assert most.max_rate_per_s >= cost.max_rate_per_s
    assert most.plan.chips == 8


@pytest.mark.slow
def test_without_a_rate_the_most_throughput_is_planned() -> None:
    report = plan(rate=None)
    best = report.best
    assert best.feasible
    assert best.plan.load is not None
    assert best.plan.load.rate_per_s == best.max_rate_per_s
    with pytest.raises(NoPlanError):
        plan(rate=1.2 * (best.max_rate_per_s or 0))


@pytest.mark.heavy
def test_a_trace_brings_its_own_rate(tmp_path: Path) -> None:
    rows = [f"{0.5 * index},{200 + index % 50},{50 + index % 9}" for index in range(400)]
    file = tmp_path / "load.csv"
    file.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]))
    ask: dict[str, Any] = {"input": None, "output": None, "requests": None, "rate": None}
    report = plan(trace=file, **ask)
    assert report.best.plan.predicted["rate_per_s"] == pytest.approx(2.0, rel=0.01)
    assert report.best.plan.load is not None
    assert report.best.plan.load.trace == str(file)
    faster = plan(trace=file, **ask | {"rate": 20})
    assert faster.best.usd_h >= report.best.usd_h


@pytest.mark.heavy
def test_settings_fix_budgets_and_context_is_cut_to_the_cache() -> None:
    report = plan(settings={"max_num_seqs": 96})
    assert report.best.plan.engine.settings["max_num_seqs"] == 96
    narrow = plan(fleet="H100:2", rate=0.2, dtypes=("bf16",))
    kept = narrow.best.plan.engine.settings["max_model_len"]
    assert 1280 <= kept < 131072
    assert "--max-model-len" in narrow.command


def test_step_costs_are_made_once_where_the_engine_says_so() -> None:
    """One of each degree and number format, and one for the intervals of the best plan and of the runner-up each."""
    before = fake_engine.ENGINE.costs_made
    report = plan()
    assert report.runner_up["label"]
    assert fake_engine.ENGINE.costs_made - before <= 4 * 2 + 2


@pytest.mark.heavy
def test_without_goals_only_the_load_counts() -> None:
    report = plan(slo="")
    assert report.binding == "load"
    assert report.best.usd_h <= plan().best.usd_h


OUT_OF_REACH: dict[str, dict[str, Any]] = {
    "more load than the fleet can take": {"rate": 60},
    "goals nobody can meet": {"slo": "tpot_p90=1ms"},
    "a goal just out of reach": {"slo": "tpot_p90=6.5ms"},
    "first tokens just out of reach": {"slo": "ttft_p90=120ms,tpot_p90=50ms", "rate": 45},
    "a mean": {"slo": "e2e_mean=2s", "rate": 16},
    "goals and load": {"slo": "ttft_p99=150ms,tpot_p99=20ms", "rate": 45},
    "two kinds of chips": {"fleet": "H100:2,H200:2", "rate": 14},
    "round-robin": {"rate": 48, "router": "round-robin", "slo": "ttft_p90=150ms"},
    "without a rate": {"rate": None, "slo": "ttft_p90=10ms"},
}


@pytest.mark.heavy
@pytest.mark.battery(22)
@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_what_a_hint_proposes_works(name: str) -> None:
    """Every fleet, rate and goal that the message proposes has a plan."""
    question = OUT_OF_REACH[name]
    with pytest.raises(NoPlanError, match=r"the nearest, .* (misses|cannot|falls behind)") as error:
        plan(**question)
    nearest = error.value.nearest
    assert nearest is not None
    assert plan_from_dict(nearest["plan"]).chips >= 1
    changes = nearest["changes"]
    assert changes
    for flag, value in changes.items():
        assert f"{flag} {value}" in error.value.hint
        assert plan(**question | {flag.removeprefix("--"): value}).best.feasible


@pytest.mark.heavy
def test_the_headroom_that_is_shown_is_there() -> None:
    best = plan().best
    assert best.max_rate_per_s is not None
    assert best.max_rate_per_s > 4
    again = plan(rate=best.max_rate_per_s, fleet=f"H100:{best.plan.chips}")
    assert again.best.feasible


@pytest.mark.heavy
def test_an_overloaded_plan_is_out_though_its_run_would_end() -> None:
    """With only a goal on the time a token, a queue of requests waiting to start would go unseen."""
    most = plan(fleet="H100:2", rate=None, slo="tpot_p90=200ms", settings={"max_num_seqs": 64}).best
    assert most.max_rate_per_s is not None
    beyond = most.max_rate_per_s * 1.1
    with pytest.raises(NoPlanError, match=r"falls behind|cannot keep up"):
        plan(fleet="H100:2", rate=beyond, slo="tpot_p90=200ms", settings={"max_num_seqs": 64})


def test_what_does_not_fit() -> None:
    with pytest.raises(DoesNotFitError, match=r"fits on H100:1"):
        plan(fleet="H100:1", dtypes=("bf16",))
    with pytest.raises(
        DoesNotFitError, match=r"fits on H100:8, one node of H100:16. Plans keep each replica within"
    ) as one:
        plan("deepseek-v3", fleet="H100:16", dtypes=("bf16",))
    assert one.value.nearest["on"] == "H100-SXM-80GB:8"
    with pytest.raises(InputError, match=r"1,000,256 tokens is longer than the 131,072 tokens"):
        plan(input=10**6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "speed"}, "unknown objective 'speed'"),
        ({"slo": "ttft_p91=1s"}, "unknown goal 'ttft_p91'"),
        ({"slo": {"tpot": 1}}, "unknown goal 'tpot'"),
        ({"slo": "ttft_p90=0s"}, "not above zero"),
        ({"slo": {"ttft_p90": "-1s"}}, "zero or more"),
        ({"slo": {"tpot_p90": 40}}, "tpot_p90: 40 has no unit. Write '40ms' or '40s'"),
        ({"slo": "ttft_p90=fast"}, "not a duration"),
        ({"slo": [Goal("ttft", "p90", 1.0), Goal("ttft", "p90", 2.0)]}, "is given twice"),
        ({"fleet": "H1000:4"}, "unknown chip 'H1000'"),
        ({"fleet": "H100:0"}, "'0' is not a positive whole number"),
        ({"fleet": "H100:4,H100:4"}, "twice"),
        ({"rate": 0}, "not a rate above zero"),
        ({"rate": "often"}, "often"),
        ({"input": 0}, "'0' is not a positive whole number"),
        ({"input": None}, "no lengths"),
        ({"requests": 0}, "'0' is not a positive whole number"),
        ({"dtypes": ("fp3",)}, "unknown number format 'fp3'"),
        ({"dtypes": ()}, "no number format"),
        ({"trace": "nowhere.csv", "input": None, "output": None}, "no such file"),
        ({"trace": "azure-conv"}, "already gives the lengths"),
    ],
)
def test_bad_questions_are_answered_clearly(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        plan(**changes)
    assert message in str(error.value)


def test_unknown_model() -> None:
    with pytest.raises(UnknownNameError, match="unknown model"):
        plan("lama-3")
