"""Predictions of the modules of zoo.py beside what `trace_modules.py` measured, as the table of docs/tracing.md.

python -m tools.trace_accuracy

Writes the table again; needs PyTorch, no GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tools.zoo import MODULES

import gnomon
from gnomon.api.trace import ModulePrediction

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tracing.md"
BEGIN, END = "<!-- measured: make modules -->\n", "<!-- end -->\n"
HOST_SHARE = 0.75
"""A step whose launches alone took this share of it waits for the host here and there."""
CASES = (
    ("forward", "bf16", "graph"), ("forward", "bf16", "eager"), ("forward", "fp32", "eager"),
    ("train", "bf16", "eager"), ("train", "tf32", "eager"), ("train", "fp32", "eager"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    chip: str
    row: dict[str, Any]

    @property
    def name(self) -> str:
        return " ".join(str(self.row[key]) for key in ("module", "phase", "dtype", "launch"))

    @property
    def predicted(self) -> ModulePrediction:
        return predict(self.chip, *(self.row[key] for key in ("module", "phase", "dtype", "launch")))

    @property
    def error(self) -> float:
        return self.predicted.time_s.value / float(self.row["time_s"]) - 1

    @property
    def by_host(self) -> bool:
        """Whether it was the host that was measured: the launches of the step, one by one, took most of its time."""
        return self.row["launch"] == "eager" and self.row["host_s"] > HOST_SHARE * self.row["time_s"]


def cases() -> Iterator[Case]:
    for path in sorted(ROOT.glob("measurements/*/modules.json")):
        chip = str(json.loads(path.with_name("measured.json").read_text())["chip"])
        for row in json.loads(path.read_text())["rows"]:
            if "failed" not in row:
                yield Case(chip=chip, row=row)


@cache
def predict(chip: str, module: str, phase: str, dtype: str, launch: str) -> ModulePrediction:
    with torch.device("meta"):
        net, inputs = MODULES[module]()
    return gnomon.trace(
        net,
        inputs,
        on=chip,
        phase=phase,
        dtype="bf16" if dtype == "bf16" else None,
        tf32=dtype == "tf32",
        launch=launch,
        sustained=True,
    )


def table() -> str:
    found = {(case.row["module"], case.row["phase"], case.row["dtype"], case.row["launch"]): case for case in cases()}
    titles = [f"{phase} {dtype}{', graph' if launch == 'graph' else ''}" for phase, dtype, launch in CASES]
    lines = [f"| module | {' | '.join(titles)} |", "|---" * (len(CASES) + 1) + "|"]
    for module in MODULES:
        cells = [_cell(found.get((module, *case))) for case in CASES]
        lines.append(f"| {module} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(case: Case | None) -> str:
    if case is None:
        return ""
    measured, predicted = (f"{1e3 * seconds:.3g}" for seconds in (case.row["time_s"], case.predicted.time_s.value))
    return f"{measured} / {predicted} ({case.error:+.0%}){' host' if case.by_host else ''}"


def rewrite(begin: str, end: str, content: str) -> None:
    """Put a table between its marks on the page."""
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(before + begin + content + end + rest.split(end)[1])
    print(f"wrote {PAGE.name}")


def main() -> None:
    rewrite(BEGIN, END, table())


if __name__ == "__main__":
    main()
