"""GPUSQ-ViT: the linear layers of a vision transformer in int8 with 2:4 sparsity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gnomon.lab import semi_structured as semi
from gnomon.lab.base import (
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

TOKENS = 197
"""Patches of an image of 224 x 224 and the class token."""
LAYERS = ((3, 1), (1, 1), (4, 1), (1, 4))
"""Columns and inner dimension of a block's linear layers, in widths."""
FP32, BF16, INT8, SPARSE = "fp32", "bf16", "int8", "int8, 2:4"
HOWS = {FP32: "", BF16: "", INT8: semi.MASKED, SPARSE: semi.CUSPARSELT}
LARGEST = 127
ROUNDED = 0.03
"""Error of int8 outputs, root mean square over theirs, with a scale for each token and each output channel."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    checks: list[Check] = []
    notes: list[str] = []
    totals: dict[tuple[str, int], list[LabRun]] = {}
    for images in _batches(sizes):
        for n, k in LAYERS:
            bench.tell(f"{images} images, {n} x {k} widths")
            bench.release()
            ways = Ways(bench)
            _layer(ways, (images * TOKENS, n * sizes["width"], k * sizes["width"]))
            checks += ways.checks
            notes += ways.notes
            for form in HOWS:
                totals.setdefault((form, images), []).extend(ways.runs[form] for _ in range(1) if form in ways.runs)
    runs = {key: _summed(parts) for key, parts in totals.items() if len(parts) == len(LAYERS)}
    compared = [*_compared(rows(sizes), runs)]
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "a block's four GEMMs one by one, int8 sums in int32; quantising inputs and scaling outputs is left out, as fused "
    "kernels do it",
    "operands stay in the cache where they fit; fp32 without TF32 is the paper's baseline, bf16 what is served today",
)


def _layer(ways: Ways, shape: tuple[int, int, int]) -> None:
    """One linear layer in each format."""
    bench, torch = ways.bench, ways.bench.torch
    m, n, k = shape
    generator = bench.generator(SEED + 31)
    x = bench.normal(m, k, dtype=torch.float32, generator=generator)
    dense = bench.normal(n, k, dtype=torch.float32, generator=generator, scale=k**-0.5)
    pruned = dense * semi.mask(torch, dense)
    what = f"{m} x {n} x {k}"
    truth = x.double() @ pruned.double().T
    for form, kind, bound in ((FP32, torch.float32, 1e-4), (BF16, torch.bfloat16, 0.08)):
        a, b = x.to(kind), pruned.to(kind)
        ways.run(form, partial(torch.nn.functional.linear, a, b), partial(_near, f"{what}, {form}", truth, bound))
    narrow, scale = rounded(torch, pruned)
    inputs, scales = rounded(torch, x)
    exact = narrow.double() @ inputs.double().T
    ways.checks.append(_error(what, exact.T * scales * scale.T, truth))
    how = semi.CUSPARSELT if bench.device == "cuda" else semi.MASKED
    for form, made in ((INT8, semi.MASKED), (SPARSE, how)):
        call = ways.attempt(f"{what}, {form}, compressed,", partial(semi.sparse_int8, torch, narrow, made))
        if call is not None:
            ways.run(form, partial(call, inputs), partial(_equal, f"{what}, {form}", exact.T))


def rounded(torch: Any, values: Any) -> tuple[Any, Any]:
    """int8 codes of each row and its scale."""
    scale = values.abs().amax(1, keepdim=True).double() / LARGEST
    return torch.round(values / scale).to(torch.int8), scale


def _near(what: str, truth: Any, bound: float, found: Any) -> Check:
    return close(what, found, truth, bound)


def _equal(what: str, truth: Any, found: Any) -> Check:
    differing = float((found.double() != truth).sum()) if found.shape == truth.shape else float("inf")
    return Check(what=f"{what}: sums that differ from exact ones", difference=differing, bound=0.0)


def _error(what: str, mine: Any, truth: Any) -> Check:
    found = float((mine - truth).square().mean().sqrt() / truth.square().mean().sqrt())
    return Check(what=f"{what}: error of int8, root mean square over outputs", difference=found, bound=ROUNDED)


def _summed(parts: list[LabRun]) -> LabRun:
    """All layers of a block."""
    times = [part.seconds for part in parts if part.seconds is not None]
    return LabRun(
        seconds=sum(times) if len(times) == len(parts) else None,
        spread=max((part.spread for part in parts if part.spread is not None), default=None),
        repeats=min(part.repeats for part in parts),
        gpu_bytes=sum(part.gpu_bytes for part in parts),
    )


def _compared(planned: tuple[LabRow, ...], runs: Mapping[tuple[str, int], LabRun]) -> Iterator[Compared]:
    for row in planned:
        plain, mine, images = (row.shape[name] for name in ("plain", "technique", "images"))
        if (plain, images) in runs and (mine, images) in runs:
            yield row.compared(runs[plain, images], runs[mine, images], deferred_s=0.0, of_paper=mine == SPARSE)


def _batches(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return (sizes["images"], 1)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    pairs = ((FP32, SPARSE), (BF16, SPARSE), (BF16, INT8))
    return tuple(
        LabRow(
            what=f"batch {images}, {technique} against {plain}",
            shape={"images": images, "width": sizes["width"], "plain": plain, "technique": technique},
        )
        for images in _batches(sizes)
        for plain, technique in pairs
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The chip's GEMMs by format; a 2:4 operand brings what is published for Hopper."""
    machine, width, m = torch_machine(chip), int(row.shape["width"]), int(row.shape["images"]) * TOKENS

    def seconds(form: str) -> float:
        kind = {SPARSE: INT8}.get(form, form)
        whole = sum(gemm_s(machine, m, n * width, k * width, kind) for n, k in LAYERS)
        return whole / semi.SPARSE_OVER_DENSE if form == SPARSE else whole

    by = f"GEMMs of {chip.name}, sparse ones {semi.SPARSE_OVER_DENSE:g}x as fast as published for Hopper"
    return Predicted.of_seconds(seconds(str(row.shape["plain"])), seconds(str(row.shape["technique"])), by)


EXPERIMENT = Experiment(
    slug="gpusq-vit",
    title="GPUSQ-ViT: linear layers of a vision transformer in int8 with 2:4 sparsity",
    checks="int8 sums are exact, dense and sparse; other formats equal fp64, and int8 errs by its rounding alone",
    claim=LabClaim(
        what="1.39 to 1.79 times less latency and 3.2 to 3.4 times the throughput of dense fp32 on an A100, weights "
        "6.4 times smaller in int8",
        comparable=False,
        why="the paper's times are of whole networks in int4 with TensorRT on another generation, these of the linear "
        "layers' GEMMs in int8",
    ),
    sizes=(
        Size("images", "images of the large batch", default=256, on_cpu=2, most=4096),
        Size("width", "hidden width (DeiT-B: 768)", default=768, on_cpu=64, least=64, most=16384),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
