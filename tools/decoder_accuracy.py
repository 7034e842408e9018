"""Predictions of the decoders of decoders.py beside what `decoder_steps.py` measured, as a table of docs/tracing.md.

python -m tools.decoder_accuracy

Writes the table again; needs PyTorch and transformers, no GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from tools.trace_accuracy import HOST_SHARE, ROOT, rewrite

import gnomon
from gnomon.catalog import model_config_path
from tools import decoders

BEGIN, END = "<!-- decoders: make modules -->\n", "<!-- end of decoders -->\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measured step and its prediction, in seconds."""

    case: decoders.Case
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    by_host: bool

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s


@cache
def steps() -> tuple[Step, ...]:
    found = []
    for path in sorted(ROOT.glob("measurements/*/decoders.json")):
        chip = str(json.loads(path.with_name("measured.json").read_text())["chip"])
        for row in json.loads(path.read_text())["rows"]:
            if "failed" not in row:
                found.append(_step(chip, row))
    return tuple(found)


@cache
def _network(model: str) -> torch.nn.Module:
    with torch.device("meta"):
        return decoders.network(json.loads(model_config_path(model).read_text()))


def _step(chip: str, row: dict[str, Any]) -> Step:
    case = decoders.Case(*(row[name] for name in ("model", "phase", "batch", "tokens", "context", "launch")))
    with torch.device("meta"):
        module, inputs = decoders.built(_network(case.model), case)
    phase = "train" if case.phase == "train" else "forward"
    time = gnomon.trace(module, inputs, on=chip, phase=phase, launch=case.launch, sustained=True).time_s
    by_host = case.launch == "eager" and row["host_s"] > HOST_SHARE * row["time_s"]
    return Step(
        case=case,
        measured_s=float(row["time_s"]),
        predicted_s=time.value,
        low_s=time.low,
        high_s=time.high,
        by_host=by_host,
    )


def table() -> str:
    lines = ["| model | step | launched | measured, ms | predicted | error | |", "|---|---|---|--:|--:|--:|---|"]
    for step in steps():
        case, note = step.case, "host" if step.by_host else "" if step.inside else "outside its band"
        what = f"{case.phase}, {case.batch} x {case.context or case.tokens:,}"
        times = f"{1e3 * step.measured_s:.4g} | {1e3 * step.predicted_s:.4g} | {step.error:+.1%}"
        lines.append(f"| {case.model} | {what} | {case.launch} | {times} | {note} |")
    return "\n".join([*lines, "", summary(), ""])


def summary() -> str:
    """Mean errors by phase and launch."""
    parts = []
    for phase, launch in dict.fromkeys((step.case.phase, step.case.launch) for step in steps()):
        some = [step for step in steps() if (step.case.phase, step.case.launch) == (phase, launch)]
        parts.append(f"{phase}, {launch}: {sum(abs(step.error) for step in some) / len(some):.1%} of {len(some)}")
    mean = sum(abs(step.error) for step in steps()) / len(steps())
    inside = sum(step.inside for step in steps())
    return f"Mean errors: {'; '.join(parts)}; all {mean:.1%}. Inside their bands: {inside} of {len(steps())}."


def main() -> None:
    rewrite(BEGIN, END, table())


if __name__ == "__main__":
    main()
