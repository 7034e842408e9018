"""Published runs of SGLang that were read from the web (`measurements/published/sglang_serving.csv`): closed loops of
so many clients, with totals of tokens. Lengths are drawn by the kind of load, always alike, and scaled to the totals.

A plan is a source's model, format, chips and degrees; all its runs are in the same half, which a checksum decides. Host
figures are fitted to one half of those whose source says which card it was (`tools/sglang_overheads.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

from gnomon.accuracy.scores import Row, compared
from gnomon.catalog import model_title
from gnomon.cost.step import StepCost
from gnomon.engines import Deployment, Engine
from gnomon.load import model as load_model
from gnomon.load.deployments import replica_of
from gnomon.planning.serving.bands import DRAWN, band_of
from gnomon.sim.serving.closed import simulate_closed
from gnomon.spec.questions.parts import ServedQuestion
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Ints, Requests

ENGINE, FILE = "sglang", Path("published", "sglang_serving.csv")
GROUP, FORM = "SGLang of 2025", "SGLang of 2025, form of the card not stated"
GROUPS = (GROUP, FORM)
ONE_FORM = ("B200-SXM-180GB",)
"""Chips that come in one form alone, so that a source that names the chip names the card. Others are predicted as SXM
and compared apart."""
APART = "took over three times as long as vLLM with the same load on the same page"
FITTED = "in the half that host figures are fitted to"
WORDS = {"TPOT": "tpot_median_ms", "TTFT": "ttft_median_ms", "time in all": "duration_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRun:
    """One published run."""

    row: Mapping[str, str]

    @property
    def kept_out(self) -> bool:
        """Whether no fit uses the run: half of the plans, always the same ones."""
        plan = "|".join(self.row[name] for name in ("source", "model", "dtype", "chip", "tp", "ep"))
        return bool(crc32(plan.encode()) % 2)

    @property
    def known(self) -> bool:
        """Whether the source says which card it was."""
        return self.row["chip"] in ONE_FORM and not self.row["apart"]

    @property
    def reject_reason(self) -> str:
        """Why it is not compared; empty where it is."""
        return APART if self.row["apart"] else FITTED if self.known and not self.kept_out else ""

    @property
    def measured(self) -> dict[str, float]:
        """Medians, and the time in all, in seconds."""
        return {what: float(self.row[name]) / (1e3 if name.endswith("ms") else 1) for what, name in WORDS.items()}

    @property
    def requests(self) -> Requests:
        count, kind = int(self.row["requests"]), self.row["lengths"]
        given, made = (_lengths(kind, count, int(self.row[f"{name}_tokens"]), seed)
                       for seed, name in ((1, "input"), (2, "output")))  # fmt: skip
        return Requests(np.zeros(count), given, made)

    def deployed(self) -> tuple[Engine, Deployment]:
        row = self.row
        stored = load_model(row["model"]).dtype == row["dtype"]
        question = ServedQuestion(
            model=row["model"], on=f"{row['chip']}:{row['tp']}", tp=int(row["tp"]), ep=int(row["ep"]),
            dtype=None if stored else row["dtype"],
        )  # fmt: skip
        replica = replica_of(question, ENGINE)
        return replica.engine, replica.deploy()

    def simulated(self, cost: StepCost, limits: ServingLimits) -> dict[str, float]:
        """What `measured` has."""
        run = simulate_closed(self.requests, int(self.row["clients"]), cost, limits)
        return {"TPOT": run.statistics("tpot")["p50"], "TTFT": run.statistics("ttft")["p50"],
                "time in all": run.makespan_s}  # fmt: skip


def runs(measurements: Path) -> list[SglangRun]:
    """All runs; none where the measurements are not at hand."""
    path = measurements / FILE
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [SglangRun(row=row) for row in csv.DictReader(lines)]


def compare(run: SglangRun) -> list[Row]:
    return list(_compared(run))


def _compared(run: SglangRun) -> Iterator[Row]:
    engine, deployment = run.deployed()
    center, *draws = (run.simulated(*drawn) for drawn in engine.drawn(deployment, DRAWN))
    row = run.row
    about = {
        "id": f"{row['source']}-{row['clients']}-{row['input_tokens']}-{row['output_tokens']}",
        "group": GROUP if run.known else FORM,
        "source": row["source"],
        "engine_version": row["version"],
        "predicted_as": f"{engine.name} {engine.version}",
        "model": model_title(row["model"]),
        "chip": row["chip"],
        "chips": int(row["tp"]),
        "dtype": row["dtype"],
        "precision": row["dtype"],
        "kept_out": run.kept_out,
        "clients": int(row["clients"]),
        "input": round(int(row["input_tokens"]) / int(row["requests"])),
        "output": round(int(row["output_tokens"]) / int(row["requests"])),
        "load": "clients",
    }
    for what, measured in run.measured.items():
        low, high = band_of(center[what], center[what], [draw[what] for draw in draws])
        yield about | compared(what, "s", measured, center[what], (low, high))


@cache
def _lengths(kind: str, requests: int, total: int, seed: int) -> Ints:
    rng = np.random.default_rng(seed)
    draws: Floats = np.ones(requests)
    if kind == "uniform":
        draws = rng.uniform(0, 2, requests)
    elif kind == "sharegpt":
        draws = np.clip(rng.exponential(1.0, requests), 0.02, 5.0)
    scaled: Ints = np.maximum(1, np.round(draws * total / draws.sum())).astype(np.int64)
    return scaled
