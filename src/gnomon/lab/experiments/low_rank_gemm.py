"""Low-Rank GEMM: a GEMM by way of random low-rank factors of both operands, against dense GEMMs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gnomon.lab.base import (
    Amounts,
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
from gnomon.lab.priced import gemm_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

SIDES = (4096, 8192, 16384)
SHARE = 16
"""The rank is the side over this."""
FP32, TF32, BF16, FP8, LOW_RANK = "fp32", "TF32", "bf16", "fp8", "low rank"
DENSE = (FP32, TF32, BF16, FP8)
RANDOM, DECAYING = "random", "decaying"
DECAY_RANKS = 4.0
"""Ranks of the factors over which the singular values of the decaying matrix fall by e, as a divisor."""
BF16_ERROR = 2.0**-8 * (0.375 / math.log(2)) ** 0.5
"""Relative error of a bf16 product, root mean square: both operands and the result are each rounded by up to 2^-8 of
the power of two below them, uniformly, and mantissas are spread as logarithms are."""
QR_BLOCK = 64
"""Columns that a QR factorisation works on at once; it passes over the others for each block."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch = bench.torch
    checks = [*_exact_rank(bench)]
    notes: list[str] = []
    compared: list[Compared] = []
    for side in _sides(sizes):
        bench.tell(f"side {side}")
        bench.release()
        ways = Ways(bench)
        errors = _errors(bench, side)
        a, b = (_random(bench, side, SEED + seed) for seed in (41, 42))
        _dense(ways, a, b)
        rank = side // SHARE
        wide, narrow = (t.to(torch.bfloat16) for t in (a, b))
        draws = _draws(bench, side, rank)
        ways.run(
            LOW_RANK,
            partial(low_rank, torch, wide, narrow, *draws),
            partial(_in_span, f"side {side}", torch, wide, draws[0]),
        )
        checks += ways.checks
        notes += ways.notes
        compared += _compared([row for row in rows(sizes) if row.shape["side"] == side], ways.runs, errors)
        del a, b, wide, narrow, draws
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "low rank: both operands sketched by random matrices, bases by QR, factors multiplied; bf16 GEMMs, QR in fp32",
    "operands are dense and new in each call: nothing is factored beforehand",
    "the error is of the product, relative, root mean square: near 1 for random operands, whose energy is in all ranks",
)


def low_rank(torch: Any, a: Any, b: Any, right: Any, left: Any) -> Any:
    """a @ b for what lies in the spans of a @ right and of (left @ b) transposed."""
    rows, columns = basis(torch, a @ right), basis(torch, (left @ b).T)
    core = (rows.T @ a) @ (b @ columns)
    return (rows @ core) @ columns.T


def basis(torch: Any, sketch: Any) -> Any:
    """Orthonormal columns with the same span."""
    wide = sketch if sketch.dtype == torch.float64 else sketch.float()
    return torch.linalg.qr(wide)[0].to(sketch.dtype)


def _draws(bench: Bench, side: int, rank: int, dtype: Any = None) -> tuple[Any, Any]:
    generator, dtype = bench.generator(SEED + 43), dtype or bench.torch.bfloat16
    right = bench.normal(side, rank, dtype=dtype, generator=generator)
    return right, bench.normal(rank, side, dtype=dtype, generator=generator)


def _random(bench: Bench, side: int, seed: int) -> Any:
    return bench.normal(side, side, dtype=bench.torch.float32, generator=bench.generator(seed))


def _decaying(bench: Bench, side: int, seed: int) -> Any:
    """Singular values that fall by e over a few ranks, in two random bases."""
    torch, generator = bench.torch, bench.generator(seed)
    scale = side / SHARE / DECAY_RANKS
    values = torch.exp(-torch.arange(side, device=bench.device) / scale)
    left, right = (bench.normal(side, side, dtype=torch.float32, generator=generator) for _ in range(2))
    return (left * values) @ right


