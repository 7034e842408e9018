"""From sustained work to the board's watts and its clock under the limit.

Watts = a constant + joules of a FLOP and of a byte; where that is more than the board may draw, the clock gives way
(`gnomon.cost.clock`). Attention keeps processors busy besides its GEMMs, so that it draws by the second as well. All
figures are fitted together, to watts and to how much slower work became, and checked on kinds of work set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.table import LARGEST, LEAST_US, MOST_US, number
from gnomon.cost import clock
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

RANGES = {
    "active": (0.2, 0.02, 0.6),
    "flop": (1.3, 0.1, 5.0),
    "byte": (0.8, 0.05, 5.0),
    "limit": (0.99, 0.5, 1.1),
    "busy": (0.65, 0.0, 1.5),
    "narrow": (1.2, 0.5, 3.0),
}
"""Shares of the board's limit: of a busy chip that does nothing, of GEMMs at the full 16-bit rate, of memory at full
bandwidth, of what the board holds, of processors kept busy; and the joules of a FLOP of eight bits beside an even share
of one of sixteen."""
HELD = 1.04
"""Work that is this much slower sustained than in a burst was throttled by the power limit."""
CONSTANT_DATA = ("zeros", "fill")
"""Loads on constant data, which draws less power than random data."""
FORMATS = ("", "bf16", "fp16", "fp8")
NARROW = ("fp8",)
FEW_FLOPS_PER_BYTE = 300.0
"""FLOPs per byte below which GEMMs are memory-bound."""
NOTHING_S = 20e-6
"""A stream this short says nothing of bytes."""
CACHED_BYTES = 1e6
"""Loads that move more than this in a cache alone draw for it, and no operator says so."""
LEAST_LOADS = 3
MOST_WATTS = 2e4
OPTIONAL = (("burst_us", LEAST_US, MOST_US, 0.0), ("duty", 0.0, 1.0, 1.0), ("cached_bytes", 0.0, LARGEST, 0.0))
"""Columns that loads may have: their least, their most, and what stands for them where they are empty."""
FAST_ATTENTION_RATIO = 1.5
"""Attention this much slower than the fastest is not a kernel that training uses."""
USUAL_ATTENTION = 0.55
"""Attention's share of the full rate, where none was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLoad:
    """One kind of sustained work; `busy` is the share of the time it ran, the rest a pause."""

    name: str
    narrow: bool
    burst_s: float
    seconds: float
    watts: float
    flops: float
    bytes: float
    busy: float = 1.0

    @property
    def kind(self) -> str:
        if self.busy < 1:
            return "rest" if not self.busy else "pauses"
        if self.attends:
            return "attention"
        if not self.flops:
            return "streams" if self.seconds > NOTHING_S else "rest"
        if not self.name.startswith("gemm"):
            return "mixtures"
        return (
            "fp8 GEMMs"
            if self.narrow
            else "memory-bound GEMMs"
            if self.flops < FEW_FLOPS_PER_BYTE * self.bytes
            else "GEMMs"
        )

    @property
    def attends(self) -> bool:
        return self.name.startswith("attention")

    @property
    def steady(self) -> bool:
        """Whether its time says how far the clock went down."""
        return self.flops > 0 and self.busy == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What a profile says of power, and the mean errors of watts and of sustained time on kinds of work set aside."""

    figures: dict[str, float]
    held_out: dict[str, float]


def loads(rows: Iterable[Mapping[str, str]], where: str = "") -> list[PowerLoad]:
    """The sustained rows of a table; those of other formats, of data of one value and of a cache are left out."""
    found = [_load(row, where) for row in rows if row["op"] == "sustained"]
    return [load for load in found if load is not None]


def _load(row: Mapping[str, str], where: str) -> PowerLoad | None:
    name, rest = row["kernel"], row["kernel"].startswith("rest")
    seconds = number(row, "time_us", where, most=MOST_US) * 1e-6
    watts = number(row, "watts", where, most=MOST_WATTS)
    flops, moved = (number(row, column, where, least=0.0) for column in ("flops", "bytes"))
    burst_us, duty, cached = (
        number(row, column, where, least, most) if row.get(column) else usual for column, least, most, usual in OPTIONAL
    )
    if any(word in name for word in CONSTANT_DATA) or (flops and row["dtype"] not in FORMATS):
        return None
    if not flops and not moved and cached > CACHED_BYTES:
        return None
    return PowerLoad(
        name=name,
        narrow=row["dtype"] in NARROW,
        burst_s=burst_us * 1e-6 if burst_us and flops else seconds,
        seconds=seconds,
        watts=watts,
        flops=flops,
        bytes=moved,
        busy=0.0 if rest else number(row, "busy", where, most=1.0) if duty < 1 else 1.0,
    )


def board(found: Sequence[PowerLoad], chip: Chip) -> Board:
    """The board's figures. Without a rest and a few loads they are its limit shared out by its data sheet: an upper
    bound."""
    if sum(load.busy > 0 for load in found) < LEAST_LOADS or all(load.busy for load in found):
        return Board(figures=_sheet(chip), held_out={})
    c = _fit(found, chip)
    watts, times = _unseen(found, chip)
    errors = {"watts": watts, "time": times}
    held_out = {name: round(float(np.abs(np.expm1(error)).mean()), 4) for name, error in errors.items() if error.size}
    return Board(figures=_figures(c, found, chip), held_out=held_out)


def _sheet(chip: Chip) -> dict[str, float]:
    span = chip.tdp_w - chip.idle_w
    return {
        "idle_w": chip.idle_w,
        "active_w": chip.idle_w,
        "j_per_flop": span / chip.rate(chip.half),
        "j_per_byte": span / chip.memory_bandwidth_bytes_s,
    }


def _power(c: Mapping[str, float], chip: Chip) -> dict[str, float]:
    per_flop = c["flop"] * chip.tdp_w / chip.rate(chip.half)
    return {
        "idle_w": chip.idle_w,
        "active_w": max(c["active"] * chip.tdp_w, chip.idle_w),
        "j_per_flop": per_flop,
        "j_per_byte": c["byte"] * chip.tdp_w / chip.memory_bandwidth_bytes_s,
        clock.LIMIT: c["limit"],
        clock.BURST: per_flop,
        clock.BUSY: c["busy"] * chip.tdp_w,
        clock.NARROW: c["narrow"],
    }


def _figures(c: Mapping[str, float], found: Sequence[PowerLoad], chip: Chip) -> dict[str, float]:
    power = _power(c, chip)
    rates = [load.flops / load.burst_s for load in found if load.attends]
    fast = [rate for rate in rates if rate * FAST_ATTENTION_RATIO >= max(rates)] or [
        USUAL_ATTENTION * chip.rate(chip.half)
    ]
    each = [clock.attention_joules(power, chip, 1.0, 1.0 / rate) / power[clock.BURST] for rate in fast]
    power[clock.ATTENTION] = float(np.median(each))
    if not any(load.steady and load.seconds > HELD * load.burst_s for load in found):
        power = {name: value for name, value in power.items() if name not in (*clock.KEYS, clock.BUSY)}
    if not any(load.narrow for load in found):
        power.pop(clock.NARROW, None)
    return {name: float(f"{value:.4g}") for name, value in power.items()}


def _fit(found: Sequence[PowerLoad], chip: Chip) -> dict[str, float]:
    return fit(lambda c: np.concatenate(_errors(found, chip, c)), RANGES)


def _unseen(found: Sequence[PowerLoad], chip: Chip) -> tuple[Floats, Floats]:
    """Errors on each kind of work by fits without it; nothing can be said of a kind that is all there is."""
    watts, times = [np.zeros(0)], [np.zeros(0)]
    for kind in sorted({load.kind for load in found}):
        seen, aside = ([load for load in found if (load.kind == kind) == apart] for apart in (False, True))
        if seen:
            drawn, slower = _errors(aside, chip, _fit(seen, chip))
            watts.append(drawn)
            times.append(slower)
    return np.concatenate(watts), np.concatenate(times)


def _errors(found: Sequence[PowerLoad], chip: Chip, c: Mapping[str, float]) -> tuple[Floats, Floats]:
    """log(predicted / measured) of watts, and of the time of steady work."""
    power = _power(c, chip)
    drawn, slower = [], []
    for load in found:
        clock_slowdown, watts = _predicted(load, chip, power)
        drawn.append(np.log(watts / load.watts))
        if load.steady:
            slower.append(np.log(clock_slowdown * load.burst_s / load.seconds))
    return np.array(drawn), np.array(slower)


def _predicted(load: PowerLoad, chip: Chip, power: Mapping[str, float]) -> tuple[float, float]:
    """How much slower a load becomes, and the watts it draws."""
    base = power["active_w"]
    if not load.busy:
        return 1.0, base
    joules, pause_s = _joules(load, chip, power), load.burst_s * (1 / load.busy - 1)
    clock_slowdown = 1.0
    if load.flops:
        one = {"compute_s": load.burst_s, "compute_j": joules, "other_s": pause_s, "other_j": 0.0}
        clock_slowdown = float(
            clock.slowdown(power, chip, **{name: np.array([value]) for name, value in one.items()})[0]
        )
    energy = (joules + base * load.burst_s) / clock_slowdown + base * pause_s
    return clock_slowdown, min(energy / (clock_slowdown * load.burst_s + pause_s), power[clock.LIMIT] * chip.tdp_w)


def _joules(load: PowerLoad, chip: Chip, power: Mapping[str, float]) -> float:
    if load.attends:
        return float(clock.attention_joules(power, chip, load.flops, load.burst_s)) + power["j_per_byte"] * load.bytes
    each = clock.narrow(power, chip, "fp8") if load.narrow else 1.0
    return power[clock.BURST] * each * load.flops + power["j_per_byte"] * load.bytes
