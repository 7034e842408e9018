"""Dissecting tensor cores: GEMM rates by format and by contents, beside the data sheet's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import gemm_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

FP32, TF32, FP16, BF16, FP8, INT8 = "fp32", "tf32", "fp16", "bf16", "fp8", "int8"
FORMATS = (TF32, FP16, BF16, FP8, INT8)
WHOLE = 3
"""Operands are whole numbers up to this: a GEMM of them is exact in every format with fp32 or int32 sums."""
FP8_BOUND = 0.05
"""Hopper's GEMMs in fp8 sum in fewer bits than fp32 has."""


@dataclass(frozen=True, slots=True)
class _Operands:
    """Matrices [n, n] of whole numbers, or of normal ones, in any format."""

    bench: Bench
    a: Any
    b: Any

    def call(self, form: str) -> Callable[[], Any]:
        """The product of a and b transposed in a format."""
        torch, a, b = self.bench.torch, self.a, self.b
        if form == FP32 or self.bench.device != "cuda":
            return lambda: torch.matmul(a, b.T)
        if form == TF32:
            return self._tf32
        if form in (FP16, BF16):
            kind = {FP16: torch.float16, BF16: torch.bfloat16}[form]
            left, right = a.to(kind), b.to(kind)
            return lambda: torch.matmul(left, right.T)
        if form == FP8:
            one = torch.ones((), device=a.device)
            left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            return lambda: torch._scaled_mm(left, right.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        left, right = a.to(torch.int8), b.to(torch.int8)
        return lambda: torch._int_mm(left, right.T)

    def _tf32(self) -> Any:
        with self.bench.tf32():
            return self.bench.torch.matmul(self.a, self.b.T)


def _operands(bench: Bench, side: int, contents: str) -> _Operands:
    torch, generator = bench.torch, bench.generator(SEED + 61)
    shape = (side, side)
    if contents == "zeros":
        return _Operands(bench, *(torch.zeros(shape, device=bench.device) for _ in range(2)))
    if contents == "random":
        return _Operands(bench, *(bench.normal(*shape, dtype=torch.float32, generator=generator) for _ in range(2)))
    return _Operands(
        bench,
        *(torch.randint(-WHOLE, WHOLE + 1, shape, device=bench.device, generator=generator).float() for _ in range(2)),
    )


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    side = sizes["side"]
    checks = [*_accumulation(bench)]
    ways = Ways(bench)
    bench.tell("GEMMs of whole numbers")
    whole = _operands(bench, side, "whole")
    few = min(side, 64)
    truth = whole.a[:few].double() @ whole.b.double().T
    for form in (FP32, *FORMATS):
        found = ways.attempt(f"{form} of whole numbers", whole.call(form))
        if found is not None:
            if form == FP8:
                checks.append(close("fp8: GEMMs of whole numbers", found[:few], truth, FP8_BOUND))
                continue
            exact = truth.to(found.dtype).double()
            wrong = float((found[:few].double() != exact).sum())
            checks.append(Check(what=f"{form}: GEMMs of whole numbers that differ", difference=wrong, bound=0.0))
    del whole, truth
    for contents in ("random", "zeros"):
        operands = _operands(bench, side, contents)
        for form in (FP32, *FORMATS) if contents == "random" else FORMATS:
            bench.release()
            bench.tell(f"{form}, {contents}")
            _timed(ways, operands, form, contents)
        del operands
    compared = [*_compared(rows(sizes), ways)]
    rates = {
        f"{name.replace(', ', '_').replace(' ', '_')}_flops_s": 2 * side**3 / run.seconds
        for name, run in ways.runs.items()
        if run.seconds
    }
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=rates, notes=(*NOTES, *ways.notes))


NOTES = (
    "cuBLAS by way of PyTorch, launches queued ahead; a sample is some 30 ms of work after 10 ms of rest",
    "plain: fp32 without tensor cores; random numbers are normal, in int8 cut to whole ones; zeros draw less power, so "
    "that the clock is higher",
)


def _timed(ways: Ways, operands: _Operands, form: str, contents: str) -> None:
    call = operands.call(form)
    run = ways.attempt(f"{form}, {contents},", partial(ways.bench.queued, call))
    if run is not None:
        ways.runs[f"{form}, {contents}"] = run


def _compared(planned: tuple[LabRow, ...], ways: Ways) -> Iterator[Compared]:
    for row in planned:
        plain, mine = ways.runs.get(str(row.shape["plain"])), ways.runs.get(str(row.shape["technique"]))
        if plain is not None and mine is not None:
            yield row.compared(plain, mine, deferred_s=0.0)


def _accumulation(bench: Bench) -> Iterator[Check]:
    """Numeric behaviour: sums of a GEMM of bf16 numbers are kept in more than bf16."""
    torch, k = bench.torch, 4096
    ones = torch.ones(16, k, dtype=torch.bfloat16, device=bench.device)
    small = torch.full((16, k), 2.0**-8, dtype=torch.bfloat16, device=bench.device)
    small[:, 0] = 1.0
    found = torch.matmul(ones, small.T)[0, 0].double()
    exact = 1.0 + (k - 1) * 2.0**-8
    apart = abs(float(found) - exact) / exact
    yield Check(what="bf16 sums of 4,095 parts of 2^-8 and a one, relative", difference=apart, bound=2.0**-6)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    side = sizes["side"]

    def row(what: str, plain: str, technique: str) -> LabRow:
        return LabRow(what=what, shape={"side": side, "plain": plain, "technique": technique})

    against = (row(f"{form} against fp32", f"{FP32}, random", f"{form}, random") for form in FORMATS)
    contents = (row(f"{form}, zeros against random numbers", f"{form}, random", f"{form}, zeros") for form in FORMATS)
    return *against, *contents


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The chip's GEMM in each format; the contents of operands are outside the model."""
    plain, mine = (str(row.shape[name]).partition(", ") for name in ("plain", "technique"))
    if plain[0] == mine[0]:
        return None
    machine, side = torch_machine(chip), int(row.shape["side"])
    seconds = [gemm_s(machine, side, side, side, form) for form in (plain[0], mine[0])]
    return Predicted.of_seconds(seconds[0], seconds[1], f"GEMMs of {chip.name} by format")


EXPERIMENT = Experiment(
    slug="tensor-core-dissection",
    title="Dissecting tensor cores: GEMM rates by format and contents",
    checks="GEMMs of whole numbers are exact in every format but fp8, sums are kept in more than bf16",
    claim=LabClaim(
        what="an A100's mma reaches 98% of its peak in fp16, int8 twice and tf32 half of that rate",
        comparable=False,
        why="the paper times single instructions in registers on an A100; these are whole GEMMs with another "
        "instruction (wgmma), at the clock that the power limit leaves",
    ),
    sizes=(Size("side", "rows, columns and inner dimension", default=8192, on_cpu=128, least=64, most=2**15),),
    work=work,
    rows=rows,
    predict=predict,
)
