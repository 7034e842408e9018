"""Measured server loads beside `gnomon simulate serve`: `python -m tools.server_accuracy FOLDER CHIP`.

Reads every server-*.json of tools/server_loads.py in the folder, simulates the same arrivals with as many KV blocks as
the engine had, and prints measured, predicted and error of TTFT and TPOT (p50 and p90), wall time, watts and how
much lower the clock was than the highest.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.governor_steps import table_of, text_of
from tools.power_samples import COLUMNS

STAGES = ("queued_us", "scheduled_us", "made_us", "first_us")
PROBED = (0.9, 0.8)
"""Shares of memory between which KV blocks are read off a line."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    ttft_s: Numbers
    tpot_s: Numbers
    wall_s: float
    watts: float
    clock: float
    """How much lower the clock was than the highest, on average."""

    def figures(self) -> dict[str, float]:
        """What is compared, in milliseconds, seconds and watts."""
        first = np.quantile(self.ttft_s, (0.5, 0.9)) * 1e3
        token = np.quantile(self.tpot_s, (0.5, 0.9)) * 1e3 if len(self.tpot_s) else (np.nan, np.nan)
        named = zip(("TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90"), (*first, *token), strict=True)
        found = {name: float(value) for name, value in named}
        return found | {"wall": self.wall_s, "watts": self.watts, "slowdown": self.clock}


def _each(load: Mapping[str, Any], name: str) -> NDArray[np.int64]:
    value = load["each"][name]
    return np.full(load["requests"], value) if isinstance(value, int) else np.array(value)


def measured(load: Mapping[str, Any], power: Numbers) -> Times:
    output = _each(load, "output_tokens")
    many = output > 1
    ttft = sum((np.array(load["each"][name], float) for name in STAGES), np.zeros(load["requests"])) / 1e6
    tpot = _each(load, "finish_us")[many] / (output[many] - 1) / 1e6
    clock, joules = power[:, COLUMNS.index("monotonic_s")], power[:, COLUMNS.index("energy_j")]
    inside = (clock > load["begin_s"]) & (clock < load["begin_s"] + load["wall_s"])
    watts = np.ptp(joules[inside]) / np.ptp(clock[inside]) if inside.sum() > 10 else np.nan
    mhz = power[:, COLUMNS.index("sm_mhz")]
    lower = float(np.mean(mhz.max() / mhz[inside])) if inside.any() else np.nan
    return Times(ttft_s=ttft, tpot_s=tpot, wall_s=load["wall_s"], watts=float(watts), clock=lower)


class Simulator:
    """`gnomon simulate serve` of one model on one chip."""

    def __init__(self, chip: str, found: Mapping[str, Any]) -> None:
        self._flags = [found["model"], "--on", chip, "--set", f"max_model_len={found['settings']['max_model_len']}"]
        if found["quantization"]:
            self._flags += ["--dtype", found["quantization"]]
        one = {"requests": 1, "each": {"arrival_us": [0], "input_tokens": 16, "output_tokens": 2}}
        blocks = [self._run(one, share)[0]["kv_blocks"] for share in PROBED]
        slope = (blocks[0] - blocks[1]) / (PROBED[0] - PROBED[1])
        self._share = round(PROBED[0] - (blocks[0] - found["settings"]["kv_blocks"]) / slope, 4)

    def times(self, load: Mapping[str, Any]) -> Times:
        answer, rows = self._run(load, self._share)
        arrival, first, finish, output = (
            np.array([float(row[name]) for row in rows])
            for name in ("arrival_s", "first_token_s", "finish_s", "output_tokens")
        )
        many = output > 1
        tpot = (finish - first)[many] / (output[many] - 1)
        return Times(
            ttft_s=first - arrival,
            tpot_s=tpot,
            wall_s=answer["makespan_s"],
            watts=answer["power_w"],
            clock=answer.get("clock_slowdown", 1.0),
        )

    def _run(self, load: Mapping[str, Any], share: float) -> tuple[dict[str, Any], list[dict[str, str]]]:
        tokens = (_each(load, f"{name}_tokens") for name in ("input", "output"))
        columns = zip(_each(load, "arrival_us") / 1e6, *tokens, strict=True)
        with tempfile.TemporaryDirectory() as folder:
            trace, out = Path(folder, "trace.csv"), Path(folder, "requests.csv")
            lines = [f"{at:.6f},{prompt},{made}" for at, prompt, made in sorted(columns)]
            trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]) + "\n")
            command = [sys.executable, "-m", "gnomon", "simulate", "serve", *self._flags, "--trace", str(trace)]
            command += ["--requests", str(load["requests"]), "--set", f"gpu_memory_utilization={share}"]
            command += ["--requests-out", str(out), "--json"]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            with out.open() as file:
                return answer, list(csv.DictReader(file))


def compared(truth: Times, ours: Times) -> str:
    pairs = zip(truth.figures().items(), ours.figures().values(), strict=True)
    return ", ".join(f"{name} {x:.4g} {y:.4g} {y / x - 1:+.0%}" for (name, x), y in pairs if np.isfinite(x))


def lines(folder: Path, chip: str, names: Sequence[str]) -> Iterator[str]:
    for path in sorted(folder.glob("server-*.json*")):
        stem = path.name.split(".json")[0]
        found, power = json.loads(text_of(folder, f"{stem}.json")), table_of(folder, f"{stem}.csv")
        simulator = Simulator(chip, found)
        yield stem
        for load in found["loads"]:
            if load["name"] in names:
                about = " ".join(f"{name} {load[name]:g}" for name in ("count", "rate_per_s", "cv") if name in load)
                yield f"  {load['name']} {about}: {compared(measured(load, power), simulator.times(load))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the measurements are")
    parser.add_argument("chip", help="the chip they were made on, such as h200")
    parser.add_argument("--loads", default="static,overload,poisson,gamma", help="names of the loads to compare")
    asked = parser.parse_args()
    for line in lines(asked.folder, asked.chip, asked.loads.split(",")):
        print(line, flush=True)


if __name__ == "__main__":
    main()
