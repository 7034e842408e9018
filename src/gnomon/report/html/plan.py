"""The page of `gnomon plan serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.figures import Headline, interval
from gnomon.report.html.blocks import Drawing, Listing, Page, PageBlock, inputs_table, notes, plain, table
from gnomon.report.html.svg import Point, scatter
from gnomon.report.plan import (
    ROUTED,
    binding_lines,
    changed_lines,
    energy_lines,
    figures,
    headroom_lines,
    near_tie_lines,
    prices,
    runner_up_lines,
    searched_words,
    shown_times,
    times,
)
from gnomon.report.text import digits
from gnomon.units import format_count, format_duration, format_money

Payload = Mapping[str, Any]
TIMES = (("ttft", "p90"), ("tpot", "p90"), ("e2e", "p90"))


def page(payload: Payload) -> Page:
    best, shown = payload["best"], shown_times(payload)
    several = best["plan"]["replicas"] > 1
    return Page(
        title=payload["title"],
        subtitle=searched_words(payload),
        verdict=f"best: {best['label']}",
        good=True,
        figures=[*figures(payload), _throughput(best), _energy(best)],
        blocks=[
            *_plot(payload),
            *_goals(payload),
            *_plans(payload, shown),
            *notes("Why it won", _reasons(payload, shown)),
            *notes("Requests", [ROUTED[payload["router"]]] if several else []),
            *notes("Chips left out", [f"{chip}: {why}" for chip, why in payload.get("left_out", {}).items()]),
            *_rejected(payload["rejected"]),
            *_run(payload),
            *inputs_table({name: value for name, value in best["plan"].items() if name != "predicted"}, "The plan"),
        ],
    )


def _throughput(best: Payload) -> Headline:
    drawn = best["predicted"].get("output_tokens_per_s")
    return Headline("throughput", f"{digits(best['output_tokens_per_s'])} output tokens/s", interval(drawn, digits))


def _energy(best: Payload) -> Headline:
    drawn = best["predicted"].get("wh_per_mtok")
    return Headline("energy", f"{digits(best['wh_per_mtok'])} Wh/Mtok", interval(drawn, digits))


def _plot(payload: Payload) -> list[PageBlock]:
    """Cost against latency of the plans of the Pareto set: the goal that binds, or the p90 of TPOT."""
    metric, _, statistic = str(payload["binding"]).partition("_")
    chosen = (metric, statistic) if (metric, statistic) in shown_times(payload) else ("tpot", "p90")
    key, name = f"{chosen[0]}_s", f"{chosen[0].upper()} {chosen[1]}"
    best = payload["best"]
    scores = [score for score in payload["pareto"] if score["label"] != best["label"]]
    points = [
        Point(
            score["label"], float(score["usd_per_mtok"]), float(score[key][chosen[1]]), score is best, score["feasible"]
        )
        for score in [best, *scores]
        if score.get("usd_per_mtok") is not None and score.get(key, {}).get(chosen[1]) is not None
    ]
    drawn = scatter(points, ("$/Mtok", format_money), (name, format_duration)) if points else ""
    return (
        [Drawing(f"Plans of the Pareto set: {name} by cost; orange is the best, hollow what misses a goal", drawn)]
        if drawn
        else []
    )


def _goals(payload: Payload) -> list[PageBlock]:
    margins = payload["best"].get("margin") or {}
    rows = []
    for goal in payload["goals"]:
        metric, _, statistic = goal["name"].partition("_")
        figure = times(payload["best"], [(metric, statistic)])[0]
        spare = f"{margins[goal['name']]:.0%}" if isinstance(margins.get(goal["name"]), (int, float)) else ""
        rows.append((figure.name, format_duration(goal["limit_s"]), figure.value, figure.band, spare))
    return table("Goals", ("goal", "limit", "predicted", "interval", "to spare"), rows, "<>>>>")


def _plans(payload: Payload, shown: Sequence[tuple[str, str]]) -> list[PageBlock]:
    """The best plan, the runner-up, near ties, the next cheaper plan and the Pareto set, each once."""
    best, second = payload["best"], payload["runner_up"] or {}
    listed = [("best", best)]
    listed += [("runner-up", second)] if "label" in second else []
    cheaper = payload.get("next_cheaper") or {}
    listed += [("next cheaper", cheaper)] if "label" in cheaper else []
    listed += [("near tie", tie) for tie in payload.get("near_ties", ())]
    listed += [("Pareto set", score) for score in payload["pareto"]]
    rows, seen = [], set()
    columns = list(dict.fromkeys([*shown, *TIMES[:2]]))
    for what, score in listed:
        if score["label"] in seen:
            continue
        seen.add(score["label"])
        price, cost = ([figure.value for figure in prices(score)] + [""])[:2]
        energy = digits(score["wh_per_mtok"]) if score.get("wh_per_mtok") is not None else ""
        meets = {True: "yes", False: "no", None: ""}[score.get("feasible")]
        rows.append((what, score["label"], price, cost, energy, *map(str, times(score, columns)), meets))
    names = tuple(f"{metric.upper()} {statistic}" for metric, statistic in columns)
    head = ("", "plan", "price", "cost", "Wh/Mtok", *names, "meets the goals")
    return table("Plans and what they cost", head, rows, "<<>>>" + ">" * len(names) + "<")


def _reasons(payload: Payload, shown: list[tuple[str, str]]) -> list[str]:
    told = [*energy_lines(payload["best"]), *changed_lines(payload), *headroom_lines(payload)]
    told += [f"binding: {text}" for text in binding_lines(payload)]
    told += [f"runner-up: {text}" for text in runner_up_lines(payload, shown)]
    return told + [f"near tie: {text}" for text in near_tie_lines(payload)]


def _rejected(counts: Mapping[str, int]) -> list[PageBlock]:
    rows = [(reason, format_count(count)) for reason, count in counts.items()]
    return table("Plans that were not chosen", ("why", "plans"), rows, "<>")


def _run(payload: Payload) -> list[PageBlock]:
    """What starts it, and what is not in the command."""
    needed = [plain(text) for text in payload.get("left_to_you", ())]
    replicas = int(payload["best"]["plan"]["replicas"])
    each = f", once for each of the {replicas:,} replicas" if replicas > 1 else ""
    shown: list[PageBlock] = [Listing(f"Run it{each}", payload["command"])] if payload["command"] else []
    return [*shown, *notes("Not in the command", needed)]
