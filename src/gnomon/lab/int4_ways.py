"""Kernels for four-bit GEMMs on this machine: those that run and are correct, and the fastest of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gnomon.calibrate.timer import Timing
from gnomon.errors import CalibrationError
from gnomon.lab import int4
from gnomon.lab.base import Check
from gnomon.lab.bench import Bench

UNFOLDED_FROM = 64
"""Rows from which dequantizing the weights first is tried too."""
FUSED = ("vector", "gemm", "turned")
"""Prefixes of kernels that dequantize inside the GEMM."""
UNFOLDED = "unfolded"
"""Prefix of the one that dequantizes its weights first."""
Call = Callable[[Any, int4.Packed], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The fastest kernel at some sizes, and the times of all."""

    way: str
    call: Call
    timing: Timing | None = None
    ways_s: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    """Kernels that do not build on this machine, and why, and those with wrong results."""
    wrong: tuple[Check, ...] = ()


def ways_of(bench: Bench, x: Any, packed: int4.Packed) -> dict[str, Call]:
    torch, m = bench.torch, int(x.shape[0])
    if not bench.timed:
        return {"PyTorch": partial(int4.plainly, torch)}
    tiles = int4.tiles(m, packed.n, packed.groups, bench.processors)
    ways: dict[str, Call] = {tile.name: partial(int4.fused, torch, tile) for tile in tiles}
    if m >= UNFOLDED_FROM:
        ways[f"{UNFOLDED}, then torch.matmul"] = partial(int4.unfolded, torch)
    return ways


def fastest(bench: Bench, x: Any, narrow: list[int4.Packed], compare: Callable[[str, Any], Check]) -> Chosen:
    """The fastest kernel that runs here and is correct; `compare` checks a result."""
    ways = ways_of(bench, x, narrow[0])
    times: dict[str, Timing | None] = {}
    failed: list[str] = []
    wrong: list[Check] = []
    for name, call in ways.items():
        found, reason = tried(bench, name, call, x, narrow[0])
        if reason:
            failed.append(reason)
            continue
        check = compare(name, found)
        if check.ok:
            times[name] = bench.kernel(lambda i, call=call: call(x, narrow[i]), len(narrow))  # type: ignore[misc]
        else:
            wrong.append(check)
            failed.append(f"{name}, of {x.shape[0]} rows, is wrong")
    if not times:
        raise nothing_runs(failed)
    seconds = {name: timing.seconds for name, timing in times.items() if timing}
    best = min(seconds, key=seconds.__getitem__) if seconds else next(iter(times))
    return Chosen(
        way=best, call=ways[best], timing=times[best], ways_s=seconds, failed=tuple(failed), wrong=tuple(wrong)
    )


def tried(bench: Bench, name: str, call: Call, x: Any, packed: int4.Packed) -> tuple[Any, str]:
    """A kernel's result, or why it cannot be run."""
    try:
        found = call(x, packed)
        bench.synchronize()
        return found, ""
    except _errors() as failure:
        reason = (str(failure).strip().splitlines() or [type(failure).__name__])[0]
        return None, f"{name}, of {x.shape[0]} rows, cannot be run: {reason[:120]}"


def nothing_runs(failed: list[str]) -> CalibrationError:
    return CalibrationError(f"no four-bit GEMM kernel runs here: {failed[0]}")


def _errors() -> tuple[type[Exception], ...]:
    """What launching and building a kernel may raise."""
    try:
        from triton.errors import TritonError
    except ImportError:
        return (RuntimeError,)
    return RuntimeError, TritonError
