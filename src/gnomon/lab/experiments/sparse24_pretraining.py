"""Pre-training with 2:4 sparsity: an MLP whose forward and input gradients use sparse tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
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
from gnomon.lab.priced import gemm_s, stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

WIDTHS = (2048, 4096, 8192)
RATIO = 4
REFRESHED = 40
"""Steps between searches of the masks, as in the paper; values are compressed anew in each."""
BOUND = 0.08
"""bf16 GEMMs with sums in another order: the largest of many millions over their root mean square."""
DENSE, MASK = "dense", "search of the masks"
PATTERNS = 90


@dataclass(frozen=True, slots=True)
class _Mlp:
    """The GEMMs of an MLP's forward and backward around GELU, on weights [n, k] and both transposed."""

    torch: Any
    x: Any
    gradient: Any
    weights: tuple[Any, Any]
    """Masked, of both layers."""

    def step(self, how: str) -> tuple[Any, ...]:
        """Output and gradients of input and weights. `how` multiplies by weights; their own gradient is dense."""
        torch, (up, down) = self.torch, self.weights
        linear = torch.nn.functional.linear if how == DENSE else partial(_sparse, torch, how)
        wide = linear(self.x, up)
        inner = torch.nn.functional.gelu(wide, approximate="tanh")
        out = linear(inner, down)
        below = linear(self.gradient, down.T if how == DENSE else down.T.contiguous())
        below = torch.ops.aten.gelu_backward(below, wide, approximate="tanh")
        return (
            out,
            linear(below, up.T if how == DENSE else up.T.contiguous()),
            below.T @ self.x,
            self.gradient.T @ inner,
        )


def _sparse(torch: Any, how: str, x: Any, weights: Any) -> Any:
    """Compress and multiply."""
    return semi.sparse_linear(torch, weights, how)(x)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch = bench.torch
    ways, compared = Ways(bench), []
    checks = [*_masks(bench)]
    for row in rows(sizes):
        width, tokens = int(row.shape["width"]), int(row.shape["tokens"])
        bench.tell(f"width {width}")
        bench.release()
        mlp, dense = _drawn(bench, tokens, width)
        checks.append(_definition(mlp))
        truth = mlp.step(DENSE)
        known = Ways(bench)
        hows = (semi.CUSPARSELT, semi.CUTLASS) if bench.device == "cuda" else (semi.MASKED,)
        known.run(DENSE, partial(mlp.step, DENSE), partial(_same, f"width {width}, {DENSE}", truth))
        for how in hows:
            known.run(how, partial(mlp.step, how), partial(_same, f"width {width}, {how}", truth))
        search = known.attempt(MASK, lambda dense=dense: bench.queued(lambda: _search(torch, dense)))  # type: ignore[misc]
        checks += known.checks
        ways.notes += [f"width {width}: {note}" for note in known.notes]
        best = known.fastest(hows)
        if best and DENSE in known.runs and search is not None:
            compared.append(_compared(row, known.runs | {MASK: search}, best))
        del mlp, dense, truth, known
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *ways.notes))


NOTES = (
    "plain: the same GEMMs dense in bf16 (cuBLAS); the technique's seconds have its share of a search of the masks "
    "every 40 steps, and compressing in every step; weight gradients are dense in both",
)


def _compared(row: LabRow, runs: Mapping[str, LabRun], best: str) -> Compared:
    mine, search = runs[best], runs[MASK]
    if mine.seconds is not None and search.seconds is not None:
        share = search.seconds / REFRESHED
        mine = LabRun(
            seconds=mine.seconds + share,
            spread=mine.spread,
            repeats=mine.repeats,
            gpu_bytes=mine.gpu_bytes,
            samples_s=tuple(sample + share for sample in mine.samples_s),
        )
    times = {name: run.seconds for name, run in runs.items()}
    shape = dict(row.shape) | {"way": best, "ways_s": times}
    return row.compared(runs[DENSE], mine, deferred_s=0.0, shape=shape)


def _drawn(bench: Bench, tokens: int, width: int) -> tuple[_Mlp, list[Any]]:
    torch, generator = bench.torch, bench.generator(SEED + 21)
    kind = torch.bfloat16
    x, gradient = (bench.normal(tokens, width, dtype=kind, generator=generator) for _ in range(2))
    shapes = ((RATIO * width, width), (width, RATIO * width))
    dense = [bench.normal(n, k, dtype=kind, generator=generator, scale=k**-0.5) for n, k in shapes]
    up, down = (weights * semi.transposable_mask(torch, weights) for weights in dense)
    return _Mlp(torch, x, gradient, (up, down)), dense


def _search(torch: Any, dense: list[Any]) -> list[Any]:
    return [semi.transposable_mask(torch, weights) for weights in dense]


