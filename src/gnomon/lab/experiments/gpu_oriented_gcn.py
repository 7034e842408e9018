"""GPU-oriented data communication: aligned reads of host memory, beside the GEMMs of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gnomon.lab.base import (
    BF16_BYTES,
    FP32_BYTES,
    Check,
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
from gnomon.lab.host_table import (
    GATHER_RATES,
    Collected,
    HostTable,
    collected_s,
    differing,
    gather_rates,
    read_s,
)
from gnomon.lab.launches import Tally
from gnomon.lab.priced import copy_bytes_s, torch_machine
from gnomon.lab.ways import close
from gnomon.spec import Chip

COLLECTED, FEW, FILLED = "gathered by the CPU", "read by a few programs", "read by a full GPU"
UNALIGNED, ALIGNED = "as they lie", "aligned"
RESIDENT = "a step whose rows are on the GPU"
ODD_WIDTHS = (129, 100)
"""Floats of rows that do not begin on lines of 128 bytes."""
BOUND = 0.05
"""Of gradients, largest over root mean square: the same kernels on the same rows."""

Step = Callable[[], None]


@dataclass(slots=True)
class Network:
    """Linear layers and their gradients, summed over batches: what runs on a batch's rows."""

    bench: Bench
    weights: list[Any] = field(default_factory=list)
    gradient: Any = None

    @classmethod
    def drawn(cls, bench: Bench, sizes: Mapping[str, int]) -> Network:
        generator, bf16, found = bench.generator(SEED + 66), bench.torch.bfloat16, cls(bench)
        for n, k in _layers(sizes):
            weight = bench.normal(n, k, dtype=bf16, generator=generator, scale=(2 / k) ** 0.5)
            found.weights.append(weight.requires_grad_(True))
        found.gradient = bench.normal(
            sizes["rows"], sizes["hidden"], dtype=bf16, generator=generator, scale=sizes["rows"] ** -0.5
        )
        return found

    def train(self, rows: Any) -> None:
        """A batch forward and backward."""
        functional, x = self.bench.torch.nn.functional, rows.to(self.bench.torch.bfloat16)
        for weight in self.weights:
            x = functional.relu(functional.linear(x, weight))
        x.backward(self.gradient)

    def reset(self) -> None:
        for weight in self.weights:
            weight.grad = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Batches brought to the GPU and trained on, two slots taking turns."""

    table: HostTable
    network: Network
    width: int
    indices: list[Any]
    there: list[Any]
    """The same on the GPU."""
    slots: list[Any]
    collected: Collected
    beside: Any
    """A stream."""

    def by_cpu(self) -> None:
        """The next batch is gathered while the GPU trains on this one."""
        bench, used = self.table.bench, [None, None]
        for turn, index in enumerate(self.indices):
            rows, arrived = self.collected.fetch(index, used[turn % 2])
            bench.wait(arrived)
            self.network.train(rows)
            used[turn % 2] = bench.recorded()

    def by_gpu(self, programs: int) -> None:
        """The next batch is read on a stream of its own while the GPU trains on this one."""
        bench, used = self.table.bench, [None, None]
        for turn, index in enumerate(self.there):
            slot = turn % 2
            with bench.within(self.beside):
                bench.wait(used[slot])
                self.table.read(self.width, index, self.slots[slot], aligned=True, programs=programs)
                arrived = bench.recorded()
            bench.wait(arrived)
            self.network.train(self.slots[slot])
            used[slot] = bench.recorded()

    def resident(self) -> None:
        for turn in range(len(self.indices)):
            self.network.train(self.slots[turn % 2])

    def one_by_one(self) -> None:
        """Each batch gathered by PyTorch's operators and waited for: what the others' gradients are checked against."""
        bench = self.table.bench
        for index in self.indices:
            self.network.train(self.table.rows(self.width)[index].to(bench.device))
            bench.synchronize()


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.need_triton("a kernel that reads host memory")
    bench.tell("drawing the table")
    table = HostTable.drawn(bench, sizes["table_bytes"])
    facts: dict[str, Any] = {"table_bytes": FP32_BYTES * table.flat.numel(), **gather_rates(table)}
    checks: list[Check] = []
    runs: dict[tuple[int, str], LabRun] = {}
    for width in ODD_WIDTHS:
        bench.tell(f"rows of {width} floats")
        _reads(table, width, sizes, checks, runs)
    bench.tell("training steps")
    references = _steps(table, sizes, checks, runs)
    compared = [
        row.compared(
            runs[int(row.shape["width"]), str(row.shape["plain"])],
            runs[int(row.shape["width"]), str(row.shape["technique"])],
            deferred_s=0.0,
            of_paper=row.shape["technique"] != FILLED,
        )
        for row in rows(sizes)
    ]
    return Findings(
        checks=tuple(checks), compared=tuple(compared), references=references, facts=facts, notes=NOTES
    )  # fmt: skip


NOTES = (
    "seconds of a batch among others, from an idle device to an idle one; a step is linear layers forward and backward "
    "in bf16, the next batch's rows are brought meanwhile",
    "the paper leaves a share of the GPU to the reads by MPS; here the kernel has few programs, each of which reads "
    "one row after another",
)


def _reads(
    table: HostTable, width: int, sizes: Mapping[str, int], checks: list[Check], runs: dict[tuple[int, str], LabRun]
) -> None:
    """Reads alone, aligned and as rows lie."""
    bench, batches = table.bench, sizes["batches"]
    indices = table.indices(width, sizes["rows"], batches)
    there = [index.to(bench.device) for index in indices]
    out = bench.empty(sizes["rows"], width, dtype=bench.torch.float32)

    def read(aligned: bool) -> None:
        for index in there:
            table.read(width, index, out, aligned=aligned)

    for name in (UNALIGNED, ALIGNED):
        out.zero_()
        read(name == ALIGNED)
        wrong = differing(table, width, indices[-1], out)
        checks.append(Check(what=f"{width} floats, {name}: values that differ", difference=wrong, bound=0.0))
        runs[width, name] = bench.wall(partial(read, name == ALIGNED), sizes["repeats"]).each(batches)


def _steps(
    table: HostTable, sizes: Mapping[str, int], checks: list[Check], runs: dict[tuple[int, str], LabRun]
) -> dict[str, LabRun]:
    """Training steps by each way, whose gradients are checked first, and one whose rows are there."""
    bench, width, batches, loop = table.bench, sizes["width"], sizes["batches"], _loop(table, sizes)
    network = loop.network
    network.reset()
    loop.one_by_one()
    truth = [weight.grad.clone() for weight in network.weights]
    ways: dict[str, Step] = {
        COLLECTED: loop.by_cpu,
        FEW: partial(loop.by_gpu, sizes["programs"]),
        FILLED: partial(loop.by_gpu, 0),
        RESIDENT: loop.resident,
    }
    for name, step in ways.items():
        network.reset()
        step()
        bench.synchronize()
        if name != RESIDENT:
            apart = [
                close("", weight.grad, right, BOUND).difference
                for weight, right in zip(network.weights, truth, strict=True)
            ]
            what = f"a step's rows {name}: gradients of {batches} batches, largest over root mean square"
            checks.append(Check(what=what, difference=max(apart), bound=BOUND))
        runs[width, name] = bench.wall(step, sizes["repeats"]).each(batches)
    return {RESIDENT: runs[width, RESIDENT]}


def _loop(table: HostTable, sizes: Mapping[str, int]) -> Loop:
    bench, width, count = table.bench, sizes["width"], sizes["rows"]
    indices = table.indices(width, count, sizes["batches"])
    return Loop(
        table=table,
        network=Network.drawn(bench, sizes),
        width=width,
        indices=indices,
        there=[index.to(bench.device) for index in indices],
        slots=[bench.empty(count, width, dtype=bench.torch.float32) for _ in range(2)],
        collected=Collected(table, width, count),
        beside=bench.stream(),
    )


def _layers(sizes: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Outputs and inputs of each."""
    for layer in range(int(sizes["layers"])):
        yield int(sizes["hidden"]), int(sizes["hidden"] if layer else sizes["width"])


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("rows", "width", "hidden", "layers", "programs")}
    steps = [
        LabRow(
            what=f"a training step, rows {name} against {COLLECTED}",
            shape=shape | {"plain": COLLECTED, "technique": name},
        )
        for name in (FEW, FILLED)
    ]
    reads = [
        LabRow(
            what=f"rows of {width} floats read {ALIGNED} against {UNALIGNED}",
            shape={"rows": sizes["rows"], "width": width, "plain": UNALIGNED, "technique": ALIGNED},
        )
        for width in ODD_WIDTHS
    ]
    return (*steps, *reads)


