"""The text of `gnomon plan serve`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, band, digits, next_steps
from gnomon.spec.workload import METRICS
from gnomon.units import format_count, format_duration, format_money

_GOAL = re.compile(r"\b(ttft|tpot|e2e)_(mean|p\d+)\b")
ALSO: tuple[tuple[str, Callable[[Mapping[str, Any]], float | None]], ...] = (
    ("cheapest", lambda score: score["usd_per_mtok"]),
    ("lowest energy", lambda score: score["wh_per_mtok"]),
    ("lowest TTFT", lambda score: score["ttft_s"].get("p90")),
    ("lowest TPOT", lambda score: score["tpot_s"].get("p90")),
)
"""What another plan of the Pareto set may be best at; less is better."""
WORTH_TELLING = 0.05
"""Share by which it must be better than the chosen plan."""
MOST_TIES = 3


ROUTED = {
    "random": "requests are assigned to replicas at random, as a Kubernetes Service does it",
    "round-robin": "requests are assigned to replicas round-robin",
    "least-requests": "each request goes to the replica with the fewest unfinished ones",
}


def render(payload: Mapping[str, Any], style: Style) -> str:
    best = payload["best"]
    shown = shown_times(payload)
    lines = [
        style.strong(payload["title"]),
        searched_words(payload),
        "",
        _line("best", _score(best, shown), style.strong),
    ]
    lines += [_line("", text) for text in [*energy_lines(best), *changed_lines(payload)]]
    lines += [_line("headroom", text) for text in headroom_lines(payload)]
    lines += [_line("binding", text) for text in binding_lines(payload)]
    lines += [_line("runner-up", text) for text in runner_up_lines(payload, shown)]
    lines += [_line("near tie", text) for text in near_tie_lines(payload)]
    lines += [_line("also" if index == 0 else "", text) for index, text in enumerate(also_lines(payload, shown))]
    lines += [_line("left out", f"{chip}: {why}") for chip, why in payload.get("left_out", {}).items()]
    lines += [_line("router", ROUTED[payload["router"]])] if best["plan"]["replicas"] > 1 else []
    lines += ["", _line("run it:", payload["command"])] if payload["command"] else []
    several = payload["command"] and best["plan"]["replicas"] > 1
    lines += [_line("", f"once for each of the {best['plan']['replicas']:,} replicas")] if several else []
    lines += [*(_line("needs", text) for text in payload.get("left_to_you", ())), ""]
    exports = ("gnomon export last --to vllm --out deploy", "gnomon export last --to kubernetes")
    return "\n".join([*lines, *next_steps(*(exports if payload["command"] else ()), "gnomon explain last")])


def searched_words(payload: Mapping[str, Any]) -> str:
    considered, fit, ran = (format_count(payload[f"plans_{name}"]) for name in ("considered", "fit", "simulated"))
    most, judged = (format_count(payload[f"requests_{name}"]) for name in ("searched", "simulated"))
    return f"{considered} plans: {fit} fit, {ran} simulated with up to {most} requests, the best with {judged}"


def _line(label: str, text: str, emphasis: Any = str) -> str:
    return f"  {label:<9} {emphasis(text)}"


def shown_times(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The times that are shown: those of the goals, and the p90 of TTFT and TPOT where no goal names another."""
    named = [tuple(goal["name"].split("_")) for goal in payload["goals"]]
    usual = [(metric, "p90") for metric in ("ttft", "tpot") if metric not in dict(named)]
    return sorted([*usual, *named], key=lambda pair: (METRICS.index(pair[0]), pair[1]))


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """Of the best plan: its price, what a million tokens cost, and the times of the goals."""
    return [*prices(payload["best"]), *times(payload["best"], shown_times(payload))]


def prices(score: Mapping[str, Any]) -> list[Headline]:
    """By the hour, and by a million output tokens where that is known."""
    found = [Headline("price", f"{format_money(score['usd_h'])}/h")]
    return found + (
        [Headline("cost", f"{format_money(score['usd_per_mtok'])}/Mtok")] if "usd_per_mtok" in score else []
    )


def times(score: Mapping[str, Any], shown: list[tuple[str, str]]) -> list[Headline]:
    """The times of a plan that are shown, with their intervals where they are known."""
    return [_time(score, metric, statistic) for metric, statistic in shown]


