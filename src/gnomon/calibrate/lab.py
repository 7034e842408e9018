"""One GPU to measure on: random operands, a timer that watches the clock, and rows of the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from gnomon.calibrate.card import Card, below_clock, held
from gnomon.calibrate.kernels import Row, kernel
from gnomon.calibrate.timer import Timing, time_call
from gnomon.errors import CalibrationError

SEED = 20261115
POOL = 1 << 31
"""Random values kept of a format; operands are pieces of them, so that none has to be drawn anew."""
SHARE = 8
"""The pool takes no more than one part in so many of the card's memory."""
ALIGNED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFormat:
    """A number format as PyTorch names it."""

    name: str
    size: int


FORMATS = {
    "bf16": TorchFormat(name="bfloat16", size=2),
    "fp16": TorchFormat(name="float16", size=2),
    "tf32": TorchFormat(name="float32", size=4),
    "fp8": TorchFormat(name="float8_e4m3fn", size=1),
    "int8": TorchFormat(name="int8", size=1),
}


class Skipped(Exception):
    """A measurement that cannot be made here, and why."""


class Lab:
    """The first GPU. Nothing is judged here but what the driver says of the clock."""

    def __init__(self, torch: Any, card: Card) -> None:
        self.torch, self.card = torch, card
        self.generator = torch.Generator(device="cuda")
        self.generator.manual_seed(SEED)
        self.group: Any = None
        """The processes of collectives, once there are any."""
        self._format, self._pool = "", None
        self._free_bytes = int(torch.cuda.mem_get_info()[0])

    def clock(self) -> float:
        return time.monotonic()

    def problems(self) -> tuple[str, ...]:
        return held(self.card)

    def measure(self, name: str, shape: dict[str, Any]) -> Row:
        """One row; raises `Skipped` where the card or its software cannot."""
        torch = self.torch
        try:
            with torch.no_grad():
                return kernel(name)(self, **shape) | {"temperature_c": self.card.temperature_c}
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            raise Skipped("not enough memory") from None
        except (RuntimeError, ImportError, AttributeError, TypeError, ValueError) as failure:
            self._check_alive(f"{name} {shape}")
            reason = str(failure).splitlines() or [""]
            raise Skipped(f"{type(failure).__name__}: {reason[0][:160]}") from None

    def _check_alive(self, what: str) -> None:
        """A fault on the card poisons every later call of the process: stop, with what is measured kept."""
        try:
            self.torch.cuda.synchronize()
        except RuntimeError as fault:
            reason = str(fault).splitlines()[0]
            raise CalibrationError(f"the card failed on {what}: {reason}", hint="Run again to go on.") from None

    def time(self, call: Callable[[int], Any], copies: int = 1) -> Timing:
        return time_call(self.torch, call, copies, clock=lambda: self.card.sm_hz, full_hz=self.card.most_hz)

    def row(self, op: str, dtype: str, timing: Timing, *, framework: str = "torch", **shape: Any) -> Row:
        took = {"time_us": timing.seconds * 1e6, "spread": timing.spread}
        return {"op": op, "dtype": dtype, "framework": framework, **shape, **took, "sm_hz": timing.sm_hz or ""}

    def empty(self, dtype: str, *shape: int) -> Any:
        return self.torch.empty(*shape, device="cuda", dtype=getattr(self.torch, FORMATS[dtype].name))

    def random(self, dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
        """Tensors of random values, none of which overlaps another."""
        values, found, at = self._values(dtype), [], 0
        for shape in shapes:
            size = prod(shape)
            if at + size > values.numel():
                raise Skipped("operands larger than the memory kept for them")
            found.append(values[at : at + size].view(*shape))
            at += -(-size // ALIGNED) * ALIGNED
        return found

    def _values(self, dtype: str) -> Any:
        """The pool of a format; only the last one is kept."""
        if self._format != dtype:
            self._pool = None
            self.torch.cuda.empty_cache()
            kind = FORMATS[dtype]
            count = min(POOL, self._free_bytes // SHARE // kind.size)
            self._pool, self._format = _drawn(self.torch, kind.name, count, self.generator), dtype
        return self._pool

    def close(self) -> None:
        if self.group is not None:
            self.group.close()

    def settle(self, seconds: float = 0.3) -> tuple[str, ...]:
        """Warm up on light work, and say whether the clock stays low."""
        (x,) = self.random("bf16", (8192, 8192))
        start, clocks, watts = time.monotonic(), [0.0], [0.0]
        while time.monotonic() - start < seconds:
            for _ in range(50):
                x.add_(0.0)
            clocks.append(self.card.sm_hz)
            watts.append(self.card.watts)
            self.torch.cuda.synchronize()
        middle = len(clocks) // 2
        now, drawn = sorted(clocks)[middle], sorted(watts)[middle]
        return below_clock(now, self.card.most_hz, drawn, self.card.limits_w()[0])


def _drawn(torch: Any, name: str, count: int, generator: Any) -> Any:
    """Normal values; whole ones for int8. Drawn in pieces, since some formats are cast from wider ones."""
    kind, piece = getattr(torch, name), 1 << 27
    out = torch.empty(count, device="cuda", dtype=kind)
    for start in range(0, count, piece):
        size = min(piece, count - start)
        if name == "int8":
            values = torch.randint(-127, 128, (size,), device="cuda", dtype=kind, generator=generator)
        else:
            values = torch.randn(size, device="cuda", dtype=torch.bfloat16, generator=generator)
        out[start : start + size] = values.to(kind)
    return out
