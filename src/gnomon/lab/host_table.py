"""A table of rows in pinned host memory, and ways to bring scattered rows of it to the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.catalog.hardware import node_of
from gnomon.cost.machine import Machine
from gnomon.lab.base import FP32_BYTES, Rates
from gnomon.lab.bench import SEED, Bench
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Pool

LINE = 32
"""Values of a line of 128 bytes."""
CHUNK = 2**26
"""Values that are drawn at once."""
SHORT, LONG = 16, 1024
"""Values of the rows by which the CPU's gathers are measured alone."""
SHORT_RATE, LONG_RATE = "short_row_gather_bytes_s", "long_row_gather_bytes_s"
GATHER_RATES = (SHORT_RATE, LONG_RATE)
PROBE_BYTES, PROBES = 2**27, 4
ROUNDS = 32
"""Programs for each processor of the GPU, where a gather has it alone."""


@dataclass(frozen=True, slots=True)
class HostTable:
    """Random numbers in pinned memory, as a table of any width."""

    bench: Bench
    flat: Any

    @classmethod
    def drawn(cls, bench: Bench, nbytes: int) -> HostTable:
        torch, count = bench.torch, nbytes // FP32_BYTES
        flat, generator = bench.pinned(count, torch.float32), bench.generator(SEED + 61)
        for start in range(0, count, CHUNK):
            part = flat[start : start + CHUNK]
            part.copy_(bench.normal(len(part), dtype=torch.float32, generator=generator))
        bench.synchronize()
        return cls(bench, flat)

    def rows(self, width: int) -> Any:
        nodes = self.flat.numel() // width
        return self.flat[: nodes * width].view(nodes, width)

    def indices(self, width: int, count: int, batches: int) -> list[Any]:
        """Rows of each batch, drawn at random, on the CPU."""
        torch = self.bench.torch
        generator = torch.Generator().manual_seed(SEED + 62 + width)
        nodes = self.flat.numel() // width
        return [torch.randint(0, nodes, (count,), generator=generator) for _ in range(batches)]

    def collect(self, width: int, index: Any, out: Any) -> Any:
        """Gathered by the CPU into a pinned buffer."""
        return self.bench.torch.index_select(self.rows(width), 0, index, out=out)

    def read(self, width: int, index: Any, out: Any, *, aligned: bool, programs: int = 0) -> Any:
        """Gathered by a kernel that reads the table where it is: `programs` large ones, each on a processor of its own,
        or as many small ones as fill the GPU."""
        table = self.rows(width)
        if self.bench.device != "cuda":
            return out.copy_(table[index])
        if programs:
            return read_rows(table, index, out, Programs(programs, rows=8, warps=32), aligned=aligned)
        return read_rows(table, index, out, Programs(ROUNDS * self.bench.processors), aligned=aligned)


@dataclass(frozen=True, slots=True)
class Programs:
    """How many there are of the kernel, the rows that each reads at once, and its warps."""

    count: int
    rows: int = 1
    warps: int = 4


def read_rows(table: Any, index: Any, out: Any, programs: Programs, *, aligned: bool) -> Any:
    """Triton passes on pointers to pinned memory as the GPU sees them."""
    from gnomon.lab.kernels.host_rows import gather

    count, width = out.shape
    grid = min(programs.count, -(-count // programs.rows))
    gather[(grid,)](
        table, index, out, count, width, grid, -(-count // (grid * programs.rows)), ALIGNED=aligned, LINE=LINE,
        ROWS=programs.rows, BLOCK=block_of(width, aligned), num_warps=programs.warps,
    )  # fmt: skip
    return out


def block_of(width: int, aligned: bool) -> int:
    """Values of a row that a program reads at once, with those that a shift leaves out."""
    return 1 << (width + (LINE - 1 if aligned else 0) - 1).bit_length()


class Collected:
    """Batches gathered by the CPU into pinned buffers and copied, each while the next one is gathered."""

    def __init__(self, table: HostTable, width: int, count: int) -> None:
        bench, torch = table.bench, table.bench.torch
        self.table, self.width, self.copies = table, width, bench.stream()
        self._buffers = [bench.pinned(count * width, torch.float32).view(count, width) for _ in range(2)]
        self.there = [bench.empty(count, width, dtype=torch.float32) for _ in range(2)]
        self._copied: list[Any] = [None, None]
        self._turn = 0

    @property
    def last(self) -> Any:
        """Where the last batch's rows are."""
        return self.there[(self._turn - 1) % 2]

    def fetch(self, index: Any, used: Any = None) -> tuple[Any, Any]:
        """The next batch's rows on the GPU, and the event after which they are there. What `there` held before may be
        written over after the event `used`."""
        slot, bench = self._turn % 2, self.table.bench
        self._turn += 1
        if self._copied[slot] is not None:
            self._copied[slot].synchronize()
        self.table.collect(self.width, index, self._buffers[slot])
        with bench.within(self.copies):
            bench.wait(used)
            self.there[slot].copy_(self._buffers[slot], non_blocking=True)
            self._copied[slot] = bench.recorded()
        return self.there[slot], self._copied[slot]


def gather_rates(table: HostTable, nbytes: int = PROBE_BYTES) -> dict[str, float]:
    """Bytes per second that the CPU gathers, in short and in long rows, measured alone; nothing on a CPU."""
    bench = table.bench
    if not bench.timed:
        return {}
    found = {}
    for name, width in ((SHORT_RATE, SHORT), (LONG_RATE, LONG)):
        count = max(1, min(nbytes, FP32_BYTES * table.flat.numel()) // (FP32_BYTES * width))
        out = bench.pinned(count * width, bench.torch.float32).view(count, width)
        calls = [partial(table.collect, width, index, out) for index in table.indices(width, count, PROBES)]
        found[name] = FP32_BYTES * out.numel() / _least(bench, calls)
    return found


def _least(bench: Bench, calls: Sequence[Callable[[], Any]]) -> float:
    calls[0]()
    return max(min(bench.seconds(call) for call in calls[1:]), 1e-9)


def differing(table: HostTable, width: int, index: Any, found: Any) -> float:
    """Values on the GPU that are not those of the table's rows."""
    return float((found.cpu() != table.rows(width)[index]).sum())


def collected_s(rates: Rates, rows: int, width: int) -> float:
    """Predicted seconds of a gather by the CPU, a row's between those of short and of long ones."""
    short, long = FP32_BYTES * SHORT / rates[SHORT_RATE], FP32_BYTES * LONG / rates[LONG_RATE]
    return rows * max(short + (long - short) * (width - SHORT) / (LONG - SHORT), FP32_BYTES * width / rates[LONG_RATE])


def read_s(chip: Chip, rows: int, width: int, *, aligned: bool) -> float:
    """Predicted seconds of a gather by the GPU, as plans price it."""
    import numpy as np

    machine = Machine(Pool.of(chip, 1, node=node_of(chip)), profile_for(chip))
    given = {"rows": rows, "row_bytes": FP32_BYTES * width, "readers": 1, "unaligned": 0 if aligned else 1}
    shape = {name: np.array([float(value)]) for name, value in given.items()}
    return float(machine.seconds("host_rows", "fp32", shape)[0])