def _score(score: Mapping[str, Any], shown: list[tuple[str, str]]) -> str:
    spent = [figure.value for figure in prices(score)]
    return "   ".join([score["label"], *spent, *(f"{time.name} {time}" for time in times(score, shown))])


def _time(score: Mapping[str, Any], metric: str, statistic: str) -> Headline:
    name, key = f"{metric.upper()} {statistic}", f"{metric}_s"
    value = score.get(key, {}).get(statistic)
    if value is None:
        return Headline(name, "-")
    estimate = score.get("predicted", {}).get(key, {}).get(statistic)
    return Headline(name, format_duration(value), band(estimate) if estimate else "")


def changed_lines(payload: Mapping[str, Any]) -> list[str]:
    """What the plan makes of the model beside cutting it."""
    plan, own = payload["best"]["plan"], payload.get("model_dtype")
    longest, context = plan["engine"]["settings"].get("max_model_len"), payload.get("model_context")
    told = []
    if own and own != plan["dtype"]:
        told.append(f"weights in {plan['dtype']}, the model's are in {own}: quality changes")
    if longest and context and longest < context:
        told.append(f"sequences up to {longest:,} tokens, the model takes {context:,}")
    return told


def energy_lines(best: Mapping[str, Any]) -> list[str]:
    watts, energy = best["power_w"], best["predicted"]["wh_per_mtok"]
    shown = f"{digits(best['wh_per_mtok'])} Wh/Mtok ({digits(energy['low'])} to {digits(energy['high'])}, 90%)"
    return [f"{digits(watts)} W at this load, {shown}; $ and Wh per million output tokens"]


def headroom_lines(payload: Mapping[str, Any]) -> list[str]:
    most = payload["best"].get("max_rate_per_s")
    if most is None:
        return []
    load = payload["best"]["plan"].get("load") or {}
    now = load.get("rate_per_s") or payload["best"]["plan"]["predicted"]["rate_per_s"]
    what = "meets the goals up to" if payload["goals"] else "sustains"
    return [f"{what} {digits(most)} req/s (now {digits(now)})"]


def binding_lines(payload: Mapping[str, Any]) -> list[str]:
    other = payload.get("next_cheaper") or {}
    why, label = other.get("why", ""), other.get("label", "")
    cheaper = f"the next cheaper plan, {label} at {format_money(other['usd_h'])}/h, {why}" if label else why
    binding = "the load alone, there are no goals" if payload["binding"] == "load" else payload["binding"]
    return [_goals("; ".join(filter(None, [binding, cheaper])))]


def runner_up_lines(payload: Mapping[str, Any], shown: list[tuple[str, str]]) -> list[str]:
    other = payload["runner_up"] or {}
    return [f"{_score(other, shown)}: {_goals(other['why'])}" if "label" in other else str(other.get("why", "none"))]


def near_tie_lines(payload: Mapping[str, Any]) -> list[str]:
    """Plans that cost hardly more, but for the runner-up, which has its own line."""
    told = (payload["runner_up"] or {}).get("label")
    ties = [tie for tie in payload.get("near_ties") or () if tie["label"] != told]
    price = float(payload["best"]["usd_h"])
    return [
        f"{tie['label']}   {format_money(tie['usd_h'])}/h, {tie['usd_h'] / price - 1:+.0%}: {', '.join(tie['buys'])}"
        for tie in ties[:MOST_TIES]
    ]


def _goals(text: str) -> str:
    return _GOAL.sub(lambda match: f"{match[1].upper()} {match[2]}", text)


def also_lines(payload: Mapping[str, Any], shown: list[tuple[str, str]]) -> list[str]:
    """Other ends of the Pareto set, each named by all it is best at of the plans that were run."""
    best = payload["best"]
    names: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for name, figure in ALSO:
        now = figure(best)
        usable = [score for score in payload["pareto"] if score["feasible"] and figure(score) is not None]
        other = min(usable, key=lambda score: figure(score) or 0.0, default=None)
        if other is not None and now is not None and (figure(other) or 0.0) < (1 - WORTH_TELLING) * now:
            names.setdefault(other["label"], (other, []))[1].append(name)
    told = [f"{', '.join(what)}: {_score(score, shown)}" for score, what in names.values()]
    return [f"of the plans that were run, {told[0]}", *told[1:]] if told else []
