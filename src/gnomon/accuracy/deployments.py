"""Whole deployments: published loads under serving engines, simulated and compared."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.accuracy import disaggregated, disaggregated_rows, sglang_rows, trtllm_rows, truth
from gnomon.accuracy.deployment_rows import (
    ASSUMED,
    NEEDED,
    OLD,
    RECENT,
    STATIC,
    STEADY,
    DeploymentCase,
    Unfit,
    case_of,
    consistent,
    kept_out,
)
from gnomon.accuracy.disaggregated_rows import DisaggregatedCase
from gnomon.accuracy.loads import DRAWN_ROUNDS, ROUNDS, ClosedLoad, batch, serve
from gnomon.accuracy.scores import LeftOut, Row, compare_all, compared, tabulated
from gnomon.accuracy.sglang_rows import SglangRun
from gnomon.catalog import model_title
from gnomon.cost.step import StepCost
from gnomon.engines import Deployment, Engine
from gnomon.load.deployments import replica_of
from gnomon.planning.serving.bands import DRAWN, band_of
from gnomon.spec.questions.parts import ServedQuestion
from gnomon.spec.serving import ServingLimits

READERS = {trtllm_rows.FAMILY: trtllm_rows.case_of}
"""What reads rows of an engine, where it is not vLLM; only rows that no fit uses are compared then."""
EACH = {RECENT: 1000, trtllm_rows.GROUP: 1000, ASSUMED: 2, OLD: 1}
"""Rows of each deployment (source, model, chips, degrees, format) that are compared at most, chosen by their names: of
the engine that is priced, all."""
ORDER = (RECENT, trtllm_rows.GROUP, *sglang_rows.GROUPS, *disaggregated_rows.GROUPS, ASSUMED, OLD)
"""Groups as they are shown."""
QUICK_APART = 10
"""In a hurry one disaggregated row in so many is compared."""
FULL = 0.99
"""With so much of the cache in use requests wait for it, and first tokens with them."""
BY = ("group", "source", "chip", "what")


Case = DeploymentCase | DisaggregatedCase | SglangRun


def deployments(
    folder: Path,
    measurements: Path | None = None,
    *,
    quick: bool = False,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Row:
    """Rows compared, their summaries, and what was left out and why. `measurements` has those read from the web;
    `jobs` processes share the work."""
    left, cases, apart = LeftOut(), list[DeploymentCase](), list[Case]()
    for row in truth.rows(folder / truth.SERVING, NEEDED):
        try:
            case = published_case(row)
            if isinstance(case, DeploymentCase):
                cases.append(case)
            else:
                apart.append(case)
        except Unfit as why:
            left.add(row["source"], str(why))
    sound = consistent(cases)
    for case in cases:
        if case not in sound:
            left.add(case.row["source"], "its TPOT and that of other numbers of clients contradict each other")
    chosen = sampled(sound, dict.fromkeys(EACH, 1) if quick else EACH)
    served = sglang_rows.runs(measurements) if measurements else []
    for run in served:
        if run.reject_reason:
            left.add(run.row["source"], run.reject_reason)
    apart += [run for run in served if not run.reject_reason]
    every: list[Case] = [*chosen, *(apart[::QUICK_APART] if quick else apart)]
    rows = compare_all(every, compare_any, lambda case: case.row["source"], left, progress, jobs)
    found = {"usable": len(sound) + len(apart), "sampled": len(every), **tabulated(rows, ORDER, BY)}
    return found | {"kept_out": kept_out(rows), "left_out": left.listed()}


def published_case(row: Mapping[str, str]) -> DeploymentCase | DisaggregatedCase:
    """A row of the published tables as a case. Raises Unfit with the reason why it is none."""
    if row["mode"] == disaggregated_rows.MODE:
        return disaggregated_rows.case_of(row)
    case = READERS.get(row["engine_family"], case_of)(row)
    if row["engine_family"] in READERS and not case.kept_out:
        raise Unfit("in the half that host figures are fitted to")
    return case


def sampled(cases: Iterable[DeploymentCase], each: Mapping[str, int]) -> list[DeploymentCase]:
    """Some of every deployment, the same ones every time, in the order they came."""
    groups = defaultdict[tuple[Any, ...], list[DeploymentCase]](list)
    for case in cases:
        about = (case.row["source"], case.model, case.options["on"], case.options["dtype"], case.options["ep"])
        groups[about].append(case)
    kept = set()
    for found in groups.values():
        found = sorted(found, key=lambda case: zlib.crc32(case.row["row_id"].encode()))
        kept |= {case.row["row_id"] for case in found[: each[found[0].group]]}
    return [case for cases in groups.values() for case in cases if case.row["row_id"] in kept]


def compare_any(case: Case) -> list[Row]:
    """A case of any kind."""
    if isinstance(case, SglangRun):
        return sglang_rows.compare(case)
    return disaggregated.compare(case) if isinstance(case, DisaggregatedCase) else compare(case)


def compare(case: DeploymentCase) -> list[Row]:
    """Every measured figure of a case with the simulated one."""
    replica = replica_of(ServedQuestion(model=case.model, **case.options), case.engine)
    engine, deployment = replica.engine, replica.deploy()
    found = figures(case, engine.step_cost(deployment), engine.limits(deployment), ROUNDS)
    edges = _bands(case, engine, deployment)
    about = _about(case, f"{engine.name} {engine.version}")
    rows = []
    for what, measured in case.measured.items():
        low, high = (found[what] * edge for edge in edges[what])
        unit = "1/s" if what == "tokens/s" else "s"
        name = f"{what}, cache full" if what == "TTFT" and found.get("full") else what
        rows.append(about | compared(name, unit, measured, found[what], (low, high)))
    return rows


def figures(case: DeploymentCase, cost: StepCost, limits: ServingLimits, rounds: int) -> dict[str, float]:
    """TPOT and TTFT (means) and tokens per second of a case."""
    if case.load == STEADY:
        curve = cost.decode_curve(case.clients)
        middle = case.input_tokens + case.output_tokens / 2
        return {"TPOT": float(np.interp(middle, curve.context, curve.seconds))}
    if case.load == STATIC:
        run = batch(case.clients, case.input_tokens, case.output_tokens, cost, limits)
    else:
        load = ClosedLoad(
            clients=case.clients,
            input_tokens=case.input_tokens,
            output_tokens=case.output_tokens,
            least=case.least,
        )
        run = serve(load, cost, limits, rounds)
    means = {name: run.statistics(metric)["mean"] for name, metric in (("TPOT", "tpot"), ("TTFT", "ttft"))}
    full = run.peak_kv_blocks >= FULL * limits.kv_blocks
    return means | {"tokens/s": run.output_tokens_per_s, "full": float(full)}


def _bands(case: DeploymentCase, engine: Engine, deployment: Deployment) -> dict[str, tuple[float, float]]:
    """The 90% band as factors of the center, made as answers make it."""
    center, *draws = (figures(case, *drawn, DRAWN_ROUNDS) for drawn in engine.drawn(deployment, DRAWN))
    return {what: band_of(1.0, center[what], [draw[what] for draw in draws]) for what in case.measured}


def _about(case: DeploymentCase, predicted_as: str) -> Row:
    row: Mapping[str, str] = case.row
    return {
        "id": row["row_id"],
        "group": case.group,
        "source": row["source"],
        "engine_version": row["engine_version"].partition(" |")[0] or "not recorded",
        "predicted_as": predicted_as,
        "model": model_title(case.model),
        "chip": row["gpu"],
        "chips": case.options["tp"],
        "dtype": case.options["dtype"] or "as stored",
        "precision": row["weight_precision"],
        "kept_out": case.kept_out,
        "clients": case.clients,
        "input": case.input_tokens,
        "output": case.output_tokens,
        "load": case.load,
    }
