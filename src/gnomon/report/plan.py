"""The text of `gnomon plan serve`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gnomon.report.text import Style, next_steps
from gnomon.units import format_count, format_duration, format_money

_GOAL = re.compile(r"\b(ttft|tpot|e2e)_(mean|p\d+)\b")
ALSO: tuple[tuple[str, Callable[[Mapping[str, Any]], float | None]], ...] = (
    ("cheapest", lambda score: score["usd_per_mtok"]),
    ("least energy", lambda score: score["wh_per_mtok"]),
    ("lowest TTFT", lambda score: score["ttft_s"].get("p90")),
    ("lowest TPOT", lambda score: score["tpot_s"].get("p90")),
)
"""What another plan of the Pareto set may be best at; less is better."""
WORTH_TELLING = 0.05
"""Share by which it must be better than the chosen plan."""


def render(payload: Mapping[str, Any], style: Style) -> str:
    searched = (
        f"searched {format_count(payload['plans_considered'])} plans in {format_duration(payload['seconds'])}: "
        f"{format_count(payload['plans_fit'])} fit, {format_count(payload['plans_simulated'])} simulated "
        f"with {format_count(payload['requests_simulated'])} requests each"
    )
    best = payload["best"]
    lines = [style.strong(payload["title"]), searched, "", _line("best", _score(best), style.strong)]
    lines += [_line("holds", text) for text in _holds(payload)]
    lines += [_line("binding", text) for text in _binding(payload)]
    lines += [_line("also" if index == 0 else "", text) for index, text in enumerate(_also(payload))]
    lines += [_line("left out", f"{chip}: {why}") for chip, why in payload.get("left_out", {}).items()]
    lines += ["", _line("run it:", payload["command"])]
    lines += [*(_line("needs", text) for text in payload.get("left_to_you", ())), ""]
    more = ("gnomon export last --to vllm --out deploy", "gnomon export last --to kubernetes", "gnomon explain last")
    return "\n".join([*lines, *next_steps(*more)])


def _line(label: str, text: str, emphasis: Any = str) -> str:
    return f"  {label:<9} {emphasis(text)}"


def _score(score: Mapping[str, Any]) -> str:
    figures = [score["label"], f"{format_money(score['usd_h'])}/h", f"{format_money(score['usd_per_mtok'])}/Mtok"]
    figures += [_goal_time(score, "ttft_s", "TTFT"), _goal_time(score, "tpot_s", "TPOT")]
    return "   ".join(figures)


def _goal_time(score: Mapping[str, Any], key: str, name: str) -> str:
    value = score[key].get("p90")
    return f"{name} p90 {format_duration(value) if value is not None else '-'}"


def _holds(payload: Mapping[str, Any]) -> list[str]:
    most = payload["best"].get("max_rate_per_s")
    if most is None:
        return []
    load = payload["best"]["plan"].get("load") or {}
    now = load.get("rate_per_s")
    what = "the goals up to" if payload["goals"] else "up with"
    return [f"{what} {most:.3g} req/s" + (f" (now {now:.3g})" if now else "")]


def _binding(payload: Mapping[str, Any]) -> list[str]:
    other = payload["runner_up"] or {}
    why, label = other.get("why", ""), other.get("label", "")
    cheaper = other.get("usd_h") is not None and other["usd_h"] < payload["best"]["usd_h"]
    place = "the next cheaper plan" if cheaper else "the second best"
    second = f"{place}, {label}, {why}" if why and label else why
    binding = "the load alone, there are no goals" if payload["binding"] == "load" else payload["binding"]
    said = "; ".join(filter(None, [binding, second]))
    return [_GOAL.sub(lambda match: f"{match[1].upper()} {match[2]}", said)] if said else []


def _also(payload: Mapping[str, Any]) -> list[str]:
    """Other ends of the Pareto set, each named by all it is best at."""
    best = payload["best"]
    names: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for name, figure in ALSO:
        now = figure(best)
        usable = [score for score in payload["pareto"] if score["feasible"] and figure(score) is not None]
        other = min(usable, key=lambda score: figure(score) or 0.0, default=None)
        if other is not None and now is not None and (figure(other) or 0.0) < (1 - WORTH_TELLING) * now:
            names.setdefault(other["label"], (other, []))[1].append(name)
    return [f"{', '.join(what)}: {_score(score)}" for score, what in names.values()]
