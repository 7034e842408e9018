"""ZO2: zeroth-order fine-tuning with blocks streamed from host memory, each updated when it is next there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import (
    BF16_BYTES,
    Check,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import copy_bytes_s, stream_s, torch_machine
from gnomon.lab.stream import WeightStream, link_rates
from gnomon.spec import Chip

EPS, LR = 1e-3, 1e-4
SLOTS = 3
"""Blocks on the GPU at once: one arrives, one is worked on, one leaves."""
MULTIPLES = (1, 4)
"""Sequences, in those of the smallest step."""
RESIDENT, STREAMED = "all resident", "streamed"
NORMAL_CYCLES = 50.0
"""Of one lane of a multiprocessor for a normal value: ten Philox rounds, whose multiplications run at half rate, are
shared by four values, and half a Box-Muller transform."""
TEMPORARIES = 4.5
"""Blocks' worth of memory beside the weights: the direction, both perturbed versions, and the direction scaled."""


@dataclass(slots=True)
class _Tuning:
    """Two perturbed forwards and the update that follows from them; `gradient` is the last step's projected one."""

    bench: Bench
    heads: int
    x: Any
    wanted: Any
    step: int = 0
    gradient: float = 0.0

    def direction(self, flat: Any, step: int, block: int) -> Any:
        """The same normal values for a block and a step, whenever they are needed."""
        generator = self.bench.generator(SEED + 1000 * step + block)
        return self.bench.normal(flat.numel(), dtype=flat.dtype, generator=generator)

    def update(self, flat: Any, step: int, block: int) -> None:
        flat.sub_(self.direction(flat, step, block).mul_(LR * self.gradient))

    def losses(self, weights: Iterator[Any]) -> tuple[Any, Any]:
        """Losses of both perturbed versions. Each block is first updated by what the last step found."""
        torch, above, below = self.bench.torch, self.x, self.x
        for block, flat in enumerate(weights):
            if self.step:
                self.update(flat, self.step - 1, block)
            z = self.direction(flat, self.step, block).mul_(EPS)
            above = blocks.forward(torch, above, flat + z, self.heads)
            below = blocks.forward(torch, below, flat - z, self.heads)
            del z
        return tuple((each - self.wanted).double().square().mean() for each in (above, below))

    def advance(self, weights: Iterator[Any]) -> float:
        """One step; the mean of its losses."""
        with self.bench.torch.no_grad():
            above, below = self.losses(weights)
            pair = float(above), float(below)
        self.gradient = (pair[0] - pair[1]) / (2 * EPS)
        self.step += 1
        return sum(pair) / 2


def _tuning(bench: Bench, sizes: Mapping[str, int], sequences: int) -> _Tuning:
    x = blocks.inputs(bench, sequences, sizes["tokens"], sizes["width"])
    return _Tuning(bench, sizes["heads"], x, x.roll(1, 1))


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("allocating host memory")
    host = blocks.drawn(bench, sizes["layers"], sizes["width"])
    checks = [blocks.against_definition(bench), *_definition(bench)]
    facts: dict[str, Any] = {"block_bytes": blocks.block_bytes(sizes["width"]), **link_rates(bench)}
    checks += _same(bench, sizes, host)
    runs: dict[tuple[str, int], LabRun] = {}
    for sequences in _batches(sizes):
        bench.tell(f"{sequences} sequences")
        for way in (RESIDENT, STREAMED):
            bench.release()
            tuning = _tuning(bench, sizes, sequences)
            step = _steps(bench, host, way, tuning)
            runs[way, sequences] = bench.wall(step, sizes["repeats"], host_bytes=len(host) * facts["block_bytes"])
            del tuning, step
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "plain: all blocks on the GPU, the same two forwards and the same update, merged into the next step's pass",
    "the last update stays to be done in both ways, as in the paper",
)


def _steps(bench: Bench, host: Sequence[Any], way: str, tuning: _Tuning) -> Callable[[], float]:
    if way == RESIDENT:
        there = [flat.to(bench.device, copy=True) for flat in host]
        return lambda: tuning.advance(iter(there))
    stream = WeightStream(bench, host, SLOTS, write_back=True)
    coming = stream.endless()
    return lambda: tuning.advance(next(coming) for _ in range(len(host)))


def _same(bench: Bench, sizes: Mapping[str, int], host: Sequence[Any]) -> Iterator[Check]:
    """The weights after several steps, resident and streamed; host memory is restored."""
    kept, steps = [flat.clone() for flat in host], sizes["steps"]
    there = [flat.to(bench.device, copy=True) for flat in host]
    plain, mine = (_tuning(bench, sizes, sizes["sequences"]) for _ in range(2))
    losses = [plain.advance(iter(there)) for _ in range(steps)]
    stream = WeightStream(bench, host, SLOTS, write_back=True)
    order = stream.each(list(range(len(host))) * steps)
    found = [mine.advance(next(order) for _ in range(len(host))) for _ in range(steps)]
    stream.finish()
    del order
    apart = sum(int((a != b.cpu()).sum()) for a, b in zip(host, there, strict=True))
    yield Check(what=f"weights that differ after {steps} steps from all resident", difference=float(apart), bound=0.0)
    worst = max(abs(a - b) for a, b in zip(found, losses, strict=True))
    yield Check(what=f"losses of {steps} steps, apart from all resident", difference=worst, bound=0.0)
    still = sum(not bool((a != b).any()) for a, b in zip(kept, host, strict=True))
    yield Check(what="blocks that no update moved", difference=float(still), bound=0.0)
    for flat, before in zip(host, kept, strict=True):
        flat.copy_(before)


