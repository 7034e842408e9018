"""Punica: the low-rank terms of many adapters in one batch, by two kernels, against a loop and batched GEMMs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.calibrate.timer import copies_for
from gnomon.errors import InputError
from gnomon.lab.base import BF16_BYTES, Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import gemm_s, stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

LOOP, GATHERED, GROUPED, TWO = "a loop", "gathered bmm", "grouped GEMM", "two kernels"
PLAIN = (GATHERED, LOOP, GROUPED)
DISTINCT, UNIFORM, SKEWED, IDENTICAL = "distinct", "uniform", "skewed", "identical"
POPULARITIES = (DISTINCT, UNIFORM, SKEWED, IDENTICAL)
RANKS = (16, 64)
SPLITS = (8, 16)
"""Of the width, for the first kernel."""
TILE = 4096
"""Values of an adapter that a program loads at once."""
LATENCY_S = 0.7e-6
"""Of a load from memory that another one's result is the address of: an adapter's index, then its weights."""
BOUND = 0.06
"""Of the outputs' root mean square: bf16 outputs up to five times as large, and bf16 between the GEMMs."""


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """Weights of adapters: down and up [adapters, rank, width] in bf16."""

    down: Any
    up: Any


Way = Callable[[Any, AdapterWeights], Any]
"""Adds the low-rank terms of a batch to its outputs."""


