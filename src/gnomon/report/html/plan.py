"""The page of `gnomon plan serve`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gnomon.report.figures import Headline, interval
from gnomon.report.html.blocks import Drawing, Listing, Page, PageBlock, Panels, inputs_table, notes, table
from gnomon.report.html.lines import Line, Mark, PlotAxis, line_plot
from gnomon.report.html.svg import Point, scatter
from gnomon.report.plan import (
    RATE_HEAD,
    RATE_TIMES,
    ROUTED,
    SENSITIVITY_HEAD,
    PlanLine,
    axes_words,
    beside_best,
    beside_lines,
    binding_lines,
    changed_lines,
    energy_lines,
    figures,
    headroom_lines,
    near_tie_lines,
    prices,
    rate_rows,
    run_lines,
    searched_words,
    sensitivity_rows,
    shown_times,
    times,
    weighed_lines,
)
from gnomon.report.serve import crossing_lines
from gnomon.report.text import digits, folder_of, known
from gnomon.spec.answers import PlanReport, PlanScore
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.workload import ServingLoad
from gnomon.units import format_count, format_duration, format_money

TALLEST = 4.0
"""Latency against rate is drawn up to so many times the largest goal."""
TIMES = (("ttft", "p90"), ("tpot", "p90"), ("e2e", "p90"))


def page(answer: PlanReport) -> Page:
    best, shown = answer.best, shown_times(answer)
    several = bool(best.plan.pools) or best.plan.replicas > 1
    return Page(
        title=answer.title,
        subtitle=": ".join([searched_words(answer), *([axes_words(answer)] if answer.axes else [])]),
        verdict=f"best: {best.label}",
        good=True,
        figures=[*figures(answer), _throughput(best), _energy(best)],
        blocks=[
            *_by_rate(answer),
            *_plots(answer),
            *table("If an input is otherwise", SENSITIVITY_HEAD, sensitivity_rows(answer), "<><><<"),
            *_goals(answer),
            *_plans(answer, shown),
            *notes("Why it won", _reasons(answer, shown)),
            *notes("Requests", [ROUTED[answer.router]] if several else []),
            *notes("Techniques weighed", weighed_lines(answer)),
            *notes("Chips left out", [f"{chip}: {why}" for chip, why in answer.left_out.items()]),
            *_rejected(answer.rejected),
            *_run(answer),
            *inputs_table(
                {name: value for name, value in plan_to_dict(best.plan).items() if name != "predicted"}, "The plan"
            ),
        ],
    )


def _throughput(best: PlanScore) -> Headline:
    drawn = best.predicted.get("output_tokens_per_s")
    return Headline("throughput", f"{digits(best.output_tokens_per_s)} output tokens/s", interval(drawn, digits))


def _energy(best: PlanScore) -> Headline:
    found, drawn = known(best.wh_per_mtok), best.predicted.get("wh_per_mtok")
    return Headline("energy", "-" if found is None else f"{digits(found)} Wh/Mtok", interval(drawn, digits))


def _by_rate(answer: PlanReport) -> list[PageBlock]:
    """Latency against rate of the best plan, with the rate that is asked for, the highest one, and the goals."""
    if not answer.by_rate:
        return []
    most = answer.best.max_rate_per_s
    head = "Latency against rate" + (f": meets the goals up to {digits(most)} req/s" if most else "")
    return [Panels(head, rate_plots(answer)), *table("", RATE_HEAD, rate_rows(answer), ">>>>>>>><")]


def rate_plots(answer: PlanReport) -> list[str]:
    """TTFT and TPOT of the best plan against the rate."""
    load, most = answer.best.plan.load, answer.best.max_rate_per_s
    asked = load.rate_per_s if isinstance(load, ServingLoad) else None
    where = [Mark(name=name, x=rate) for name, rate in (("now", asked), ("highest", most)) if rate]
    return [_rate_plot(answer, metric, where) for metric in ("ttft", "tpot")]


def _rate_plot(answer: PlanReport, metric: str, where: list[Mark]) -> str:
    rates = [point["rate_per_s"] for point in answer.by_rate]
    times = [point["ttft_s"] if metric == "ttft" else point["tpot_s"] for point in answer.by_rate]
    lines = [Line(name=name, xs=rates, ys=[known(each.get(name)) for each in times], dots=True) for name in RATE_TIMES]
    goals = [goal for goal in answer.goals if goal.metric == metric]
    tallest = max((value for line in lines for value in line.ys if value is not None), default=1.0)
    limit = TALLEST * max((goal.limit_s for goal in goals), default=math.inf)
    marks = [Mark(name=f"goal {goal.statistic}", y=goal.limit_s) for goal in goals]
    x = PlotAxis(name="requests per second", shown=digits)
    y = PlotAxis(name="", shown=format_duration, last=limit if limit < tallest else None)
    return line_plot(f"{metric.upper()} of the best plan", lines, x, y, [*where, *marks])


def _plots(answer: PlanReport) -> list[PageBlock]:
    """Cost against latency of the plans of the Pareto set: the goal that binds, and TPOT or TTFT beside it."""
    binding = tuple(answer.binding.split("_"))
    first = (binding[0], binding[1]) if len(binding) == 2 and binding in shown_times(answer) else ("tpot", "p90")
    beside = ("ttft", "p90") if first[0] != "ttft" else ("tpot", "p90")
    return [*_plot(answer, *first), *_plot(answer, *beside)]


def _plot(answer: PlanReport, metric: str, statistic: str) -> list[PageBlock]:
    best, name = answer.best, f"{metric.upper()} {statistic}"
    points = []
    for score in [best, *(score for score in answer.pareto if score.label != best.label)]:
        plan = PlanLine.of(score)
        cost, seconds = plan.usd_per_mtok, known(plan.times[metric].get(statistic))
        if cost is not None and seconds is not None:
            points.append(Point(plan.label, cost, seconds, score is best, score.feasible, _short(score)))
    title = f"Plans of the Pareto set: {name} by cost; orange is the best, hollow what misses a goal"
    axes = ("$/Mtok", format_money), (name, format_duration)
    return [Drawing(title, scatter(points, *axes))] if points else []


def _short(score: PlanScore) -> str:
    """A plan without its step budgets."""
    return score.label.partition(", chunked")[0].replace("(", "")


def _goals(answer: PlanReport) -> list[PageBlock]:
    rows = []
    for goal in answer.goals:
        figure = times(PlanLine.of(answer.best), [(goal.metric, goal.statistic)])[0]
        margin = known(answer.best.margin.get(goal.name))
        spare = "" if margin is None else f"{margin:.0%}"
        rows.append((figure.name, format_duration(goal.limit_s), figure.value, figure.band, spare))
    return table("Goals", ("goal", "limit", "predicted", "interval", "to spare"), rows, "<>>>>")


def _plans(answer: PlanReport, shown: list[tuple[str, str]]) -> list[PageBlock]:
    """The best plan, the runner-up, the best of another shape, the next cheaper plan, near ties and the Pareto set,
    each once."""
    beside = beside_best(answer)
    beside += [("next cheaper", answer.next_cheaper)]
    beside += [("near tie", tie) for tie in answer.near_ties]
    listed = [("best", PlanLine.of(answer.best))]
    listed += [(what, PlanLine.of(other)) for what, other in beside if "label" in other]
    listed += [("Pareto set", PlanLine.of(score)) for score in answer.pareto]
    rows, seen = [], set()
    columns = list(dict.fromkeys([*shown, *TIMES[:2]]))
    for what, plan in listed:
        if plan.label in seen:
            continue
        seen.add(plan.label)
        price, cost = ([figure.value for figure in prices(plan)] + [""])[:2]
        energy = "" if plan.wh_per_mtok is None else digits(plan.wh_per_mtok)
        meets = {True: "yes", False: "no", None: ""}[plan.feasible]
        rows.append((what, plan.label, price, cost, energy, *map(str, times(plan, columns)), meets))
    names = tuple(f"{metric.upper()} {statistic}" for metric, statistic in columns)
    head = ("", "plan", "price", "cost", "Wh/Mtok", *names, "meets the goals")
    return table("Plans and what they cost", head, rows, "<<>>>" + ">" * len(names) + "<")


def _reasons(answer: PlanReport, shown: list[tuple[str, str]]) -> list[str]:
    told = [*energy_lines(answer.best), *changed_lines(answer), *crossing_lines(answer.goal_results)]
    told += headroom_lines(answer)
    told += [f"binding: {text}" for text in binding_lines(answer)]
    told += [f"{name}: {text}" for name, text in beside_lines(answer, shown)]
    return told + [f"near tie: {text}" for text in near_tie_lines(answer)]


def _rejected(counts: Mapping[str, int]) -> list[PageBlock]:
    rows = [(reason, format_count(count)) for reason, count in counts.items()]
    return table("Plans that were not chosen", ("why", "plans"), rows, "<>")


def _run(answer: PlanReport) -> list[PageBlock]:
    """What starts it, and what is not in the command."""
    (command, more) = ([text for _, text in run_lines(answer, folder_of("deploy", answer.to_dict()))] + ["", ""])[:2]
    shown: list[PageBlock] = [Listing(f"Run it{f', {more}' if more else ''}", command)] if command else []
    return [*shown, *notes("Not in the command", answer.left_to_you)]
