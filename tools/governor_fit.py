"""Fits the governor's figures: `python -m tools.governor_fit measurements/h200-2026-11-18`.

Reads the files of tools/governor.py. Loads that run one mix of work without end give sustained time, watts and clock;
the figures of `gnomon.cost.governor.ClockFigures` are fitted to every other one of them and checked on the rest, then
fitted to all. The window is the one with which the pieces of loads that start, stop and alternate take the time they
took, with those figures. Joules of a FLOP and a byte are those of the chip's profile, fitted to another day and board.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.governor_steps import FIRST, response, table_of, text_of

from gnomon import catalog
from gnomon.calibrate.least_squares import fit
from gnomon.cost.clock import BURST, narrow
from gnomon.cost.governor import ClockFigures, Governor, KernelWork, governor_of, kernel_power
from gnomon.load.profiles import profile_for

CHIP = catalog.chip("H200")
POWER = dict(profile_for(CHIP).power)
RANGES = {
    "clocked": (0.55, 0.2, 1.0),
    "clocked_attention": (0.9, 0.3, 1.3),
    "memory_exponent": (3.0, 1.0, 12.0),
    "voltage": (0.7, 0.1, 1.0),
    "flop": (1.0, 0.7, 1.4),
    "read_byte": (0.95, 0.6, 1.3),
    "elementwise_byte": (1.15, 0.6, 1.6),
}
TIME_ERROR, WATTS_ERROR, CLOCK_ERROR = 0.01, 0.03, 0.05
"""What sustained time, watts and clock are known to; a clock is a median of samples 100 ms apart."""
LEAST_SLOWED = 0.02
"""Loads that are slowed down less say little of how much."""
OUTLIER = 3.0
"""Errors, in these units, from which on they count linearly."""
WINDOWS_S = np.geomspace(0.01, 0.5, 40)
ALTERNATING = ("gemm and decode, 0.2 s each", "gemm 1 s on, 1 s off", "gemm 0.25 s on, 0.25 s off",
               "gemm and decode, 20 ms each", "gemm 8192x8192x8192")  # fmt: skip
"""Loads whose work changes, one after the other for the window's fit and for its check."""
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyLoad:
    """Work without end: FLOPs and bytes per second in a burst, and what became of it."""

    name: str
    works: tuple[KernelWork, ...]
    """Its kernels, over one second of burst."""
    duty: float
    slower: float
    watts: float
    clock: float
    """How much lower it was than the highest."""


def kind_of(name: str) -> str:
    if name.startswith("attention"):
        return "attention_prefill"
    return "elementwise" if name in ("copy", "sum", "norm") else "decode" if name.startswith("decode") else "gemm"


def kernels(name: str, flops: float, moved: float) -> tuple[KernelWork, ...]:
    """What a load runs in a second of burst; a mixture of GEMMs and copies is told apart."""
    one = np.ones(1)
    if not name.startswith("mixed"):
        return (KernelWork(kind_of(name), flops * one, moved * one, one),)
    gemms, copies = (int(name.split()[i]) for i in (1, 3))
    gemm_bytes, copy_bytes = 3 * 2 * 8192.0**2, 4.0 * 2**28
    calls = flops / (gemms * 2 * 8192.0**3)
    copy_s = calls * copies * copy_bytes / 2.7e12
    parts = (
        ("gemm", flops, calls * gemms * gemm_bytes, 1 - copy_s),
        ("elementwise", 0.0, calls * copies * copy_bytes, copy_s),
    )
    return tuple(KernelWork(kind, f * one, b * one, s * one) for kind, f, b, s in parts)


def steady(folder: Path) -> Iterator[SteadyLoad]:
    found = json.loads(text_of(folder, "governor.json"))
    pieces, power = table_of(folder, "governor-pieces.csv"), table_of(folder, "governor-power.csv")
    for load in found["loads"]:
        own = pieces[(pieces[:, 0] == load["load"]) & (pieces[:, 1] == 0)]
        row = response(load, own, power) if len(own) > FIRST.stop else None
        if row is None or not np.isfinite(row.watts):
            continue
        yield SteadyLoad(
            name=load["name"],
            works=kernels(load["name"], row.burst_flops, row.burst_bytes),
            duty=load["steps"][0]["duty"],
            slower=1 / row.sustained,
            watts=row.watts,
            clock=CHIP.boost_hz / 1e6 / row.sm_mhz,
        )


def power_of(name: str, works: Sequence[KernelWork], figures: ClockFigures) -> tuple[float, float]:
    """Clocked seconds and joules of kernels that take a second together."""
    each = POWER[BURST] * (narrow(POWER, CHIP, "fp8") if "fp8" in name else 1.0)
    found = [kernel_power(POWER, CHIP, work, each, figures) for work in works]
    clocked = sum(float(one.clocked[0] * work.seconds[0]) for one, work in zip(found, works, strict=True))
    return clocked, sum(float(one.joules[0]) for one in found)


