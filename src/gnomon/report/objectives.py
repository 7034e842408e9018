"""What `gnomon plan train` looked for, and what it compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.report.text import plural
from gnomon.spec.answers import TrainingPlanReport
from gnomon.units import format_bytes, format_count, format_duration, format_money, format_short_count

FASTEST = "fastest"
WORDS = {
    "fastest": "fastest run", "fewest-gpus": "fewest GPUs", "cheapest": "cheapest run", "most-tokens": "most tokens",
    "longest-context": "longest sequences", "largest-model": "largest model",
}  # fmt: skip
NAMED = ("cluster", "seq", "model")
"""What compared rows differ in."""


def goal_lines(answer: TrainingPlanReport) -> list[tuple[str, str]]:
    """The objective with its value, then what was compared; nothing where the fastest of one cluster was asked for."""
    found = answer.objective
    if not found or (found["name"] == FASTEST and not found["limits"] and not found["compared"]):
        return []
    words = WORDS.get(found["name"], found["name"])
    limits = f" within {' and '.join(_limits(found['limits']))}" if found["limits"] else ""
    rows = [("compared" if not place else "", _row(one, found["unit"])) for place, one in enumerate(found["compared"])]
    return [("objective", f"{words}{limits}: {_value(found['value'], found['unit'])}{_of(answer)}"), *rows]


def _limits(limits: Mapping[str, float]) -> Iterator[str]:
    if "deadline_s" in limits:
        yield format_duration(limits["deadline_s"])
    if "budget_usd" in limits:
        yield format_money(limits["budget_usd"])


def _of(answer: TrainingPlanReport) -> str:
    return f" of {format_count(answer.resolved.count)}" if answer.objective["unit"] == "GPUs" else ""


def _value(value: float, unit: str) -> str:
    if unit == "USD":
        return format_money(value)
    if unit == "GPUs":
        return plural(round(value), "GPU")
    if unit == "parameters":
        return f"{format_short_count(value)} parameters"
    if unit == "tokens":
        return f"{format_short_count(value)} tokens"
    if unit == "tokens of a sequence":
        return f"{format_count(value)} tokens"
    return f"{format_duration(value)}{' per step' if unit.endswith('per step') else ''}"


def _row(row: Mapping[str, Any], unit: str) -> str:
    name = next(f"{format_count(row[key])} tokens" if key == "seq" else str(row[key]) for key in NAMED if key in row)
    return f"{name}: {row['why']}" if "why" in row else f"{name}: {_value(row['value'], unit)}, {row['label']}"


def mixture_lines(answer: TrainingPlanReport) -> list[tuple[str, str]]:
    """What each kind of chips does."""
    lines = []
    for place, part in enumerate(answer.mixture.get("parts", ())):
        taken = (
            f"{plural(part['replicas'], 'replica')} of {plural(part['micro_batches'], 'micro-batch', 'micro-batches')}"
        )
        sizes = " of ".join(format_bytes(part[f"{name}_memory_bytes"]) for name in ("peak", "usable"))
        text = f"{part['cluster']}: {taken}, {format_duration(part['step_time_s'])}, memory {sizes} usable"
        lines.append(("" if place else "together", text))
    return lines
