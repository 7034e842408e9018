"""Fits SGLang's host figures to published serving runs of half of the plans, and reports the others.

    python tools/sglang_overheads.py            # what the shipped figures make of all runs
    python tools/sglang_overheads.py --fit      # fit again, and write engines/sglang/overheads.yaml

Runs are in measurements/published/sglang_serving.csv: closed loops of so many clients, with totals of tokens; lengths
are drawn by the kind of load (`lengths`), the same for every run, and scaled to the totals. A plan is a source's model,
format, chips and degrees; all its runs are in the same half, which a checksum of the plan's name decides (`kept_out`,
as in gnomon.accuracy). No run is left out for its error. Sources name an H100, H200 or A100 without its form (SXM,
PCIe, NVL); such runs are predicted as SXM, reported beside those whose card is known, and not fitted. Those that are
`apart` took over three times as long as vLLM with the same load on the same page.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gnomon.accuracy.sglang_rows import WORDS, SglangRun, runs
from gnomon.cost.table import TableStepCost
from gnomon.engines import Deployment
from gnomon.engines.sglang import overheads as table
from gnomon.engines.sglang.engine import Sglang
from gnomon.spec.workload import Floats

MEASUREMENTS = Path(__file__).parent.parent / "measurements"
FITTED = {
    "gap_us": (0.0, 600.0), "gap_sequence_us": (0.0, 20.0), "captured_base_us": (500.0, 15000.0),
    "captured_layer_us": (0.0, 100.0), "launch_prompt_us": (0.0, 1500.0), "egress_sequence_us": (0.0, 100.0),
}  # fmt: skip
"""Figures that these runs say something of, and their ranges; the others are those of vLLM's host."""
ROUNDS, SHRINK = 6, 0.6
TTFT_WEIGHT = 0.15
"""First tokens of closed loops are mostly waiting for the last of others; they count less."""


@dataclass(frozen=True)
class Run:
    """One published run, as it is simulated."""

    of: SglangRun
    deployment: Deployment
    cost: TableStepCost

    def simulated(self, figures: dict[str, dict[str, float]]) -> dict[str, float]:
        """In seconds."""
        table._table.cache_clear()
        shipped = table._table()
        shipped["figures"] = {**shipped["figures"], **figures}
        engine = Sglang()
        return self.of.simulated(self.cost.under(engine.host(self.deployment)), engine.limits(self.deployment))


def bound() -> list[Run]:
    """All runs, with the costs of their operators."""
    found: list[Run] = []
    costs: dict[tuple[str, ...], TableStepCost] = {}
    for run in runs(MEASUREMENTS):
        engine, deployment = run.deployed()
        key = tuple(run.row[name] for name in ("model", "dtype", "chip", "tp", "ep"))
        if key not in costs:
            made = engine.step_cost(deployment)
            assert isinstance(made, TableStepCost)
            costs[key] = made
        found.append(Run(run, deployment, costs[key]))
    return found


def errors(found: list[Run], figures: dict[str, dict[str, float]]) -> Floats:
    """Of each run: log errors of TPOT, TTFT and the time in all."""
    rows = []
    for run in found:
        made, known = run.simulated(figures), run.of.measured
        rows.append([np.log(made[what] / known[what]) for what in WORDS])
    return np.array(rows)


def _loss(found: list[Run], figures: dict[str, dict[str, float]]) -> float:
    off = np.abs(errors(found, figures))
    return float(off[:, 0].mean() + TTFT_WEIGHT * np.minimum(off[:, 1], 1.0).mean() + 0.3 * off[:, 2].mean())


def fit(found: list[Run], figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """One figure after the other, up and down by shrinking steps, the same for both kinds of model."""
    best, loss = figures, _loss(found, figures)
    for turn in range(ROUNDS):
        for name, (low, high) in FITTED.items():
            step = (high - low) * 0.25 * SHRINK**turn
            for sign in (1, -1):
                while True:
                    moved = {kind: {**values, name: min(max(values[name] + sign * step, low), high)}
                             for kind, values in best.items()}  # fmt: skip
                    if moved == best or (now := _loss(found, moved)) >= loss - 1e-6:
                        break
                    best, loss = moved, now
        print(f"round {turn + 1}: loss {loss:.4f}", file=sys.stderr)
    return best


def report(found: list[Run], figures: dict[str, dict[str, float]]) -> None:
    off = np.expm1(errors(found, figures))
    for run, row in zip(found, off, strict=True):
        of = run.of.row
        named = f"{of['model']:18s}{of['dtype']:7s}{of['chip']:15s}x{of['tp']} {of['clients']:>5s}"
        part = "apart" if of["apart"] else "held" if run.of.kept_out else "fit" if run.of.known else "form"
        print(f"{part:6s}{named} {'  '.join(f'{value:+7.1%}' for value in row)}")
    apart = np.array([bool(run.of.row["apart"]) for run in found])
    held = np.array([run.of.kept_out for run in found])
    known = np.array([run.of.known for run in found])
    parts = {"fitted": ~held & known, "kept out, card known": held & known, "kept out": held & ~apart,
             "form of the card not stated": ~known & ~apart, "apart": apart}  # fmt: skip
    for name, which in parts.items():
        part = off[which]
        mean, median = np.abs(part).mean(axis=0), np.median(np.abs(part), axis=0)
        print(f"{name}, {len(part)}: TPOT {mean[0]:.1%} mean, {median[0]:.1%} median, bias {part[:, 0].mean():+.1%}; "
              f"TTFT {median[1]:.1%} median; time in all {mean[2]:.1%} mean")  # fmt: skip


def main() -> None:
    found, shipped = bound(), dict[str, Any](table._table())
    figures = {kind: dict(values) for kind, values in shipped["figures"].items()}
    if "--fit" in sys.argv:
        figures = fit([run for run in found if run.of.known and not run.of.kept_out], figures)
        held = errors([run for run in found if run.of.known and run.of.kept_out], figures)[:, 0]
        for values in figures.values():
            values |= {name: round(value, 1) for name, value in values.items() if name.endswith("_us")}
            values["spread"] = round(float(np.sqrt((held**2).mean())), 3)
        written = {**shipped, "date": str(date.today()), "figures": figures}
        table.FILE.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    report(found, figures)


if __name__ == "__main__":
    main()
