"""TEMPI: strided objects packed by one kernel, against a copy for each block and against a strided copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.calibrate.timer import copies_for
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import TRITON, call_rate, repeated
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.lab.ways import Ways
from gnomon.spec import Chip

LOOP, LOOP_GRAPH = "a copy for each block", "a copy for each block in a CUDA graph"
STRIDED, STAGED = "a strided copy in a CUDA graph", "packed, then copied to the host"
ONE, ONE_GRAPH, ONE_SHOT = "one kernel", "one kernel in a CUDA graph", "packed into host memory"
TECHNIQUES = {STRIDED: ONE_GRAPH, STAGED: ONE_SHOT, LOOP_GRAPH: ONE_GRAPH, LOOP: ONE}
STRIDE, SECTOR, CELL, RADIUS = 512, 32, 8, 3
"""Bytes: between blocks, of what memory is read in, of a cell; and ghost cells on each side of a grid."""
NARROW, WIDE = 1, 256
"""Bytes of a block, at both ends of the paper's range."""
LOOPED = 4096
"""Blocks that are copied one by one at most."""
PROGRAM = 1024
COPY, LINK = "tensor_copy_launches_s", "gpu_to_host_bytes_s"
"""Of a tensor's own copies, launched one by one; and of the link."""
SOURCES = 2**34
"""Bytes of all sources of a layout at most."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Planes of rows of blocks: words of a block, and strides in words."""

    planes: int
    rows: int
    words: int
    word_bytes: int
    row_stride: int
    plane_stride: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.planes, self.rows, self.words

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.plane_stride, self.row_stride, 1

    @property
    def blocks(self) -> int:
        return self.planes * self.rows

    @property
    def packed_bytes(self) -> int:
        return self.blocks * self.words * self.word_bytes

    @property
    def span(self) -> int:
        """Words from the first to the last."""
        return self.planes * self.plane_stride

    @property
    def read_bytes(self) -> int:
        """Of full sectors: those of a block that begins at one, or the average over all words that it may begin at."""
        block = self.words * self.word_bytes
        aligned = self.row_stride * self.word_bytes % SECTOR == 0
        touched = block + -block % SECTOR if aligned else block - self.word_bytes + SECTOR
        return min(self.blocks * touched, self.span * self.word_bytes)


