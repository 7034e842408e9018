"""The text of `gnomon plan serve`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.graph.dtypes import WIDTH
from gnomon.report.figures import Headline, interval
from gnomon.report.serve import crossing_lines, seconds_word, slot_lines
from gnomon.report.sweep import command_line
from gnomon.report.text import Style, band, digits, flag, folder_of, headed, known, labelled, next_steps, words
from gnomon.spec import Plan
from gnomon.spec.answers import PlanReport, PlanScore
from gnomon.spec.answers.serving import Sensitivity
from gnomon.spec.workload import METRICS, ServingLoad
from gnomon.units import format_count, format_duration, format_money

_GOAL = re.compile(r"\b(ttft|tpot|e2e)_(mean|p\d+)\b")
ALSO: tuple[tuple[str, Callable[[PlanScore], float | None]], ...] = (
    ("cheapest", lambda score: known(score.usd_per_mtok)),
    ("lowest energy", lambda score: known(score.wh_per_mtok)),
    ("lowest TTFT", lambda score: known(score.ttft_s.get("p90"))),
    ("lowest TPOT", lambda score: known(score.tpot_s.get("p90"))),
)
"""What another plan of the Pareto set may be best at; less is better."""
WORTH_TELLING = 0.05
"""Share by which it must be better than the chosen plan."""
MOST_TIES = 3
FULL_CACHE, FULL_CLOCK = 0.99, 0.99
"""Shares of the KV cache from which on it limits a plan, and of the clock below which the power limit does."""


ROUTED = {
    "random": "requests are assigned to replicas at random, as by a Kubernetes Service",
    "round-robin": "requests are assigned to replicas round-robin",
    "least-requests": "each request goes to the replica with the fewest unfinished ones",
    "least-kv": "each request goes to the replica with the least of its KV cache in use",
    "prefix-aware": "each request goes to the replica that computed the beginning of its prompt",
    "weighted": "requests are assigned at random, in proportion to the replicas' weights",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """A plan in a list: the best one, or another with fewer figures."""

    label: str
    usd_h: float
    usd_per_mtok: float | None
    wh_per_mtok: float | None
    feasible: bool | None
    times: Mapping[str, Mapping[str, float | None]]
    """By metric and statistic."""
    predicted: Mapping[str, Any]

    @classmethod
    def of(cls, plan: PlanScore | Mapping[str, Any]) -> PlanLine:
        """Of a score, or of an `OtherPlan`."""
        given = plan if isinstance(plan, Mapping) else vars(plan)
        return cls(
            label=given["label"],
            usd_h=given["usd_h"],
            usd_per_mtok=known(given.get("usd_per_mtok")),
            wh_per_mtok=known(given.get("wh_per_mtok")),
            feasible=given.get("feasible"),
            times={metric: given.get(f"{metric}_s", {}) for metric in METRICS},
            predicted=given.get("predicted", {}),
        )


def render(answer: PlanReport, style: Style) -> str:
    best = answer.best
    shown = shown_times(answer)
    lines = [
        style.strong(answer.title),
        searched_words(answer),
        *([axes_words(answer)] if answer.axes else []),
        "",
        labelled("best", _score(PlanLine.of(best), shown), style.strong),
    ]
    lines += [labelled("", text) for text in [*energy_lines(best), *changed_lines(answer)]]
    lines += [labelled("", text) for text in crossing_lines(answer.goal_results)]
    lines += [labelled("headroom", text) for text in headroom_lines(answer)]
    lines += [labelled("binding", text) for text in binding_lines(answer)]
    for name, text in beside_lines(answer, shown):
        lines.append(labelled(name, text))
    lines += [labelled("near tie", text) for text in near_tie_lines(answer)]
    lines += [labelled("also" if index == 0 else "", text) for index, text in enumerate(also_lines(answer, shown))]
    lines += [labelled("weighed" if index == 0 else "", text) for index, text in enumerate(weighed_lines(answer))]
    lines += [labelled("left out", f"{chip}: {why}") for chip, why in answer.left_out.items()]
    several_pools = bool(best.plan.pools) or best.plan.replicas > 1
    lines += [labelled("router", ROUTED[answer.router])] if several_pools else []
    lines += _by_rate(answer, style)
    lines += _sensitivity(answer, style)
    folder = folder_of("deploy", answer.to_dict())
    exports = (f"gnomon export last --to {best.plan.engine.name} --out {folder}", "gnomon export last --to kubernetes")
    lines += ["", *(labelled("run it:" if first else "", text) for first, text in run_lines(answer, folder))]
    lines += [*(labelled("needs", text) for text in answer.left_to_you), ""]
    ways = [*(exports if answer.command or best.plan.pools else ()), *simulated_words(best.plan)]
    return "\n".join([*lines, *next_steps(*ways, "gnomon explain last", *_otherwise(answer))])


def run_lines(answer: PlanReport, folder: str) -> Iterator[tuple[bool, str]]:
    """What starts the best plan, and how often; each line with whether it is the first."""
    plan = answer.best.plan
    if answer.command:
        yield True, answer.command
        if plan.replicas > 1:
            yield False, f"once for each of the {plan.replicas:,} replicas"
    elif plan.pools:
        yield True, f"gnomon export last --to {plan.engine.name} --out {folder} && {folder}/launch.sh"
        linked = ", with KV connectors," if plan.disaggregated else ""
        yield False, f"the servers of all pools{linked} and their router; over several nodes its header says how"


def _otherwise(answer: PlanReport) -> list[str]:
    """The same question with sensitivities, where they were not asked for and there are some."""
    rated = "rate_per_s" in answer.best.predicted
    if not answer.asked or answer.asked.get("sensitivity") or rated:
        return []
    return [command_line("plan serve", {**answer.asked, "sensitivity": True})]


def simulated_words(plan: Plan) -> list[str]:
    """The command that simulates a plan of several pools, where its load can be written in it."""
    load = plan.load
    if not plan.pools or not isinstance(load, ServingLoad):
        return []
    said: list[Any] = ["gnomon", "simulate", "serve", plan.model]
    for pool in plan.pools:
        degrees = {name: getattr(pool.strategy, name) for name in ("pp", "ep", "dp")}
        own = {"tp": pool.strategy.tp, **{name: degree for name, degree in degrees.items() if degree > 1}}
        own |= {"dtype": pool.dtype}
        own |= {"weight": f"{pool.weight:.3g}" if pool.weight != 1 else None, **pool.engine.settings}
        written = [f"{name}={value}" for name, value in own.items() if value is not None]
        said += ["--pool", ",".join([f"{pool.role}={pool.chip}:{pool.chips}", *written])]
    said += [*flag("--router", plan.router, "random"), *flag("--kv-transfer", plan.kv_transfer, "whole")]
    rate = f"{load.rate_per_s:.3g}" if load.rate_per_s else None
    said += [*flag("--trace", load.trace or None), *flag("--rate", rate)]
    said += [*flag("--input", getattr(load.input_tokens, "text", load.input_tokens))]
    said += [*flag("--output", getattr(load.output_tokens, "text", load.output_tokens))]
    return [words(*said)]


def searched_words(answer: PlanReport) -> str:
    considered, fit, ran = map(format_count, (answer.plans_considered, answer.plans_fit, answer.plans_simulated))
    most, judged = map(format_count, (answer.requests_searched, answer.requests_simulated))
    return f"{considered} plans: {fit} fit, {ran} simulated with up to {most} requests, the best with {judged}"


def axes_words(answer: PlanReport) -> str:
    """`chip H100, L40S x TP 1, 2, 4 x …`: what the plans differ in."""
    return " x ".join(_axis(name, values) for name, values in answer.axes.items())


def _axis(name: str, values: Sequence[str]) -> str:
    told = f"1 to {values[-1]}" if name.endswith("replicas") and len(values) > 1 else ", ".join(values)
    if name == "with":
        return f"with any of {', '.join(values[1:])}"
    behind = name in ("sequences", "replicas", "prefill replicas")
    named = name.removesuffix("s") if values == ("1",) else name
    return told if name == "pools" else f"{told} {named}" if behind else f"{name} {told}"


def weighed_lines(answer: PlanReport) -> list[str]:
    """Each technique: whether it is used, what it buys by itself, and whether answers change."""
    return [
        f"{one['name']} ({'lossless' if one['lossless'] else 'quality changes'}), "
        f"{'used' if one['used'] else 'not used'}: {one['why']}"
        for one in answer.weighed
    ]


def limit_lines(answer: PlanReport) -> list[str]:
    """Whether memory or power limit the best plan beside its goals."""
    found = []
    kv, clock = answer.limits.get("kv_share", 0.0), answer.limits.get("clock", 1.0)
    if kv >= FULL_CACHE:
        preempted = answer.limits.get("preemptions", 0)
        found.append("memory: the KV cache is full at times" + (f", {preempted:,.0f} preemptions" if preempted else ""))
    if clock < FULL_CLOCK:
        found.append(f"power: the limit lowers the clock to {clock:.0%} of the highest")
    return [*found, *slot_lines(answer.limits, answer.best.ttft_s)]


def shown_times(answer: PlanReport) -> list[tuple[str, str]]:
    """The times that are shown: those of the goals, and the p90 of TTFT and TPOT where no goal names another."""
    named = [(goal.metric, goal.statistic) for goal in answer.goals]
    usual = [(metric, "p90") for metric in ("ttft", "tpot") if metric not in dict(named)]
    return sorted([*usual, *named], key=lambda pair: (METRICS.index(pair[0]), pair[1]))


def figures(answer: PlanReport) -> list[Headline]:
    """Of the best plan: its price, what a million tokens cost, and the times of the goals."""
    best = PlanLine.of(answer.best)
    return [*prices(best), *times(best, shown_times(answer))]


def prices(plan: PlanLine) -> list[Headline]:
    """By the hour, and by a million output tokens where that is known."""
    cost = [] if plan.usd_per_mtok is None else [Headline("cost", f"{format_money(plan.usd_per_mtok)}/Mtok")]
    return [Headline("price", f"{format_money(plan.usd_h)}/h"), *cost]


def times(plan: PlanLine, shown: list[tuple[str, str]]) -> list[Headline]:
    """The times of a plan that are shown, with their intervals where they are known."""
    return [_time(plan, metric, statistic) for metric, statistic in shown]


def _score(plan: PlanLine, shown: list[tuple[str, str]]) -> str:
    spent = [figure.value for figure in prices(plan)]
    return "   ".join([plan.label, *spent, *(f"{time.name} {time}" for time in times(plan, shown))])


def _time(plan: PlanLine, metric: str, statistic: str) -> Headline:
    name, value = f"{metric.upper()} {statistic}", known(plan.times.get(metric, {}).get(statistic))
    if value is None:
        return Headline(name, "-")
    estimate = plan.predicted.get(f"{metric}_s", {}).get(statistic)
    return Headline(name, format_duration(value), band(estimate) if estimate else "")


def changed_lines(answer: PlanReport) -> list[str]:
    """Number format and context, where the plan changes them."""
    plan, own = answer.best.plan, answer.model_dtype
    longest, context = answer.plan_context, answer.model_context
    told = []
    if own and own != plan.dtype:
        told.append(f"weights in {plan.dtype}, the model's are in {own}: quality changes")
    if WIDTH.get(plan.kv_dtype, WIDTH["bf16"]) < WIDTH["bf16"]:
        told.append(f"KV cache in {plan.kv_dtype}: quality changes")
    if longest and context and longest < context:
        told.append(f"sequences up to {longest:,} tokens, the model's context is {context:,}")
    return told


def energy_lines(best: PlanScore) -> list[str]:
    energy = known(best.wh_per_mtok)
    drawn = interval(best.predicted.get("wh_per_mtok"), digits)
    spent = "" if energy is None else f", {' '.join(filter(None, [f'{digits(energy)} Wh/Mtok', drawn]))}"
    return [f"{digits(best.power_w)} W at this load{spent}; $ and Wh per million output tokens"]


def headroom_lines(answer: PlanReport) -> list[str]:
    most, plan = answer.best.max_rate_per_s, answer.best.plan
    if most is None:
        return []
    asked = plan.load.rate_per_s if isinstance(plan.load, ServingLoad) else None
    now = asked or plan.predicted.get("rate_per_s")
    what = "meets the goals up to" if answer.goals else "sustains"
    drawn = interval(answer.best.predicted.get("rate_per_s"), digits)
    if drawn:  # planned for this very rate
        return [f"{what} {digits(most)} req/s {drawn}"]
    return [f"{what} {digits(most)} req/s" + (f" (now {digits(now)})" if now else "")]


RATE_TIMES = ("p50", "p90", "p99")
RATE_HEAD = ("req/s", "TTFT p50", "p90", "p99", "TPOT p50", "p90", "p99", "tokens/s", "meets the goals")


def rate_rows(answer: PlanReport) -> list[tuple[str, ...]]:
    """The best plan at each of the rates it was simulated at."""
    return [
        (
            digits(point["rate_per_s"]),
            *(seconds_word(times.get(name)) for times in (point["ttft_s"], point["tpot_s"]) for name in RATE_TIMES),
            digits(point["output_tokens_per_s"]),
            "yes" if point["meets"] else "no",
        )
        for point in answer.by_rate
    ]


def _by_rate(answer: PlanReport, style: Style) -> list[str]:
    return ["", *headed([RATE_HEAD, *rate_rows(answer)], ">>>>>>>><", style)] if answer.by_rate else []


LEAST_CHANGE = 0.005
SENSITIVITY_HEAD = ("if", "now", "the plan holds", "", "then the best is", "price")


def sensitivity_rows(answer: PlanReport) -> list[tuple[str, ...]]:
    """Each input: how far the best plan holds, and what the best plan is beyond."""
    return [_otherwise_row(one, answer.best.usd_h) for one in answer.sensitivity]


def _otherwise_row(one: Sensitivity, usd_h: float) -> tuple[str, ...]:
    name, other = one["input"], one["next"]
    end = one["holds_to"]
    to = "up to" if one["factor"] >= 1 else "down to"
    if end is None:
        tried = f"{to} {one['factor']:.3g}x and beyond" if one["factor"] else "even without"
        held, times = "whatever it is" if name.startswith("price") else tried, ""
    else:
        held, times = f"{to} {_input_value(name, end)}", f"{one['factor']:.2f}x"
    if "label" not in other:
        return name, _input_value(name, one["now"]), held, times, _goals(other.get("why", "")), ""
    share = other["usd_h"] / usd_h - 1 if usd_h and not name.startswith("price") else 0.0
    change = f"{share:+.0%}" if abs(share) >= LEAST_CHANGE else "as much"
    return (
        name,
        _input_value(name, one["now"]),
        held,
        times,
        other["label"],
        f"{format_money(other['usd_h'])}/h, {change}",
    )


def _input_value(name: str, value: float) -> str:
    if name == "rate":
        return f"{digits(value)} req/s"
    if name.endswith("length"):
        return f"{value:,.0f} tokens"
    return f"{format_money(value)}/h" if name.startswith("price") else f"{value:.0%}"


def _sensitivity(answer: PlanReport, style: Style) -> list[str]:
    rows = sensitivity_rows(answer)
    return ["", *headed([SENSITIVITY_HEAD, *rows], "<><><<", style)] if rows else []


def binding_lines(answer: PlanReport) -> list[str]:
    other = answer.next_cheaper
    why, label = other.get("why", ""), other.get("label", "")
    cheaper = f"the next cheaper plan, {label} at {format_money(other['usd_h'])}/h, {why}" if label else why
    binding = "the load, there are no goals" if answer.binding == "load" else answer.binding
    return [_goals("; ".join(filter(None, [binding, *limit_lines(answer), cheaper])))]


def beside_best(answer: PlanReport) -> list[tuple[str, Mapping[str, Any]]]:
    """The runner-up, and the best plan with another chip, other degrees or another number format where the runner-up
    has none; alone where the runner-up is the best with other step budgets."""
    second, other = answer.runner_up, answer.alternative
    if "label" not in other:
        return [("runner-up", second)]
    return [("runner-up", other)] if second.get("only_budgets") else [("runner-up", second), ("other", other)]


def beside_lines(answer: PlanReport, shown: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (name, f"{_score(PlanLine.of(one), shown)}: {_goals(one['why'])}" if "label" in one else one.get("why", "none"))
        for name, one in beside_best(answer)
    ]


def near_tie_lines(answer: PlanReport) -> list[str]:
    """Plans that cost hardly more, but for those that have their own line."""
    listed = (answer.runner_up.get("label"), answer.alternative.get("label"))
    ties = [tie for tie in answer.near_ties if tie["label"] not in listed]
    price = answer.best.usd_h
    return [
        f"{tie['label']}   {format_money(tie['usd_h'])}/h, {tie['usd_h'] / price - 1:+.0%}: {', '.join(tie['buys'])}"
        for tie in ties[:MOST_TIES]
    ]


def _goals(text: str) -> str:
    return _GOAL.sub(lambda match: f"{match[1].upper()} {match[2]}", text)


def also_lines(answer: PlanReport, shown: list[tuple[str, str]]) -> list[str]:
    """Other ends of the Pareto set, each named by all it is best at of the plans that were run."""
    names: dict[str, tuple[PlanScore, list[str]]] = {}
    for name, figure in ALSO:
        now = figure(answer.best)
        usable = [(found, score) for score in answer.pareto if score.feasible and (found := figure(score)) is not None]
        least, other = min(usable, key=lambda pair: pair[0], default=(0.0, None))
        if other is not None and now is not None and least < (1 - WORTH_TELLING) * now:
            names.setdefault(other.label, (other, []))[1].append(name)
    told = [f"{', '.join(what)}: {_score(PlanLine.of(score), shown)}" for score, what in names.values()]
    return [f"of the simulated plans, {told[0]}", *told[1:]] if told else []
