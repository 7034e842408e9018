"""Loads that we served with a real engine for up to a minute (`tools/server_loads.py`), beside the same simulated.

Nothing is fitted to them. Times are those of every request, power is what NVML counted, and the simulator has as many
KV blocks as the engine had.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.accuracy.scores import Row, compared
from gnomon.cost.step import StepCost
from gnomon.engines import Deployment
from gnomon.load import model, parse_pool
from gnomon.load.deployments import deploy
from gnomon.planning.serving.bands import DRAWN, band_of
from gnomon.planning.steps.energy import energy_j
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Requests

PATTERN, INFO = "server-*.json.gz", "measured.json"
COMPARED = ("static", "overload", "poisson", "gamma")
"""Loads of these names; the others are shorter than a second or have prompts of one kind."""
STAGES = ("queued_us", "scheduled_us", "made_us", "first_us")
"""Of a request: until it was with the engine, scheduled, made its first token, and the client held that."""
LEAST_SAMPLES = 10
UNITS = {"wall": "s", "power": "W", "clock slowdown": "x"}
QUANTILES = {"p50": 0.5, "p90": 0.9}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """One load, and what was measured of it by the name of each figure."""

    title: str
    requests: Requests
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """Loads of one model on one card."""

    file: str
    chip: str
    model: str
    dtype: str
    engine: str
    settings: Mapping[str, Any]
    loads: tuple[ServedLoad, ...]

    def rows(self) -> list[Row]:
        """Every figure of every load, with the interval of the simulated one."""
        about = {"file": self.file, "chip": self.chip, "model": self.model, "engine": self.engine, "dtype": self.dtype}
        return [about | row for load, *runs in self.simulated() for row in _rows(load, runs)]

    def simulated(self, draws: int = DRAWN) -> Iterator[tuple[Any, ...]]:
        """Each load with its figures by the central estimate, then by draws of the step cost."""
        if not self.loads:
            return
        given = {"max_model_len": self.settings["max_model_len"], "front_end": "in_process"}
        engine, deployment = deploy(model(self.model), parse_pool(self.chip), dtype=self.dtype, settings=given)
        costs = list(engine.drawn(deployment, draws, max(load.requests.longest for load in self.loads)))
        for load in self.loads:
            yield (load, *(self._figures(load, deployment, *each) for each in costs))

    def _figures(
        self, load: ServedLoad, deployment: Deployment, cost: StepCost, limits: ServingLimits
    ) -> dict[str, float]:
        run = simulate(load.requests, cost, replace(limits, kv_blocks=int(self.settings["kv_blocks"])))
        return _of_run(run, energy_j(deployment, run) / run.makespan_s)


def served(measurements: Path) -> Iterator[Row]:
    """The rows of all such files."""
    for path in sorted(measurements.glob(f"*/{PATTERN}")):
        yield from read(path).rows()


def read(path: Path) -> ServedFile:
    data = json.loads(gzip.decompress(path.read_bytes()))
    info = json.loads((path.parent / INFO).read_text(encoding="utf-8"))
    power = path.with_name(path.name.replace(".json", ".csv"))
    lines = gzip.decompress(power.read_bytes()).decode().splitlines()
    columns = {name: np.array(column, float) for name, *column in zip(*csv.reader(lines), strict=True)}
    return ServedFile(
        file=f"{path.parent.name}/{path.name}",
        chip=info["chip"],
        model=data["model"],
        dtype=data["quantization"] or model(data["model"]).dtype,
        engine=f"vllm {info['versions']['vllm']}",
        settings=data["settings"],
        loads=tuple(_load(load, columns) for load in data["loads"] if load["name"] in COMPARED),
    )


def _load(load: Mapping[str, Any], power: Mapping[str, Floats]) -> ServedLoad:
    each = {name: np.broadcast_to(np.array(column), load["requests"]) for name, column in load["each"].items()}
    order = np.argsort(each["arrival_us"], kind="stable")
    arrival, given, made = (each[name][order] for name in ("arrival_us", "input_tokens", "output_tokens"))
    later = made > 1
    tpot = each["finish_us"][order][later] / (made[later] - 1) / 1e6
    ttft = np.sum([each[name] for name in STAGES], axis=0) / 1e6
    inside = (power["monotonic_s"] > load["begin_s"]) & (power["monotonic_s"] < load["begin_s"] + load["wall_s"])
    figures = quantiles("TTFT", ttft) | quantiles("TPOT", tpot) | {"wall": float(load["wall_s"])}
    if inside.sum() > LEAST_SAMPLES:
        mhz = power["sm_mhz"]
        figures["power"] = float(np.ptp(power["energy_j"][inside]) / np.ptp(power["monotonic_s"][inside]))
        figures["clock slowdown"] = float(np.mean(mhz.max() / mhz[inside]))
    named = (
        f"{load[name]:g} {text}" for name, text in (("count", "requests"), ("rate_per_s", "requests/s")) if name in load
    )
    spread = f", cv {load['cv']:g}" if load.get("cv", 1) != 1 else ""
    return ServedLoad(
        title=f"{load['name']} {' '.join(named)}{spread}",
        requests=Requests(arrival / 1e6, given.astype(np.int64), made.astype(np.int64)),
        figures=figures,
    )


def _of_run(run: ServingRun, watts: float) -> dict[str, float]:
    tpot = run.tpot_s[~np.isnan(run.tpot_s)]
    times = quantiles("TTFT", run.ttft_s) | quantiles("TPOT", tpot)
    return times | {"wall": run.makespan_s, "power": watts, "clock slowdown": run.clock_slowdown}


def quantiles(name: str, seconds: Floats) -> dict[str, float]:
    """p50 and p90 by name; nothing of no times."""
    if not seconds.size:
        return {}
    return {f"{name} {key}": float(np.quantile(seconds, share)) for key, share in QUANTILES.items()}


def _rows(load: ServedLoad, runs: Sequence[Mapping[str, float]]) -> Iterator[Row]:
    central, *drawn = runs
    for name, measured in load.figures.items():
        band = band_of(central[name], central[name], [draw[name] for draw in drawn]) if drawn else None
        what = f"served load, {name}"
        yield {"detail": load.title} | compared(what, UNITS.get(name, "s"), measured, central[name], band)