def _trained_s(chip: Chip, shape: Mapping[str, Any]) -> float:
    """Kernels of a step: each layer's GEMMs, the activation both ways and the sum of the weights' gradients."""
    tally, count = Tally(torch_machine(chip)), int(shape["rows"])
    tally.stream(FP32_BYTES * count * float(shape["width"]), BF16_BYTES * count * float(shape["width"]))
    for layer, (n, k) in enumerate(_layers(shape)):
        size, weights = float(BF16_BYTES * count * n), float(BF16_BYTES * n * k)
        tally.gemm(count, n, k)
        tally.gemm(n, k, count)
        if layer:
            tally.gemm(count, k, n)
        tally.stream(size, size)
        tally.stream(2 * size, size)
        tally.stream(2 * weights, weights)
    return tally.device_s


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Reads by requests of a line; in a step the longest of what runs at once. Programs that read keep their
    processors from GEMMs, whose thread blocks have all registers of one; a kernel that fills the GPU leaves none."""
    shape, count, width = row.shape, int(row.shape["rows"]), int(row.shape["width"])
    read = read_s(chip, count, width, aligned=True)
    link = f"the link of {chip.name} to its host"
    if shape["technique"] == ALIGNED:
        return Predicted.of_seconds(read_s(chip, count, width, aligned=False), read, f"requests on {link}")
    trained, copied = _trained_s(chip, shape), FP32_BYTES * count * width / copy_bytes_s(chip)
    plain = max(collected_s(rates, count, width), copied, trained)
    left = 1 - min(int(shape["programs"]), chip.sm_count - 1) / chip.sm_count
    mine = max(read, trained / left) if shape["technique"] == FEW else read + trained
    by = f"kernels of {chip.name}, {link}, and gathers of other rows by the CPU as the run measured them alone"
    return Predicted.of_seconds(plain, mine, by)


EXPERIMENT = Experiment(
    slug="gpu-oriented-gcn",
    title="GPU-oriented data communication: aligned reads of host memory beside a training step",
    checks="rows equal those of the table bit by bit, and gradients over all batches those of batches that were "
    "brought and trained on one after the other",
    claim=LabClaim(
        what="65 to 92% higher speed of training than with gathers by the CPU, on several GPUs",
        comparable=False,
        why="the paper trains graph networks on several GPUs that share a host; this is one GPU whose network is "
        "linear layers, on another CPU and link",
    ),
    sizes=(
        Size("table_bytes", "bytes of the pinned table", default=2**33, on_cpu=2**20, least=2**16, most=2**40),
        Size("rows", "rows of a batch", default=200_000, on_cpu=60, most=10**8),
        Size("width", "floats of a row (Reddit: 602)", default=602, on_cpu=24, most=16_384),
        Size("hidden", "outputs of each linear layer", default=1024, on_cpu=16, most=65_536),
        Size("layers", "linear layers", default=4, on_cpu=2, most=1000),
        Size("programs", "of the kernel that reads beside them, each on one processor", default=16, on_cpu=4, most=100),
        Size("batches", "batches timed together", default=10, on_cpu=3, most=1000),
        Size("repeats", "timed repeats", default=5, on_cpu=1, most=100),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=GATHER_RATES,
)
