"""Fits TensorRT-LLM's host figures to published loads, and reports them on the half that no fit uses.

    python -m tools.trtllm_overheads            # report both halves under the shipped figures
    python -m tools.trtllm_overheads --fit      # fit again, write src/gnomon/engines/trtllm/overheads.yaml, report

Rows are those of `gnomon.accuracy.trtllm_rows`; half of the plans are kept out (`DeploymentCase.kept_out`). Operators
are priced once; the fit goes over the figures one after the other, several times, and keeps what lowers the mean of
|log(simulated / measured)|: TPOT of closed loops and throughput at maximum load count 1, TTFT 0.25. The HTTP server's
figures come afterwards, over the rows with a TTFT alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gnomon.accuracy import truth
from gnomon.accuracy.deployment_rows import NEEDED, STATIC, DeploymentCase, Unfit, consistent
from gnomon.accuracy.deployments import figures
from gnomon.accuracy.trtllm_rows import FAMILY, case_of
from gnomon.calibrate.truth import folder as truth_folder
from gnomon.cost.table import TableStepCost
from gnomon.engines.base import Deployment
from gnomon.engines.trtllm.options import captured_sizes
from gnomon.engines.trtllm.overheads import FILE, RANGES, SERVE, TrtllmOverheads, responses
from gnomon.errors import GnomonError
from gnomon.load.deployments import replica_of
from gnomon.spec.questions.parts import ServedQuestion
from gnomon.spec.serving import ServingLimits

WEIGHTS = {"TPOT": 1.0, "tokens/s": 1.0, "TTFT": 0.25}
ROUNDS, REPORTED_ROUNDS = 3, 10
MOST_REQUESTS = 1500
"""Of a run at maximum load while figures are fitted."""
FITTED = (
    "response_us", "decode_base_us", "gap_us", "decode_sequence_us", "gap_sequence_us", "eager_base_us",
    "eager_layer_us", "launch_sequence_us", "launch_prompt_us",
)  # fmt: skip
FRONT = ("http.ingress_us", "http.request_us", "http.output_us", "http.egress_sequence_us")
"""Of the HTTP server, which only first tokens show: fitted to them afterwards."""
FACTORS = (0.5, 0.75, 1.33, 2.0)
PASSES = 2
EACH = 5
"""Of so many rows of the fitted half, one is used; all are reported."""
LARGEST_SPREAD = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A row with its operators priced."""

    case: DeploymentCase
    deployment: Deployment
    cost: TableStepCost
    limits: ServingLimits

    def ratios(self, extra: TrtllmOverheads, rounds: int, most: int | None = None) -> dict[str, float]:
        """Log of simulated over measured."""
        settings, case = self.deployment.settings, self.case
        captured, padded = tuple(captured_sizes(settings)), bool(settings["cuda_graph_enable_padding"])
        cost = self.cost.under(extra.host(self.deployment.model.layers, captured, padded, responses(settings)))
        if most and case.load == STATIC:
            case = replace(case, clients=min(case.clients, most))
        found = figures(case, cost, replace(self.limits, **extra.latencies(settings)), rounds)
        return {what: float(np.log(found[what] / measured)) for what, measured in case.measured.items()}


def cases(folder: Path) -> list[DeploymentCase]:
    found = []
    for row in truth.rows(folder / truth.SERVING, NEEDED):
        if row["engine_family"] == FAMILY:
            try:
                found.append(case_of(row))
            except Unfit:
                continue
    return consistent(found)


def bound(found: Iterable[DeploymentCase]) -> list[Bound]:
    made = []
    for case in found:
        try:
            replica = replica_of(ServedQuestion(model=case.model, **case.options), case.engine)
            engine, deployment = replica.engine, replica.deploy()
            cost, limits = engine.step_cost(deployment), engine.limits(deployment)
        except GnomonError as why:
            print(f"left out {case.row['row_id']}: {why}")
            continue
        assert isinstance(cost, TableStepCost)
        made.append(Bound(case=case, deployment=deployment, cost=cost, limits=limits))
    return made