def _same(what: str, truth: tuple[Any, ...], found: tuple[Any, ...]) -> Check:
    worst = max(close(what, one, other, BOUND).difference for one, other in zip(found, truth, strict=True))
    return Check(
        what=f"{what}: output and gradients, largest difference over root mean square", difference=worst, bound=BOUND
    )


def _definition(mlp: _Mlp) -> Check:
    """A few rows against autograd in fp64."""
    torch, few = mlp.torch, 16
    x, up, down = (t.double().requires_grad_() for t in (mlp.x[:few], *mlp.weights))
    wide = x @ up.T
    inner = 0.5 * wide * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (wide + 0.044715 * wide**3)))
    (inner @ down.T).backward(mlp.gradient[:few].double())
    small = _Mlp(torch, mlp.x[:few], mlp.gradient[:few], mlp.weights)
    wanted = ((inner @ down.T).detach(), x.grad, up.grad, down.grad)
    what = f"width {x.shape[1]}: {few} rows against autograd in fp64"
    return _same(what, wanted, small.step(DENSE))


def _masks(bench: Bench) -> Iterator[Check]:
    """The masks against all patterns, tile by tile, on a small matrix."""
    torch = bench.torch
    weights = bench.normal(16, 24, dtype=torch.float32, generator=bench.generator(SEED + 22))
    found = semi.transposable_mask(torch, weights)
    rows = [tuple(int(i in pair) for i in range(4)) for pair in combinations(range(4), 2)]
    short = 0.0
    for i, j in product(range(0, 16, 4), range(0, 24, 4)):
        tile, mine = weights[i : i + 4, j : j + 4].abs(), found[i : i + 4, j : j + 4]
        best = 0.0
        for choice in product(rows, repeat=4):
            pattern = torch.tensor(choice, device=weights.device)
            if bool((pattern.sum(0) == 2).all()):
                best = max(best, float((tile * pattern).sum()))
        short = max(short, best - float((tile * mine).sum()))
    yield Check(what="masks: magnitude short of the best pattern of a tile", difference=short, bound=1e-5)
    wrong = sum(
        int((kept.unflatten(-1, (-1, 4)).sum(-1) != 2).sum()) for kept in (found, found.T, semi.mask(torch, weights))
    )
    yield Check(what="groups of four with other than two values", difference=float(wrong), bound=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    widths = [sizes["width"]] if sizes["width"] else WIDTHS
    return tuple(
        LabRow(
            what=f"MLP of {width} x {RATIO * width}, forward and backward",
            shape={"width": width, "tokens": sizes["tokens"]},
        )
        for width in widths
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Four of six GEMMs at the sparse rate, compressing and transposing the weights, a share of the search."""
    machine, width, tokens = torch_machine(chip), int(row.shape["width"]), int(row.shape["tokens"])
    wide, size = RATIO * width, 2.0 * RATIO * width * width
    multiplied = 2 * (gemm_s(machine, tokens, wide, width) + gemm_s(machine, tokens, width, wide))
    by_weight = gemm_s(machine, wide, width, tokens) + gemm_s(machine, width, wide, tokens)
    inner = 2.0 * tokens * wide
    activation = stream_s(machine, inner, inner) + stream_s(machine, 2 * inner, inner)
    # Each of both layers: a transposed copy, and two matrices read and written at 9/16 of their size.
    compressed = 2 * (stream_s(machine, size, size) + 2 * stream_s(machine, size, 0.5625 * size))
    scores = 2 * PATTERNS * size / 2 / 16 * 4
    search = 2 * (stream_s(machine, size, 2 * size) + stream_s(machine, 2 * size + scores, scores))
    plain = multiplied + by_weight + activation
    mine = multiplied / semi.SPARSE_OVER_DENSE + by_weight + activation + compressed + search / REFRESHED
    by = f"GEMMs of {chip.name}, sparse ones {semi.SPARSE_OVER_DENSE:g}x as fast as published for Hopper, compressing"
    return Predicted.of_seconds(plain, mine, by)


EXPERIMENT = Experiment(
    slug="sparse24-pretraining",
    title="Pre-training with 2:4 sparsity: sparse GEMMs forward and for input gradients",
    checks="masks are the best of all patterns in both directions; output and gradients equal dense GEMMs with masked "
    "weights and autograd in fp64",
    claim=LabClaim(
        what="MLPs up to 1.7 times, blocks 1.3 times and GPT-2 1.2 times faster on RTX 3090",
        comparable=False,
        why="the paper's GPU is another generation, whose sparse kernels come near twice the dense rate; its sparse "
        "estimate of weight gradients is left dense here",
    ),
    sizes=(
        Size("width", "width of the MLP; 0: three", default=0, on_cpu=64, least=0, most=2**15),
        Size("tokens", "tokens of a step", default=16384, on_cpu=32, least=16, most=2**20),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
