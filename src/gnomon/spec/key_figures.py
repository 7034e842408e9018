"""The figures that answers of each command are shown, swept and compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SERVING_PLAN, TRAINING_PLAN = "serving plan", "training plan"
"""Kinds of plans, whose figures are those of one load or one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """A figure that answers are compared by: its name, where it stands in the JSON, and its unit."""

    name: str
    path: str
    unit: str = ""
    """`s`, `bytes`, `usd`, `share`, or what stands behind a plain number."""
    higher_is_better: bool | None = False
    """None where neither is."""

    @property
    def description(self) -> dict[str, Any]:
        """What a report of many answers says of it."""
        return {"figure": self.name, "unit": self.unit, "higher_is_better": self.higher_is_better}

    def of(self, answer: Any) -> Any:
        """Its value in an answer: a number, a text, true or false, an estimate, or None."""
        found = answer
        for key in self.path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


_TIMES = tuple(
    KeyFigure(name=f"{metric.upper()} {statistic}", path=f"{metric}_s.{statistic}", unit="s")
    for metric in ("ttft", "tpot", "e2e")
    for statistic in ("p50", "p90", "p99")
)
_STEP = (
    KeyFigure(name="step time", path="step_time_s", unit="s"),
    KeyFigure(name="MFU", path="mfu", unit="share", higher_is_better=True),
    KeyFigure(name="tokens/s per GPU", path="tokens_per_s_per_gpu", higher_is_better=True),
    KeyFigure(name="peak memory", path="peak_memory_bytes", unit="bytes"),
    KeyFigure(name="cost of a step", path="cost_usd", unit="usd"),
    KeyFigure(name="energy of a step", path="energy_j", unit="J"),
    KeyFigure(name="days", path="run.days"),
    KeyFigure(name="cost of the run", path="run.cost_usd", unit="usd"),
    KeyFigure(name="goodput", path="reliability.goodput", unit="share", higher_is_better=True),
)


def _inside(path: str, figures: tuple[KeyFigure, ...]) -> tuple[KeyFigure, ...]:
    return tuple(
        KeyFigure(name=one.name, path=f"{path}.{one.path}", unit=one.unit, higher_is_better=one.higher_is_better)
        for one in figures
    )


_SERVED = (
    KeyFigure(name="tokens/s", path="output_tokens_per_s", higher_is_better=True),
    KeyFigure(name="$/Mtok", path="usd_per_mtok", unit="usd"),
)
FITS = KeyFigure(name="fits", path="fits", higher_is_better=True)
"""Of whatever is given a memory to fit in."""
KEY_FIGURES: Mapping[str, tuple[KeyFigure, ...]] = {
    "predict": (
        KeyFigure(name="step time", path="time_s", unit="s"),
        KeyFigure(name="tokens/s", path="tokens_per_s", higher_is_better=True),
        KeyFigure(name="memory", path="memory_bytes", unit="bytes"),
        KeyFigure(name="energy", path="energy_j", unit="J"),
        KeyFigure(name="cost", path="cost_usd", unit="usd"),
        FITS,
    ),
    "fit": (
        FITS,
        KeyFigure(name="longest context", path="max_context", higher_is_better=True),
        KeyFigure(name="sequences", path="max_batch", higher_is_better=True),
        KeyFigure(name="margin", path="margin_bytes", unit="bytes", higher_is_better=True),
        KeyFigure(name="KV tokens", path="kv_tokens", higher_is_better=True),
    ),
    "simulate serve": (
        *_TIMES,
        *_SERVED,
        KeyFigure(name="power", path="power_w", unit="W"),
        KeyFigure(name="preemptions", path="preemptions"),
    ),
    "simulate train": _STEP,
    "plan serve": (
        KeyFigure(name="best plan", path="best.label", higher_is_better=None),
        *_inside("best", (*_SERVED, KeyFigure(name="$/h", path="usd_h", unit="usd"), *_TIMES)),
    ),
    "plan train": (KeyFigure(name="best plan", path="label", higher_is_better=None), *_inside("best", _STEP)),
    SERVING_PLAN: (
        *_inside("predicted", (*_TIMES, *_SERVED)),
        KeyFigure(name="$/h", path="usd_h", unit="usd"),
        KeyFigure(name="Wh/Mtok", path="predicted.wh_per_mtok"),
        KeyFigure(name="power", path="predicted.power_w", unit="W"),
        KeyFigure(name="meets the goals", path="feasible", higher_is_better=True),
    ),
    TRAINING_PLAN: (*_STEP, FITS),
    "try": (
        KeyFigure(name="gain", path="gain", unit="x", higher_is_better=True),
        KeyFigure(name="step without", path="plain.step_time_s", unit="s"),
        KeyFigure(name="step with", path="applied.step_time_s", unit="s"),
        KeyFigure(name="memory saved", path="memory_saved_bytes", unit="bytes", higher_is_better=True),
    ),
}
"""By command, or kind of plan, the most telling first."""
