"""PyTorch-Direct: rows of features read from host memory by the GPU, against gathered by the CPU and copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.lab.base import (
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
from gnomon.lab.bench import Bench
from gnomon.lab.host_table import (
    GATHER_RATES,
    Collected,
    HostTable,
    collected_s,
    differing,
    gather_rates,
    read_s,
)
from gnomon.lab.priced import copy_bytes_s
from gnomon.spec import Chip

OVERLAPPED, SERIAL, IN_PLACE = "gathered and copied at once", "gathered, then copied", "read in place"
PLAIN = (OVERLAPPED, SERIAL)
WIDTHS = (602, 100, 256)
"""Floats of a node: Reddit's, those of OGB's graph of purchases, and a hidden layer's."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.need_triton("a kernel that reads host memory")
    bench.tell("drawing the table")
    table = HostTable.drawn(bench, sizes["table_bytes"])
    facts: dict[str, Any] = {"table_bytes": FP32_BYTES * table.flat.numel(), **gather_rates(table)}
    facts["cpu_threads"] = bench.torch.get_num_threads()
    checks: list[Check] = []
    runs: dict[tuple[str, int], LabRun] = {}
    for width in WIDTHS:
        bench.tell(f"rows of {width} floats")
        bench.release()
        _timed(table, width, sizes, checks, runs)
    compared = [
        row.compared(
            runs[str(row.shape["plain"]), int(row.shape["width"])],
            runs[IN_PLACE, int(row.shape["width"])],
            deferred_s=0.0,
        )
        for row in rows(sizes)
    ]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "seconds of a batch among others, from an idle device to an idle one; rows are drawn at random, their indices are "
    "in host memory for the CPU and on the GPU for the kernel",
    "gathered by torch.index_select with all threads into pinned memory; at once: a batch is copied while the next is "
    "gathered, as loaders that prefetch do",
)


def _timed(
    table: HostTable,
    width: int,
    sizes: Mapping[str, int],
    checks: list[Check],
    runs: dict[tuple[str, int], LabRun],
) -> None:
    """Each way of one width, its rows checked first."""
    bench, count, batches = table.bench, sizes["rows"], sizes["batches"]
    indices = table.indices(width, count, batches)
    there = [index.to(bench.device) for index in indices]
    pipeline, out = Collected(table, width, count), bench.empty(count, width, dtype=bench.torch.float32)

    def overlapped() -> None:
        for index in indices:
            pipeline.fetch(index)

    def serial() -> None:
        for index in indices:
            pipeline.fetch(index)[1].synchronize()

    def in_place() -> None:
        for index in there:
            table.read(width, index, out, aligned=True)

    for name, call in ((OVERLAPPED, overlapped), (SERIAL, serial), (IN_PLACE, in_place)):
        for each in (*pipeline.there, out):
            each.zero_()
        call()
        bench.synchronize()
        found = out if name == IN_PLACE else pipeline.last
        wrong = differing(table, width, indices[-1], found)
        checks.append(Check(what=f"{width} floats, {name}: values that differ", difference=wrong, bound=0.0))
        runs[name, width] = bench.wall(call, sizes["repeats"]).each(batches)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(
        LabRow(
            what=f"rows of {width} floats, {IN_PLACE} against {plain}",
            shape={"rows": sizes["rows"], "width": width, "plain": plain},
        )
        for width in WIDTHS
        for plain in PLAIN
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The CPU's gather and the copy, their sum or the longer; a kernel's reads of lines over the link."""
    count, width = int(row.shape["rows"]), int(row.shape["width"])
    collected, copied = collected_s(rates, count, width), FP32_BYTES * count * width / copy_bytes_s(chip)
    plain = max(collected, copied) if row.shape["plain"] == OVERLAPPED else collected + copied
    by = f"the link of {chip.name} to its host, and gathers of other rows by the CPU as the run measured them alone"
    return Predicted.of_seconds(plain, read_s(chip, count, width, aligned=True), by)


EXPERIMENT = Experiment(
    slug="pytorch-direct",
    title="PyTorch-Direct: rows of features read in place by the GPU, or gathered by the CPU and copied",
    checks="rows on the GPU equal those of the table, bit by bit, whoever gathered them",
    claim=LabClaim(
        what="47.1% less time for transfers of features, up to 1.6 times the speed of training",
        comparable=False,
        why="the paper's gain is over its CPU's gather and PCIe 3.0 or 4.0 link; this is another CPU and PCIe 5.0",
    ),
    sizes=(
        Size("table_bytes", "bytes of the pinned table", default=2**33, on_cpu=2**20, least=2**16, most=2**40),
        Size("rows", "rows of a batch", default=200_000, on_cpu=60, most=10**8),
        Size("batches", "batches timed together", default=10, on_cpu=2, most=1000),
        Size("repeats", "timed repeats", default=5, on_cpu=1, most=100),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=GATHER_RATES,
)