def predicted(load: SteadyLoad, figures: ClockFigures) -> tuple[float, float, float]:
    """How much slower it becomes, its watts, and how much lower the clock is."""
    clocked, joules = power_of(load.name, load.works, figures)
    governor = governor_with(figures)
    x = governor.slowdown(clocked * load.duty, joules * load.duty)
    slower, pause = 1 + clocked * (x - 1), 1 / load.duty - 1
    return slower, governor.active_w + joules * governor.energy_share(x) / (slower + pause), x


def governor_with(figures: ClockFigures, window_s: float = 0.05) -> Governor:
    known = governor_of(POWER, CHIP)
    return Governor(
        limit_w=known.limit_w, active_w=known.active_w, voltage=figures.voltage, window_s=window_s, most=known.most
    )


def errors(loads: Sequence[SteadyLoad], figures: ClockFigures) -> Table:
    """log(predicted / measured) of time, watts and clock, a row a load; no clock of work that pauses, which NVML sees
    between its pieces."""
    rows = []
    for load in loads:
        slower, watts, x = predicted(load, figures)
        clock = np.log(x / load.clock) if load.duty == 1 else 0.0
        rows.append((np.log(slower / load.slower), np.log(watts / load.watts), clock))
    return np.array(rows)


def fitted(loads: Sequence[SteadyLoad]) -> ClockFigures:
    scale = np.array([TIME_ERROR, WATTS_ERROR, CLOCK_ERROR])

    def residual(trial: Mapping[str, float]) -> Table:
        return np.asarray((errors(loads, ClockFigures(**trial)) / scale).ravel())

    return ClockFigures(**fit(residual, RANGES, scale=OUTLIER))


def told(name: str, loads: Sequence[SteadyLoad], figures: ClockFigures) -> str:
    time, watts, clock = np.abs(np.expm1(errors(loads, figures))).mean(axis=0)
    return f"{name:24} {len(loads):2} loads: time {time:.1%}, watts {watts:.1%}, clock {clock:.1%}"


def spread(loads: Sequence[SteadyLoad], figures: ClockFigures) -> float:
    """Root mean square of log(predicted / measured) of what loads are slowed down by, beyond 1."""
    slowed = [(load.slower - 1, predicted(load, figures)[0] - 1) for load in loads if load.slower > 1 + LEAST_SLOWED]
    return float(np.sqrt(np.mean([np.log(ours / measured) ** 2 for measured, ours in slowed])))


def piece_errors(load: Mapping[str, Any], pieces: Table, governor: Governor, figures: ClockFigures) -> Table:
    """Predicted over measured time, less 1, of every piece of a load whose work starts, stops and changes."""
    own = pieces[pieces[:, 0] == load["load"]]
    works = []
    for number, work in enumerate(load["works"]):
        burst = float(np.median(own[own[:, 2] == number][FIRST, 4]))
        flops, moved = (work[name] * work["calls"] / burst for name in ("flops", "bytes"))
        name = "decode" if flops / moved < 20 else "gemm"
        works.append((burst, *power_of(name, kernels(name, flops, moved), figures)))
    clocked = watts = 0.0
    end, wrong = load["begin_s"], []
    for _, _, number, at, took in own:
        burst, own_clocked, own_watts = works[int(number)]
        idle = exp(-max(at - took - end, 0.0) / governor.window_s)
        x = governor.slowdown(clocked * idle, watts * idle)
        wrong.append(burst * (1 + own_clocked * (x - 1)) / took - 1)
        keep = exp(-took / governor.window_s)
        clocked = own_clocked + (clocked * idle - own_clocked) * keep
        watts = own_watts + (watts * idle - own_watts) * keep
        end = at
    return np.array(wrong)


def window(folder: Path, names: Sequence[str], figures: ClockFigures, windows: Sequence[float]) -> list[float]:
    """Mean error of the pieces of these loads, for each window."""
    found = json.loads(text_of(folder, "governor.json"))
    pieces = table_of(folder, "governor-pieces.csv")
    loads = [load for load in found["loads"] if load["name"] in names]
    return [
        float(np.mean([
            np.abs(piece_errors(load, pieces, governor_with(figures, each), figures)).mean() for load in loads
        ]))
        for each in windows
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where tools/governor.py wrote its files")
    folder = parser.parse_args().folder
    loads = list(steady(folder))
    half, aside = loads[::2], loads[1::2]
    seen = fitted(half)
    print(told("fitted to", half, seen))
    print(told("kept aside", aside, seen))
    print(f"what these are slowed down by: {spread(aside, seen):.2f} (log)")
    figures = fitted(loads)
    print(told("fitted to all", loads, figures))
    for load in loads:
        slower, watts, x = predicted(load, seen)
        print(
            f"  {'aside' if load in aside else 'seen':5} {load.name:34} slower {load.slower:.3f} {slower:.3f}  "
            f"watts {load.watts:.0f} {watts:.0f}  clock {load.clock:.2f} {x:.2f}"
        )
    print({name: round(value, 3) for name, value in asdict(figures).items()})
    for names in (ALTERNATING[::2], ALTERNATING[1::2], ALTERNATING):
        found = window(folder, names, figures, WINDOWS_S.tolist())
        best = int(np.argmin(found))
        print(f"window {WINDOWS_S[best] * 1e3:.0f} ms: pieces off by {found[best]:.1%} in {', '.join(names)}")


if __name__ == "__main__":
    main()
