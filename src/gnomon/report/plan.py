"""The text of `gnomon plan serve`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.text import Style, next_steps
from gnomon.units import format_count, format_duration, format_money

_GOAL = re.compile(r"\b(ttft|tpot|e2e)_(mean|p\d+)\b")
OBJECTIVES = (
    ("cheapest", "usd_per_mtok", 1),
    ("most throughput", "output_tokens_per_s", -1),
    ("least energy", "wh_per_mtok", 1),
)


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
    lines += ["", _line("run it:", payload["command"]), ""]
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
    return [f"the goals up to {most:.3g} req/s" + (f" (now {now:.3g})" if now else "")]


def _binding(payload: Mapping[str, Any]) -> list[str]:
    other = payload["runner_up"] or {}
    why, label = other.get("why", ""), other.get("label", "")
    cheaper = other.get("usd_h") is not None and other["usd_h"] < payload["best"]["usd_h"]
    place = "the next cheaper plan" if cheaper else "the second best"
    second = f"{place}, {label}, {why}" if why and label else why
    said = "; ".join(filter(None, [payload["binding"], second]))
    return [_GOAL.sub(lambda match: f"{match[1].upper()} {match[2]}", said)] if said else []


def _also(payload: Mapping[str, Any]) -> list[str]:
    """Other ends of the Pareto set, each named by what it is best at."""
    best = payload["best"]["label"]
    found: list[tuple[str, str]] = []
    for name, key, sign in OBJECTIVES:
        other = _extreme(payload["pareto"], key, sign)
        if other is not None and other["label"] not in (best, *(label for _, label in found)):
            found.append((f"{name}: {_score(other)}", other["label"]))
    return [text for text, _ in found]


def _extreme(scores: Sequence[Mapping[str, Any]], key: str, sign: int) -> Mapping[str, Any] | None:
    usable = [score for score in scores if score["feasible"] and score.get(key) is not None]
    return min(usable, key=lambda score: sign * float(score[key]), default=None)
