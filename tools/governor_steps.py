"""What the governor did under each load: `python -m tools.governor_steps measurements/h200-2026-11-18`.

Reads the files of tools/governor.py and prints a line a load: TFLOP/s and TB/s of its first pieces (burst), when the
rate first fell by 3% (reaction), the share of the burst's rate until the power averaged over a second reaches the limit
(0.2 to 0.8 s), the lowest rate of the dip that follows, the share from 1.6 s on (sustained), and watts by the energy
counter, median clock and hottest temperature of that time.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.power_samples import COLUMNS

FALLEN, FIRST, PLATEAU_S, SUSTAINED_S = 0.97, slice(1, 4), (0.2, 0.8), 1.6
Table = NDArray[np.float64]


def text_of(folder: Path, name: str) -> str:
    """A measured file, which may be compressed."""
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else (folder / name).read_text()


def table_of(folder: Path, name: str) -> Table:
    lines = text_of(folder, name).splitlines()
    return np.genfromtxt(lines[1:], delimiter=",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Rates are shares of the burst's; NaN where a load is too short to tell."""

    name: str
    burst_flops: float
    burst_bytes: float
    reaction_s: float
    plateau: float
    dip: float
    sustained: float
    watts: float
    sm_mhz: float
    celsius: float


def _mean(values: Table) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def response(load: dict[str, Any], pieces: Table, power: Table) -> Response:
    """How the first step of a load went; `pieces` are of that step alone."""
    at, took = pieces[:, 3] - load["begin_s"], pieces[:, 4]
    burst = float(np.median(took[FIRST]))
    rate = burst / took
    fell = np.flatnonzero(rate < FALLEN)
    late = at > SUSTAINED_S
    named = dict(zip(COLUMNS, power.T, strict=True))
    inside = (named["monotonic_s"] > load["begin_s"] + SUSTAINED_S) & (named["monotonic_s"] < pieces[-1, 3])
    joules, seconds = (np.ptp(named[name][inside]) if inside.any() else np.nan for name in ("energy_j", "monotonic_s"))
    work = load["works"][0]
    return Response(
        name=load["name"],
        burst_flops=work["flops"] * work["calls"] / burst,
        burst_bytes=work["bytes"] * work["calls"] / burst,
        reaction_s=float(at[fell[0]]) if len(fell) else float("nan"),
        plateau=_mean(rate[(at > PLATEAU_S[0]) & (at < PLATEAU_S[1])]),
        dip=float(np.min(rate[at < SUSTAINED_S])),
        sustained=_mean(rate[late]),
        watts=float(joules / seconds) if inside.sum() > 1 else float("nan"),
        sm_mhz=float(np.median(named["sm_mhz"][inside])) if inside.any() else float("nan"),
        celsius=float(np.max(named["gpu_c"][inside])) if inside.any() else float("nan"),
    )


def responses(folder: Path) -> Iterator[Response]:
    found = json.loads(text_of(folder, "governor.json"))
    pieces, power = table_of(folder, "governor-pieces.csv"), table_of(folder, "governor-power.csv")
    for load in found["loads"]:
        own = pieces[(pieces[:, 0] == load["load"]) & (pieces[:, 1] == 0)]
        if len(own) > FIRST.stop:
            yield response(load, own, power)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tools/governor.py wrote its files")
    print(f"{'load':36} TFLOP/s  TB/s  react ms  plateau   dip  sustained  watts   MHz   C")
    for row in responses(parser.parse_args().folder):
        print(
            f"{row.name:36} {row.burst_flops / 1e12:7.0f} {row.burst_bytes / 1e12:5.2f} {row.reaction_s * 1e3:9.0f} "
            f"{row.plateau:8.3f} {row.dip:5.2f} {row.sustained:10.3f} "
            f"{row.watts:6.0f} {row.sm_mhz:5.0f} {row.celsius:3.0f}"
        )


if __name__ == "__main__":
    main()