def _dense(ways: Ways, a: Any, b: Any) -> None:
    """The product in each format of the tensor cores."""
    torch, side = ways.bench.torch, a.shape[0]
    truth = a[:16].double() @ b.double()

    def check(form: str, bound: float, found: Any) -> Check:
        return close(f"side {side}, {form}", found[:16], truth, bound)

    ways.run(FP32, lambda: torch.matmul(a, b), partial(check, FP32, 1e-4))

    def with_tf32() -> Any:
        with ways.bench.tf32():
            return torch.matmul(a, b)

    ways.run(TF32, with_tf32, partial(check, TF32, 0.02))
    wide, narrow = a.to(torch.bfloat16), b.to(torch.bfloat16)
    ways.run(BF16, lambda: torch.matmul(wide, narrow), partial(check, BF16, 0.08))
    if ways.bench.device == "cuda":
        one = torch.ones((), device=a.device)
        small, columns = a.to(torch.float8_e4m3fn), b.T.contiguous().to(torch.float8_e4m3fn).T
        call = partial(torch._scaled_mm, small, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        ways.run(FP8, call, partial(check, FP8, 0.5))


def _errors(bench: Bench, side: int) -> dict[tuple[str, str], float]:
    """Relative errors of the product, by kind of operands and way."""
    torch, found = bench.torch, {}
    for kind, made in ((RANDOM, _random), (DECAYING, _decaying)):
        a, b = (made(bench, side, SEED + seed) for seed in (44, 45))
        truth = torch.matmul(a, b)
        wide, narrow = a.to(torch.bfloat16), b.to(torch.bfloat16)
        del a, b
        size = float(truth.norm())
        found[kind, BF16] = float((torch.matmul(wide, narrow).float() - truth).norm()) / size
        mine = low_rank(torch, wide, narrow, *_draws(bench, side, side // SHARE))
        found[kind, LOW_RANK] = float((mine.float() - truth).norm()) / size
    return found


def _in_span(what: str, torch: Any, a: Any, right: Any, found: Any) -> Check:
    """What is found lies in the span of the first sketch, to what bf16 rounds."""
    rows = torch.linalg.qr((a @ right).double())[0]
    wide = found.double()
    left = float((wide - rows @ (rows.T @ wide)).norm() / wide.norm())
    return Check(what=f"{what}, low rank: share outside the span of its sketch", difference=left, bound=0.03)


def _exact_rank(bench: Bench) -> Iterator[Check]:
    """In fp64 operands of that rank are multiplied exactly, and orthogonal bases project as by definition."""
    torch, side, rank = bench.torch, 96, 12
    generator = bench.generator(SEED + 46)

    def normal(*shape: int) -> Any:
        return bench.normal(*shape, dtype=torch.float64, generator=generator)

    a, b = (normal(side, rank) @ normal(rank, side) for _ in range(2))
    draws = _draws(bench, side, rank, torch.float64)
    apart = float((low_rank(torch, a, b, *draws) - a @ b).norm() / (a @ b).norm())
    yield Check(what="operands of the rank of the factors in fp64, relative", difference=apart, bound=1e-9)
    a, b = normal(side, side), normal(side, side)
    first, second = a @ draws[0], (draws[1] @ b).T
    projected = (first @ torch.linalg.pinv(first)) @ a @ b @ (second @ torch.linalg.pinv(second))
    apart = float((low_rank(torch, a, b, *draws) - projected).norm() / projected.norm())
    yield Check(what="any operands in fp64 against projections by definition, relative", difference=apart, bound=1e-9)


def _compared(
    planned: list[LabRow], runs: Mapping[str, LabRun], errors: Mapping[tuple[str, str], float]
) -> Iterator[Compared]:
    for row in planned:
        plain, kind = str(row.shape["plain"]), str(row.shape.get("operands", ""))
        if plain not in runs or LOW_RANK not in runs:
            continue
        amounts = Amounts(plain=errors[kind, BF16], technique=errors[kind, LOW_RANK]) if row.unit == "error" else None
        yield row.compared(runs[plain], runs[LOW_RANK], deferred_s=0.0, amounts=amounts)


def _sides(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return (sizes["side"],) if sizes["side"] else SIDES


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    dense = DENSE if sizes["fp8"] else DENSE[:-1]
    found = []
    for side in _sides(sizes):
        shape = {"side": side, "rank": side // SHARE}
        found += [
            LabRow(what=f"side {side}, rank {side // SHARE} against {plain}", shape=shape | {"plain": plain})
            for plain in dense
        ]
        found += [
            LabRow(
                what=f"side {side}, error on {kind} operands against bf16",
                shape=shape | {"plain": BF16, "operands": kind},
                unit="error",
            )
            for kind in (RANDOM, DECAYING)
        ]
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Dense GEMMs by format; of low rank, seven thin GEMMs and two QR factorisations by their textbook counts."""
    side, rank = float(row.shape["side"]), float(row.shape["rank"])
    if row.unit == "error":
        if row.shape["operands"] != RANDOM:
            return None
        lost = (1 - (rank / side) ** 2) ** 0.5
        return Predicted(
            gain=BF16_ERROR / lost, by="rounding of bf16 operands, and the share of energy in a random span"
        )
    machine = torch_machine(chip)
    n, r = int(side), int(rank)
    thin = 2 * gemm_s(machine, n, r, n) + 2 * gemm_s(machine, r, n, n) + gemm_s(machine, r, r, n)
    out = gemm_s(machine, n, r, r) + gemm_s(machine, n, n, r)
    counts = {"flops": 4 * side * rank**2, "bytes": 4 * side * rank * rank / QR_BLOCK, "steps": 2 * rank}
    factored = machine.seconds("algebra", "bf16", {name: np.array([count]) for name, count in counts.items()})
    mine = thin + out + 2 * float(factored[0])
    plain = gemm_s(machine, n, n, n, {TF32: "tf32"}.get(str(row.shape["plain"]), str(row.shape["plain"])))
    by = f"GEMMs of {chip.name}; QR by counts of its arithmetic, passes and columns"
    return Predicted.of_seconds(plain, mine, by)


EXPERIMENT = Experiment(
    slug="low-rank-gemm",
    title="Low-Rank GEMM: a GEMM by random low-rank factors of both operands",
    checks="operands of low rank are multiplied exactly in fp64, others are projected as by definition; dense GEMMs "
    "equal fp64",
    claim=LabClaim(
        what="7.8 times PyTorch's fp32 at sides of 20,480 on an RTX 4090, faster than cuBLAS from 10,240 on",
        comparable=False,
        why="another GPU, whose fp32 and fp8 rates differ less from its bf16; the paper's ranks are not recorded, and "
        "its error on random matrices is as large as the product",
    ),
    sizes=(
        Size("side", "rows and columns; 0: three", default=0, on_cpu=96, least=0, most=2**16),
        Size("fp8", "whether fp8 is compared too", default=1, on_cpu=0, least=0, most=1),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