@dataclass(frozen=True, slots=True)
class Served:
    """A batch whose rows, in order of their adapters, are turned by those; `segments` has each one's rows."""

    torch: Any
    x: Any
    which: Any
    ends: Any
    segments: tuple[tuple[int, int, int], ...]
    """Adapter, first row and the one after the last."""

    def loop(self, out: Any, adapters: AdapterWeights) -> Any:
        """Each adapter's rows by two GEMMs, the second added to the output."""
        for one, first, last in self.segments:
            out[first:last].addmm_(self.x[first:last] @ adapters.down[one].T, adapters.up[one])
        return out

    def gathered(self, out: Any, adapters: AdapterWeights) -> Any:
        """Each row's adapter gathered, then two batched GEMMs."""
        down, up = adapters.down[self.which], adapters.up[self.which]
        out[:, None].baddbmm_(self.torch.bmm(self.x[:, None], down.transpose(1, 2)), up)
        return out

    def grouped(self, out: Any, adapters: AdapterWeights) -> Any:
        """PyTorch's GEMM of groups of rows, without copies."""
        narrow = self.torch._grouped_mm(self.x, adapters.down.transpose(1, 2), offs=self.ends)
        return out.add_(self.torch._grouped_mm(narrow, adapters.up, offs=self.ends))

    def two(self, splits: int, out: Any, adapters: AdapterWeights) -> Any:
        """Two Triton kernels."""
        from gnomon.lab.kernels import adapters as kernels

        (tokens, width), rank = self.x.shape, adapters.down.shape[1]
        block = max(16, TILE // rank)
        chunk = block * -(-width // (splits * block))
        parts = self.torch.empty(splits, tokens, rank, dtype=self.torch.float32, device=out.device)
        kernels.shrink[(tokens, splits)](
            self.x, adapters.down, self.which, parts, tokens, width, CHUNK=chunk, RANK=rank, BLOCK=block
        )
        kernels.expand[(tokens, -(-width // block))](
            parts, adapters.up, self.which, out, tokens, width, SPLITS=splits, RANK=rank, BLOCK=block
        )
        return out

    def definition(self, out: Any, adapters: AdapterWeights) -> Any:
        """In fp64, row by row."""
        down, up = (each.double() for each in (adapters.down, adapters.up))
        rows = [(self.x[row].double() @ down[int(one)].T) @ up[int(one)] for row, one in enumerate(self.which.tolist())]
        return out.double() + self.torch.stack(rows)


def segments(popularity: str, batch: int) -> tuple[int, ...]:
    """Rows of each adapter in a batch, the most popular first; skewed: a third of what is left each."""
    if popularity == DISTINCT:
        return (1,) * batch
    if popularity == IDENTICAL:
        return (batch,)
    if popularity == UNIFORM:
        count = math.ceil(math.sqrt(batch))
        return tuple((batch + i) // count for i in reversed(range(count)))
    found, left = [], batch
    while left:
        found.append(-(-left // 3))
        left -= found[-1]
    return tuple(found)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if any(rank & (rank - 1) for rank in _ranks(sizes)):
        hint = "Give 8, 16, 32, 64 or 128."
        raise InputError(f"{sizes['rank']} is not a power of two", where="--size rank", hint=hint)
    bench.need_triton("adapters in one kernel on a GPU")
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    for rank in _ranks(sizes):
        bench.release()
        copies = _drawn(bench, sizes, rank)
        for popularity in POPULARITIES:
            bench.tell(f"rank {rank}, {popularity}")
            ways, best = _timed(bench, _served(bench, sizes, popularity), copies, f"rank {rank}, {popularity}")
            checks += ways.checks
            notes += ways.notes
            for row in rows(sizes):
                plain, mine = ways.runs.get(str(row.shape["plain"])), ways.runs.get(best or "")
                if (row.shape["rank"], row.shape["popularity"]) == (rank, popularity) and plain and mine:
                    shape = dict(row.shape) | {"way": best}
                    compared.append(row.compared(plain, mine, deferred_s=0.0, shape=shape))
        del copies
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "one square projection's low-rank terms, added to its output in place; without the base model's GEMM, which is the "
    "same in all; device time inside a captured CUDA graph, adapters cold, so that no host's launches are in it",
    "a loop: two GEMMs an adapter; gathered bmm: each row's adapter copied out, then two batched GEMMs; grouped GEMM: "
    "torch._grouped_mm twice and a sum",
)


def _timed(bench: Bench, served: Served, copies: list[AdapterWeights], what: str) -> tuple[Ways, str | None]:
    """Each way checked and timed; the faster number of splits of the two kernels."""
    torch, ways = bench.torch, Ways(bench)
    out = bench.normal(*served.x.shape, dtype=torch.bfloat16, generator=bench.generator(SEED + 92))
    truth = served.definition(out, copies[0])
    calls: dict[str, Way] = {LOOP: served.loop, GATHERED: served.gathered, GROUPED: served.grouped}
    if bench.device == "cuda":
        kernels: dict[str, Way] = {f"{TWO}, {splits} splits": partial(served.two, splits) for splits in SPLITS}
    else:
        kernels = {TWO: served.gathered}
    for name, call in {**calls, **kernels}.items():
        found = ways.attempt(f"{what}, {name},", partial(call, out.clone(), copies[0]))
        if found is None:
            continue
        near = close(f"{what}, {name}: against fp64", found, truth, BOUND)
        ways.checks.append(near)
        timed = partial(bench.cold, _in_turn(call, out.clone(), copies), len(copies))
        run = ways.attempt(f"{what}, {name}, timed,", timed)
        if near.ok and run is not None:
            ways.runs[name] = run
    return ways, ways.fastest(tuple(kernels))


def _in_turn(call: Way, out: Any, copies: list[AdapterWeights]) -> Callable[[int], Any]:
    return lambda i: call(out, copies[i])


def _drawn(bench: Bench, sizes: Mapping[str, int], rank: int) -> list[AdapterWeights]:
    """As many copies of the adapters as memory is needed to find them cold."""
    torch, generator = bench.torch, bench.generator(SEED + 90)
    batch, width = sizes["batch"], sizes["width"]
    nbytes = 2 * BF16_BYTES * batch * width * rank

    def drawn(inner: int) -> Any:
        return bench.normal(batch, rank, width, dtype=torch.bfloat16, generator=generator, scale=inner**-0.5)

    count = copies_for(nbytes) if bench.timed else 1
    return [AdapterWeights(down=drawn(width), up=drawn(rank)) for _ in range(count)]


def _served(bench: Bench, sizes: Mapping[str, int], popularity: str) -> Served:
    torch, generator = bench.torch, bench.generator(SEED + 91)
    batch = sizes["batch"]
    counts = segments(popularity, batch)
    chosen = torch.randperm(batch, device=bench.device, generator=generator)[: len(counts)].sort().values.tolist()
    first, found, per_adapter = 0, [], [0] * batch
    for one, count in zip(chosen, counts, strict=True):
        found.append((one, first, first + count))
        per_adapter[one] = count
        first += count
    which = [one for one, start, end in found for _ in range(start, end)]

    def whole(values: Any) -> Any:
        return torch.tensor(values, dtype=torch.int32, device=bench.device)

    x = bench.normal(batch, sizes["width"], dtype=torch.bfloat16, generator=generator)
    ends = whole(per_adapter).cumsum(0, dtype=torch.int32)
    return Served(torch=torch, x=x, which=whole(which), ends=ends, segments=tuple(found))


def _ranks(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return (sizes["rank"],) if sizes["rank"] else RANKS


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    for rank in _ranks(sizes):
        for popularity in POPULARITIES:
            for plain in PLAIN:
                shape = {"batch": sizes["batch"], "width": sizes["width"], "rank": rank}
                shape_of_row = shape | {"popularity": popularity, "plain": plain}
                yield LabRow(what=f"rank {rank}, {popularity}, against {plain}", shape=shape_of_row)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """GEMMs and copies of the plain versions one after the other; adapters read once by two kernels."""
    shape, machine = row.shape, torch_machine(chip)
    batch, width, rank = (int(shape[name]) for name in ("batch", "width", "rank"))
    counts = segments(str(shape["popularity"]), batch)
    side, activations = float(BF16_BYTES * rank * width), float(BF16_BYTES * batch * width)
    if shape["plain"] == LOOP:
        plain = sum(gemm_s(machine, count, rank, width) + gemm_s(machine, count, width, rank) for count in counts)
    elif shape["plain"] == GATHERED:
        copied = 2 * stream_s(machine, len(counts) * side, batch * side)
        multiplied = gemm_s(machine, 1, rank, width, batch=batch) + gemm_s(machine, 1, width, rank, batch=batch)
        plain = copied + multiplied
    else:
        return None
    read = len(counts) * side
    mine = stream_s(machine, read + activations, 0.0) + stream_s(machine, read + activations, activations)
    by = f"GEMMs and streams of {chip.name}, and a dependent load of {LATENCY_S * 1e6:g} us in each of two kernels"
    return Predicted.of_seconds(plain, mine + 2 * LATENCY_S, by)


EXPERIMENT = Experiment(
    slug="punica",
    title="Punica: the low-rank terms of many adapters in one batch",
    checks="every way gives the outputs in fp64, row by row, within what bf16 rounds",
    claim=LabClaim(
        what="12 times the throughput of engines that batch one adapter at a time; a segmented product of 38 to 50 us "
        "where a loop takes 125 us and 55 us more for each adapter, on an A100",
        comparable=False,
        why="the paper's factor is of whole engines, and its loop is launched eagerly; here every version runs in a "
        "CUDA graph on another generation",
    ),
    sizes=(
        Size("batch", "rows, one of each sequence", default=32, on_cpu=11, least=2, most=4096),
        Size("width", "inputs and outputs of the projection, a multiple of 8", default=4096, on_cpu=96, most=65536),
        Size("rank", "of an adapter, a power of two; 0: two ranks", default=0, on_cpu=0, least=0, most=128),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
