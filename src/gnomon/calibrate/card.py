"""What the driver says of the card before and while it is measured, and whether its times can be trusted.

A card that others use, that is hot, whose power limit was lowered or whose clock is held down measures something
else than the chip. Everything comes from the driver's own library; what it does not answer is not judged.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Protocol

from gnomon.calibrate.timer import PowerMeter
from gnomon.errors import CalibrationError

REASONS = {
    0x2: "its clocks are set by hand (application clocks)",
    0x8: "the hardware holds its clock down",
    0x10: "it is bound to the clock of other cards (sync boost)",
    0x20: "it is too hot (the driver holds its clock down)",
    0x40: "it is too hot (the hardware holds its clock down)",
    0x80: "the power supply holds its clock down",
}
"""nvml.h, clocks event reasons. The power limit (0x4) is no fault: every large GEMM reaches it."""
IDLE_SHARE = 0.05
"""A card busier than this before we begin works for somebody else."""
LOWERED = 0.97
"""Share of the default power limit below which the limit counts as lowered."""
HELD = 0.9
"""Share of the highest clock below which a light load counts as throttled."""
SM = ctypes.c_int(1)
MOST_PROCESSES = 1024


class Watched(Protocol):
    """What is asked of a card; `Card` reads it from the driver."""

    def others(self) -> int: ...
    def busy(self) -> float: ...
    def limits_w(self) -> tuple[float, float]: ...
    def reasons(self) -> int: ...


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Card(PowerMeter):
    """One NVIDIA card by its driver's library: by its number there, or by its own name (`GPU-…`)."""

    def __init__(self, named: str = "0") -> None:
        super().__init__(int(named) if named.isdecimal() else 0)
        if not named.isdecimal():
            self._lib.nvmlDeviceGetHandleByUUID(named.encode(), ctypes.byref(self._handle))

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._ask("nvmlDeviceGetName", text, ctypes.c_uint(96)) else ""

    def _ask(self, function: str, *arguments: Any) -> bool:
        """Whether the driver knows the question and answered it."""
        call = getattr(self._lib, function, None)
        return call is not None and call(self._handle, *arguments) == 0

    def _number(self, function: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
        value = kind()
        return int(value.value) if self._ask(function, *arguments, ctypes.byref(value)) else None

    def others(self) -> int:
        """Processes that compute on it; asked before we do, so that all are somebody else's."""
        count, found = ctypes.c_uint(MOST_PROCESSES), (_Process * MOST_PROCESSES)()
        return (
            int(count.value) if self._ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), found) else 0
        )

    def busy(self, seconds: float = 0.5) -> float:
        """The largest share of the time that a kernel ran, over a moment."""
        shares, rates = [0.0], _Rates()
        for _ in range(5):
            if self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates)):
                shares.append(rates.gpu / 100)
            time.sleep(seconds / 5)
        return sorted(shares)[len(shares) // 2]

    def limits_w(self) -> tuple[float, float]:
        """The power limit in force and the one it was made with; zeros where the driver does not say."""
        now = self._number("nvmlDeviceGetEnforcedPowerLimit") or self._number("nvmlDeviceGetPowerManagementLimit")
        made = self._number("nvmlDeviceGetPowerManagementDefaultLimit")
        return (now / 1e3, made / 1e3) if now and made else (0.0, 0.0)

    def reasons(self) -> int:
        """Bits of what holds the clock now."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            found = self._number(name, kind=ctypes.c_ulonglong)
            if found is not None:
                return found
        return 0

    @property
    def temperature_c(self) -> float:
        return float(self._number("nvmlDeviceGetTemperature", ctypes.c_int(0)) or 0)

    @property
    def most_hz(self) -> float:
        return (self._number("nvmlDeviceGetMaxClockInfo", SM) or 0) * 1e6

    def notes(self) -> tuple[str, ...]:
        """Memory checks and partitions, which change what a card can do."""
        found, current, pending = [], ctypes.c_uint(), ctypes.c_uint()
        if self._ask("nvmlDeviceGetEccMode", ctypes.byref(current), ctypes.byref(pending)):
            found.append(f"ECC {'on' if current.value else 'off'}")
        if self._ask("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending)) and current.value:
            found.append("MIG on: a part of the card was measured")
        return tuple(found)


def before(card: Watched) -> tuple[str, ...]:
    """Why a card should not be measured now. Ask before this process has touched it."""
    found = []
    others, busy, (now, made) = card.others(), card.busy(), card.limits_w()
    if others:
        found.append(f"{others} other process{' computes' if others == 1 else 'es compute'} on it")
    elif busy > IDLE_SHARE:
        found.append(f"it is {busy:.0%} busy with somebody else's work")
    if now < LOWERED * made:
        found.append(f"its power limit was lowered from {made:.0f} to {now:.0f} W")
    return (*found, *held(card))


def held(card: Watched) -> tuple[str, ...]:
    """What holds its clock down now, beside the power limit."""
    reasons = card.reasons()
    return tuple(text for bit, text in REASONS.items() if reasons & bit)


def below_clock(now_hz: float, most_hz: float, watts: float, limit_w: float) -> tuple[str, ...]:
    """A clock that stays low although neither heat nor power say so was locked."""
    if most_hz and now_hz and now_hz < HELD * most_hz and watts < HELD * limit_w:
        return (f"its clock stays at {now_hz / 1e6:.0f} of {most_hz / 1e6:.0f} MHz under a light load (locked?)",)
    return ()


def refuse(problems: tuple[str, ...], table: str) -> None:
    """Stop on what makes times untrustworthy; what is measured stays in the table."""
    if problems:
        hint = f"{table} keeps what was measured: re-run when this is fixed, or with --force to measure anyway."
        raise CalibrationError(f"the card cannot be trusted now: {'; '.join(problems)}", hint=hint)