@dataclass(frozen=True, slots=True)
class _Object:
    """A source with several objects of a layout, and room for one of them without gaps."""

    torch: Any
    layout: Layout
    source: Any
    first: tuple[int, ...]
    """Where each object begins."""
    out: Any
    host: Any

    def loop(self) -> Any:
        layout, source, flat = self.layout, self.source, self.out.view(-1, self.layout.words)
        for block in range(layout.blocks):
            plane, row = divmod(block, layout.rows)
            start = self.first[0] + plane * layout.plane_stride + row * layout.row_stride
            flat[block].copy_(source[start : start + layout.words])
        return self.out

    def strided(self, turn: int = 0) -> Any:
        layout = self.layout
        view = self.torch.as_strided(self.source, layout.shape, layout.strides, self.first[turn])
        self.out.view(layout.shape).copy_(view)
        return self.out

    def one(self, turn: int = 0, out: Any = None) -> Any:
        from gnomon.lab.kernels.packing import packed

        layout, target = self.layout, self.out if out is None else out
        count = layout.blocks * layout.words
        packed[(-(-count // PROGRAM),)](
            self.source[self.first[turn] :], target, count, layout.rows, layout.row_stride, layout.plane_stride,
            WORDS=layout.words, BLOCK=PROGRAM,
        )  # fmt: skip
        return target

    def staged(self) -> Any:
        self.host.copy_(self.one(), non_blocking=True)
        return self.host

    def one_shot(self) -> Any:
        return self.one(out=self.host)

    def truth(self, turn: int = 0) -> Any:
        """Words gathered by their places."""
        layout, device = self.layout, self.source.device
        planes, rows, words = (self.torch.arange(size, device=device) for size in layout.shape)
        places = (planes * layout.plane_stride)[:, None, None] + (rows * layout.row_stride)[None, :, None] + words
        return self.source[self.first[turn] + places.flatten()]


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.need_triton("a packing kernel on a GPU")
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    for name, layout in _layouts(sizes).items():
        bench.release()
        bench.tell(name)
        ways = _timed(bench, _drawn(bench, layout), name)
        checks += ways.checks
        notes += ways.notes
        for row in rows(sizes):
            plain, mine = (ways.runs.get(str(row.shape[which])) for which in ("plain", "technique"))
            if row.shape["object"] == name and plain is not None and mine is not None:
                compared.append(row.compared(plain, mine, deferred_s=0.0))
    notes = [*NOTES, *dict.fromkeys(notes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=_rates(bench), notes=tuple(notes))


NOTES = (
    "the same machine packs, without MPI; in a CUDA graph: device time, the strided copy and its kernel with cold "
    "sources; a copy for each block and the kernel against it: wall time of a call among others like it; to the host: "
    "wall time from an idle GPU to an idle one",
    "words are as wide as blocks allow, in PyTorch's copy too",
)


def _timed(bench: Bench, task: _Object, name: str) -> Ways:
    """Each way checked and timed."""
    ways, truth = Ways(bench), task.truth()
    # Without a GPU, PyTorch's strided copy stands in for the kernel.
    cuda = bench.device == "cuda"
    one = task.one if cuda else task.strided
    staged, one_shot = (task.staged, task.one_shot) if cuda else (partial(_copied, task),) * 2
    calls: dict[str, tuple[Callable[[], Any], Callable[[], LabRun]]] = {
        STRIDED: (task.strided, partial(bench.cold, task.strided, len(task.first))),
        ONE: (one, partial(repeated, bench, one)),
        ONE_GRAPH: (one, partial(bench.cold, one, len(task.first))),
        STAGED: (staged, partial(bench.wall, staged, 15, warm=3)),
        ONE_SHOT: (one_shot, partial(bench.wall, one_shot, 15, warm=3)),
    }
    if task.layout.blocks <= LOOPED:
        calls[LOOP] = task.loop, partial(repeated, bench, task.loop)
        calls[LOOP_GRAPH] = task.loop, partial(bench.cold, lambda _: task.loop(), 1)
    for way, (call, timed) in calls.items():
        task.out.zero_()
        task.host.zero_()
        found = ways.attempt(f"{name}, {way},", call)
        if found is None:
            continue
        unlike = float((found.to(truth.device) != truth).sum())
        ways.checks.append(Check(what=f"{name}, {way}: words that differ", difference=unlike, bound=0.0))
        run = ways.attempt(f"{name}, {way}, timed,", timed) if unlike == 0 else None
        if run is not None:
            ways.runs[way] = run
    return ways


def _copied(task: _Object) -> Any:
    task.host.copy_(task.strided())
    return task.host


def _drawn(bench: Bench, layout: Layout) -> _Object:
    torch = bench.torch
    kind = torch.uint8 if layout.word_bytes == 1 else torch.int64
    copies = copies_for(layout.read_bytes) if bench.timed and bench.device == "cuda" else 1
    copies = max(1, min(copies, SOURCES // (layout.span * layout.word_bytes)))
    source = torch.randint(
        1, 256, (copies * layout.span * layout.word_bytes,), dtype=torch.uint8, device=bench.device,
        generator=bench.generator(SEED + 140),
    )  # fmt: skip
    count = layout.blocks * layout.words
    first = tuple(turn * layout.span for turn in range(copies))
    return _Object(torch, layout, source.view(kind), first, bench.empty(count, dtype=kind), bench.pinned(count, kind))


def _rates(bench: Bench) -> dict[str, float]:
    """Small copies and Triton kernels per second that the host launches, and the link to the host, measured alone."""
    if not bench.timed:
        return {}
    small = _drawn(bench, Layout(1, 1, 64, 1, STRIDE, STRIDE))
    one = small.one if bench.device == "cuda" else small.strided
    return {COPY: call_rate(bench, small.loop), TRITON: call_rate(bench, one)} | link_rates(bench)


def _layouts(sizes: Mapping[str, int]) -> dict[str, Layout]:
    """Objects by name: of many blocks, the face of a grid across its rows, and two of few blocks."""

    def even(nbytes: int, block: int) -> Layout:
        word = CELL if block % CELL == 0 else 1
        count = nbytes // block
        return Layout(1, count, block // word, word, STRIDE // word, count * STRIDE // word)

    grid = sizes["grid"]
    side = grid + 2 * RADIUS
    few, many = sizes["few"], sizes["bytes"]
    return {
        f"{many} bytes in blocks of {NARROW}": even(many, NARROW),
        f"{many} bytes in blocks of {CELL}": even(many, CELL),
        f"a face of {grid} x {grid} cells, {RADIUS} deep": Layout(grid, grid, RADIUS, CELL, side, side * side),
        f"{many} bytes in blocks of {WIDE}": even(many, WIDE),
        f"{few} bytes in blocks of {NARROW}": even(few, NARROW),
    }


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    for name, layout in _layouts(sizes).items():
        for plain, mine in TECHNIQUES.items():
            if layout.blocks <= LOOPED or plain not in (LOOP, LOOP_GRAPH):
                amounts = {"blocks": layout.blocks, "packed": layout.packed_bytes, "read": layout.read_bytes}
                shape = {"object": name, "plain": plain, "technique": mine} | amounts
                yield LabRow(what=f"{name}: {mine} against {plain}", shape=shape)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Launches of copies, or kernels of one block each; a strided copy reads the same sectors as the kernel does."""
    shape, machine, plain = row.shape, torch_machine(chip), str(row.shape["plain"])
    blocks, size = int(shape["blocks"]), float(shape["packed"])
    one = stream_s(machine, float(shape["read"]), size)
    if plain == STRIDED:
        return Predicted.of_seconds(one, one, f"sectors of {chip.name} that both read")
    if plain == LOOP_GRAPH:
        each = stream_s(machine, size / blocks, size / blocks)
        return Predicted.of_seconds(blocks * each, one, f"kernels of {chip.name}, one after the other")
    if plain == LOOP:
        by = "launches as the run measured them alone"
        return Predicted.of_seconds(blocks / rates[COPY], max(one, 1 / rates[TRITON]), by)
    launched, linked = 1 / rates[TRITON], size / rates[LINK]
    by = "launches and the link to the host as the run measured them alone"
    return Predicted.of_seconds(launched + one + 1 / rates[COPY] + linked, launched + max(one, linked), by)


EXPERIMENT = Experiment(
    slug="tempi",
    title="TEMPI: strided objects packed by one kernel",
    checks="every packed word equals the one gathered by its place",
    claim=LabClaim(
        what="MPI_Pack up to 242,000 times and MPI_Send up to 59,000 times a deployed MPI, a halo exchange more than "
        "917 times, on nodes of V100s",
        comparable=False,
        why="the paper's baselines are MPI libraries that copy block by block, 31 us each with both sides; here "
        "PyTorch copies, on one GPU and without MPI, and objects of a million blocks are not copied one by one",
    ),
    sizes=(
        Size("bytes", "of an object, a multiple of 256", default=2**20, on_cpu=2**12, least=256, most=2**22),
        Size("few", "bytes of an object that is copied byte by byte", default=2**10, on_cpu=100, most=LOOPED),
        Size("grid", "cells of a grid along each side", default=512, on_cpu=9, most=768),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(COPY, TRITON, LINK),
)