def _definition(bench: Bench) -> Iterator[Check]:
    """In fp64 on a small stack: perturbed in place, restored and updated at once, as MeZO is defined."""
    torch, width, layers, steps = bench.torch, 32, 3, 3
    first = [flat.to(bench.device, copy=True) for flat in blocks.drawn(bench, layers, width, torch.float64)]
    x = blocks.inputs(bench, 2, 9, width, torch.float64)
    lazy, plain = ([flat.clone() for flat in first] for _ in range(2))
    mine, other = (_Tuning(bench, 4, x, x.roll(1, 1)) for _ in range(2))
    for step in range(steps):
        mine.advance(iter(lazy))
        values = []
        for share in (EPS, -2 * EPS):
            for block, flat in enumerate(plain):
                flat.add_(other.direction(flat, step, block), alpha=share)
            found = x
            for flat in plain:
                found = blocks.plainly(torch, found, flat, 4)
            values.append(float((found - other.wanted).square().mean()))
        other.gradient = (values[0] - values[1]) / (2 * EPS)
        for block, flat in enumerate(plain):
            flat.add_(other.direction(flat, step, block), alpha=EPS)
            other.update(flat, step, block)
    for block, flat in enumerate(lazy):
        mine.update(flat, steps - 1, block)
    moved = max(float((a - b).abs().max()) for a, b in zip(plain, first, strict=True))
    apart = max(float((a - b).abs().max()) for a, b in zip(lazy, plain, strict=True))
    what = f"{steps} steps in fp64 against MeZO by definition, over what they move"
    yield Check(what=what, difference=apart / moved, bound=1e-5)


def _compared(row: LabRow, runs: Mapping[tuple[str, int], LabRun]) -> Compared:
    plain, mine = (runs[way, int(row.shape["sequences"])] for way in (RESIDENT, STREAMED))
    return row.compared(plain, mine, deferred_s=0.0)


def _batches(sizes: Mapping[str, int]) -> list[int]:
    return [sizes["sequences"] * each for each in MULTIPLES]


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    stack = {name: sizes[name] for name in ("layers", "width", "heads", "tokens")}
    first, *_ = batches = _batches(sizes)
    memory = LabRow(what="GPU memory of a step", shape=stack | {"sequences": first}, unit="bytes")
    times = (
        LabRow(what=f"a step of {each * sizes['tokens']} tokens", shape=stack | {"sequences": each}) for each in batches
    )
    return memory, *times


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """A block's two forwards and its passes over weights, or its copies up and down at once, whichever is longer."""
    shape = {name: int(value) for name, value in row.shape.items()}
    width, layers, size = shape["width"], shape["layers"], float(blocks.block_bytes(shape["width"]))
    if row.unit == "bytes":
        beside = TEMPORARIES * size + 12 * BF16_BYTES * shape["sequences"] * shape["tokens"] * width
        return Predicted(
            gain=(layers * size + beside) / (SLOTS * size + beside), by="weights on the GPU, temporaries of one block"
        )
    machine = torch_machine(chip)
    compute = 2 * blocks.forward_s(machine, width, shape["heads"], shape["sequences"], shape["tokens"])
    drawn = blocks.parameters(width) * NORMAL_CYCLES / (chip.rates_flops["fp32"] / 2)
    # Two directions drawn and scaled, the update, and both perturbed versions.
    passes = 2 * (drawn + stream_s(machine, size, size)) + 3 * stream_s(machine, 2 * size, size)
    plain = layers * (compute + passes)
    streamed = layers * max(compute + passes, size / copy_bytes_s(chip))
    by = f"kernels of {chip.name}, normal values at {NORMAL_CYCLES:g} cycles of a lane, copies both ways at once"
    return Predicted.of_seconds(plain, streamed, by)


EXPERIMENT = Experiment(
    slug="zo2",
    title="ZO2: zeroth-order fine-tuning with blocks streamed from host memory",
    checks="weights and losses equal those with all blocks on the GPU, bit by bit, and MeZO's by definition in fp64",
    claim=LabClaim(
        what="OPT-175B is fine-tuned in 18 GB of GPU memory with almost no more time than resident zeroth-order steps",
        comparable=False,
        why="the paper's memory is of whole models with embeddings and the driver's own, and no throughput table could "
        "be read; this is of 32 blocks of OPT-6.7B's width without embeddings",
    ),
    sizes=(
        Size("layers", "blocks", default=32, on_cpu=5, most=200),
        Size("width", "hidden width", default=4096, on_cpu=64, most=32768),
        Size("heads", "attention heads", default=32, on_cpu=4, most=256),
        Size("tokens", "tokens of a sequence", default=2048, on_cpu=8, most=2**17),
        Size("sequences", "sequences of the smallest step", default=1, on_cpu=1, most=1024),
        Size("steps", "steps before the comparison", default=3, on_cpu=3, most=100),
        Size("repeats", "timed steps", default=4, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
