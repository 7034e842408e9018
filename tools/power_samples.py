"""What NVML says of a GPU, many times per second: `python -m tools.power_samples power.csv --hz 50`.

Runs until it is told to end (SIGTERM, or Ctrl-C). It is a process of its own, so that reading the card takes no time
from the program that is measured; times are of the machine's monotonic clock, which all its processes share. Needs the
NVIDIA driver and nothing else. Only reads: no setting of the card is touched.
"""

from __future__ import annotations

import argparse
import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COLUMNS = (
    "monotonic_s", "instant_w", "average_w", "memory_w", "sm_mhz", "memory_mhz", "gpu_c", "memory_c", "reasons",
    "energy_j", "power_capped_s",
)  # fmt: skip
AVERAGE_MW, INSTANT_MW, MEMORY_TEMPERATURE = 185, 186, 82
"""NVML_FI_DEV_POWER_AVERAGE, _POWER_INSTANT, _MEMORY_TEMP."""
BOARD, MEMORY = 0, 2
"""NVML_POWER_SCOPE_GPU, _MEMORY."""
SM_CLOCK, MEMORY_CLOCK = 1, 2
POWER_POLICY = 0
"""NVML_PERF_POLICY_POWER: time that the clock was lowered for power."""


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class _Violation(ctypes.Structure):
    _fields_ = (("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong))


class Card:
    """One GPU through the driver's own library. A figure that the card does not give is NaN."""

    def __init__(self, index: int = 0) -> None:
        self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        self._lib.nvmlInit_v2()
        self._handle = ctypes.c_void_p()
        self._lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._handle))

    def _get(self, function: str, kind: Any, *arguments: int) -> float:
        value = kind()
        given = [ctypes.c_int(argument) for argument in arguments]
        code = getattr(self._lib, function)(self._handle, *given, ctypes.byref(value))
        return float("nan") if code else float(value.value)

    def _fields(self, *wanted: tuple[int, int]) -> list[float]:
        values = (_FieldValue * len(wanted))()
        for value, (field, scope) in zip(values, wanted, strict=True):
            value.field, value.scope = field, scope
        code = self._lib.nvmlDeviceGetFieldValues(self._handle, len(wanted), values)
        return [float("nan") if code or value.code else float(value.value & 0xFFFFFFFF) for value in values]

    def _capped_s(self) -> float:
        found = _Violation()
        code = self._lib.nvmlDeviceGetViolationStatus(self._handle, ctypes.c_int(POWER_POLICY), ctypes.byref(found))
        return float("nan") if code else found.violation_ns / 1e9

    def row(self) -> tuple[float, ...]:
        """One reading, in the order of `COLUMNS`."""
        now = time.monotonic()
        wanted = ((INSTANT_MW, BOARD), (AVERAGE_MW, BOARD), (AVERAGE_MW, MEMORY), (MEMORY_TEMPERATURE, BOARD))
        instant, average, memory, memory_c = self._fields(*wanted)
        return (
            now, instant / 1e3, average / 1e3, memory / 1e3,
            self._get("nvmlDeviceGetClockInfo", ctypes.c_uint, SM_CLOCK),
            self._get("nvmlDeviceGetClockInfo", ctypes.c_uint, MEMORY_CLOCK),
            self._get("nvmlDeviceGetTemperature", ctypes.c_uint, 0), memory_c,
            self._get("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong),
            self._get("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1e3,
            self._capped_s(),
        )  # fmt: skip

    def limits_w(self) -> dict[str, float]:
        """The power limit in force, the default, and the range in which an operator may set it."""
        low, high = ctypes.c_uint(), ctypes.c_uint()
        name = "nvmlDeviceGetPowerManagementLimitConstraints"
        getattr(self._lib, name)(self._handle, ctypes.byref(low), ctypes.byref(high))
        return {
            "enforced": self._get("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint) / 1e3,
            "default": self._get("nvmlDeviceGetPowerManagementDefaultLimit", ctypes.c_uint) / 1e3,
            "least": low.value / 1e3,
            "most": high.value / 1e3,
        }


@contextmanager
def sampled(path: Path, hz: float) -> Iterator[None]:
    """Samples of the first GPU in `path` while the block runs."""
    command = [sys.executable, "-m", "tools.power_samples", str(path), "--hz", str(hz)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def write_samples(path: Path, hz: float) -> None:
    ending = False

    def end(*_: object) -> None:
        nonlocal ending
        ending = True

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, end)
    card = Card()
    due = time.monotonic()
    with path.open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        while not ending:
            first, *others = card.row()
            file.write(",".join([f"{first:.4f}", *(f"{value:.10g}" for value in others)]) + "\n")
            due = max(due + 1 / hz, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="table that is written")
    parser.add_argument("--hz", type=float, default=50.0, help="readings per second")
    asked = parser.parse_args()
    write_samples(asked.out, asked.hz)


if __name__ == "__main__":
    main()