def overheads(table: Mapping[str, Any]) -> TrtllmOverheads:
    return TrtllmOverheads(figures=table["figures"], http=table["front_ends"][SERVE], source="fit")


def with_figure(table: Mapping[str, Any], name: str, value: float) -> dict[str, Any]:
    key = name.removeprefix("http.")
    low, high = RANGES[key]
    value = round(float(np.clip(value, low, high)), 2)
    if name == key:
        return {**table, "figures": {**table["figures"], key: value}}
    return {**table, "front_ends": {SERVE: {**table["front_ends"][SERVE], key: value}}}


def figure(table: Mapping[str, Any], name: str) -> float:
    key = name.removeprefix("http.")
    return float((table["figures"] if name == key else table["front_ends"][SERVE])[key])


def loss(rows: Sequence[Bound], table: Mapping[str, Any], rounds: int) -> float:
    extra, total, weight = overheads(table), 0.0, 0.0
    for row in rows:
        for what, ratio in row.ratios(extra, rounds, MOST_REQUESTS).items():
            total += WEIGHTS[what] * abs(ratio)
            weight += WEIGHTS[what]
    return total / weight


def fit(rows: Sequence[Bound], table: dict[str, Any], names: Sequence[str], rounds: int) -> dict[str, Any]:
    best = loss(rows, table, rounds)
    for turn in range(PASSES):
        for name in names:
            for factor in FACTORS if turn == 0 else (0.8, 0.9, 1.1, 1.25):
                tried = with_figure(table, name, figure(table, name) * factor)
                found = loss(rows, tried, rounds)
                if found < best - 1e-5:
                    best, table = found, tried
                    break
        print(f"pass {turn + 1}: {best:.4f}", flush=True)
    return table


def report(rows: Sequence[Bound], table: Mapping[str, Any], name: str) -> list[float]:
    """Prints mean and median of |error| and the bias, by source and figure; the errors of first tokens."""
    extra = overheads(table)
    groups = defaultdict[tuple[str, str], list[float]](list)
    for row in rows:
        for what, ratio in row.ratios(extra, REPORTED_ROUNDS).items():
            groups[row.case.row["source"], what].append(ratio)
            groups["all", what].append(ratio)
    print(f"\n{name}\n{'source':<20}{'figure':<10}{'rows':>5}{'mean':>8}{'median':>8}{'bias':>8}")
    for (source, what), logs in sorted(groups.items()):
        errors = np.abs(np.expm1(logs))
        print(
            f"{source:<20}{what:<10}{len(logs):>5}{errors.mean():>8.1%}{np.median(errors):>8.1%}{np.mean(logs):>+8.1%}"
        )
    return groups.get(("all", "TTFT"), [])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--fit", action="store_true")
    folder = truth_folder()
    if folder is None:
        print("the published tables are not here; GNOMON_TRUTH can name their folder")
        return
    table = yaml.safe_load(FILE.read_text())
    fitting, found = asked.parse_args().fit, cases(folder)
    fitted, kept = (bound(case for case in found if case.kept_out is out) for out in (False, True))
    if fitting:
        table = fit(fitted[::EACH], table, FITTED, ROUNDS)
        table = fit([row for row in fitted if "TTFT" in row.case.measured], table, FRONT, REPORTED_ROUNDS)
    first = report(fitted, table, "fitted half")
    report(kept, table, "kept-out half")
    if fitting:
        table["figures"]["spread"] = round(min(float(np.std(first)), LARGEST_SPREAD), 4)
        table["rows"] = {"fitted": len(fitted), "used": len(fitted[::EACH]), "kept_out": len(kept)}
        FILE.write_text(yaml.safe_dump(table, sort_keys=False))
        print(f"\nwrote {FILE.name}")


if __name__ == "__main__":
    main()
