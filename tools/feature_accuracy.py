"""Measured loads of vLLM's options beside the same simulated: `python -m tools.feature_accuracy FOLDER...`.

Prints every load of tools/feature_loads in the folders, short ones and those that figures were fitted to as well:
measured, predicted and error of TPOT p50, TTFT p50 and the share of prompt tokens that were found in the cache, then
their means by engine. Static batches with offloading repeat prompts of the ones before, which the host still had: their
found tokens are an artefact of the tool. `gnomon accuracy` has the loads that nothing was fitted to, with intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.accuracy.option_loads import FOUND, OptionLoad, read
from gnomon.engines import Deployment, Engine

SHOWN = ("TPOT p50", "TTFT p50")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    load: OptionLoad
    ours: dict[str, float]

    def error(self, name: str) -> float:
        return self.ours[name] / self.load.figures[name] - 1 if name in self.ours else float("nan")

    @property
    def points(self) -> float:
        return 100 * (self.ours[FOUND] - self.load.figures[FOUND])

    def line(self) -> str:
        measured, ours = self.load.figures, self.ours
        times = (
            f"{name[:4]} {1e3 * measured[name]:8.2f} {1e3 * ours[name]:8.2f} ms {self.error(name):+6.1%}"
            for name in SHOWN
            if name in measured
        )
        found = f"found {measured[FOUND]:5.1%} {ours[FOUND]:5.1%} {self.points:+.1f}"
        return "   ".join([f"{self.load.title:38}", *times, found])


def all_errors(folders: list[Path]) -> Iterator[Errors]:
    replicas: dict[Any, tuple[Engine, Deployment]] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.json.gz"))):
        for load in read(path):
            key = (load.model, tuple(sorted(load.settings.items())), load.kv_dtype)
            if key not in replicas:
                replicas[key] = load.deployed()
            engine, deployment = replicas[key]
            cost = engine.step_cost(deployment, load.requests.longest + 1)
            yield Errors(load=load, ours=load.simulated(cost, engine.limits(deployment)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+", help="where the measurements are")
    found: dict[str, list[Errors]] = {}
    for errors in all_errors(parser.parse_args().folder):
        print(errors.line(), flush=True)
        found.setdefault(errors.load.engine, []).append(errors)
    found["all"] = [one for each in found.values() for one in each]
    for name, some in found.items():
        means = [f"{shown} {np.nanmean([abs(one.error(shown)) for one in some]):.1%}" for shown in SHOWN]
        points = np.mean([abs(one.points) for one in some])
        print(f"{name}: mean error of {', '.join(means)}, found {points:.1f} points")


if __name__ == "__main__":
    main()
