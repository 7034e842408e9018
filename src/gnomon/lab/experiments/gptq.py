"""GPTQ: four-bit weights rounded by the Hessian, and GEMMs that read them against torch.matmul in bf16."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.calibrate.timer import Timing, copies_for
from gnomon.errors import InputError
from gnomon.lab import int4, quantise
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench, device_run, untimed
from gnomon.lab.int4_ways import FUSED, UNFOLDED, fastest, nothing_runs, tried, ways_of
from gnomon.lab.priced import gemm_s, machine_of, stream_s
from gnomon.spec import Chip

SHAPES = ((8192, 8192), (28672, 8192), (4096, 14336))
"""(n, k) of large decoders' GEMMs."""
ROWS = (1, 8, 16, 64, 256, 2048)
SMALL = 2 * int4.GROUP
"""Columns of the matrix that is also rounded by definition."""
WAYS = (("symmetric", True, False), ("asymmetric", False, False), ("asymmetric, by activity", False, True))
BF16_STEP = 2.0**-8
DIRECTIONS = 16
"""Channels of a layer's inputs over the directions that are strong in them."""
EXACT, ROUNDED = 2.0**-12, 2.0**-5
"""What may be off beside the rounding of the result, as a share of the root of the summands' squares: sums in fp32
of numbers up to 143 that stand for numbers up to 15; weights, or parts of sums, rounded to bf16 one by one."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    shapes, rows = _shapes(bench, sizes)
    bench.need_triton("a four-bit GEMM on a GPU")
    bench.tell("rounding a small matrix by definition")
    checks = [*_definition(bench)]
    bench.tell("rounding a layer")
    found, facts = _layer(bench, sizes["layer"], sizes["tokens"])
    checks += found
    compared, notes = [], list(NOTES if bench.timed else CPU_NOTES)
    generator = bench.generator(SEED + 6)
    for n, k in shapes:
        bench.tell(f"GEMMs of {n} x {k}")
        matrix = _matrix(bench, n, k, generator)
        for m in rows:
            x = bench.normal(m, k, dtype=bench.torch.bfloat16, generator=generator)
            row, close, failed = _gemm(bench, x, matrix)
            compared.append(row)
            checks += close
            notes += [note for note in failed if note not in notes]
        del matrix
        bench.release()
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=tuple(notes))


NOTES = (
    "plain: torch.matmul with bf16 weights; device time inside a captured graph, weights cold",
    "bytes on the GPU: the weights and the workspace of a call",
)
CPU_NOTES = (
    "without a GPU the four-bit weights are dequantized by PyTorch and multiplied: the Triton kernels did not run",
)


def _shapes(bench: Bench, sizes: Mapping[str, int]) -> tuple[list[tuple[int, int]], list[int]]:
    n, k, m = sizes["n"], sizes["k"], sizes["m"]
    if bool(n) != bool(k):
        raise InputError(
            "n and k must be given together", where="--size", hint="Give both, or none for the default shapes."
        )
    for name in ("k", "layer"):
        if sizes[name] % int4.GROUP:
            hint = f"Give a multiple of {int4.GROUP}, the columns that share a scale."
            raise InputError(f"{sizes[name]} cannot be divided into groups", where=f"--size {name}", hint=hint)
    if sizes["tokens"] < sizes["layer"] // DIRECTIONS:
        hint = f"Give at least {sizes['layer'] // DIRECTIONS}: fewer do not show which directions are strong."
        raise InputError(f"{sizes['tokens']} tokens are too few for this layer", where="--size tokens", hint=hint)
    return [(n, k)] if n else list(SHAPES), [m] if m else list(ROWS)


def correlated(bench: Bench, tokens: int, width: int, dtype: Any, seed: int) -> Any:
    """Activations with a few strong directions and channels, as layers have, which GPTQ exploits."""
    generator, torch = bench.generator(seed), bench.torch
    few = max(1, width // DIRECTIONS)
    strong = bench.normal(tokens, few, dtype=dtype, generator=generator)
    mix = bench.normal(few, width, dtype=dtype, generator=generator, scale=few**-0.5)
    channels = torch.exp(bench.normal(width, dtype=dtype, generator=generator, scale=0.5))
    return (strong @ mix + bench.normal(tokens, width, dtype=dtype, generator=generator, scale=0.3)) * channels


def _definition(bench: Bench) -> Iterator[Check]:
    """Checks in float64, where both methods give the same codes."""
    torch = bench.torch
    weights = bench.normal(24, SMALL, dtype=torch.float64, generator=bench.generator(SEED + 2), scale=0.02)
    bent = quantise.hessian(torch, correlated(bench, 4 * SMALL, SMALL, torch.float64, SEED + 3))
    for symmetric, name in ((True, "symmetric"), (False, "asymmetric")):
        one = quantise.gptq(torch, weights, bent, int4.GROUP, symmetric=symmetric, by_activity=False)
        other = quantise.by_definition(torch, weights, bent, int4.GROUP, symmetric=symmetric)
        what = f"{name}, {weights.shape[0]} x {SMALL}: codes that differ from those by definition"
        yield Check(what=what, difference=float((one.codes != other.codes).sum()), bound=0.0)
        apart = float((one.weights() - other.weights()).abs().max() / weights.abs().max())
        yield Check(what=f"{name}: weights against those by definition, relative", difference=apart, bound=1e-9)


def _layer(bench: Bench, width: int, tokens: int) -> tuple[list[Check], dict[str, Any]]:
    """Checks of a layer rounded with one half of the tokens, on the other half."""
    torch = bench.torch
    weights = bench.normal(width, width, dtype=torch.float32, generator=bench.generator(SEED + 4), scale=0.02)
    seen, unseen = correlated(bench, 2 * tokens, width, torch.float32, SEED + 5).split(tokens)
    bent = quantise.hessian(torch, seen)
    checks: list[Check] = []
    facts: dict[str, Any] = {"layer": width, "tokens": tokens, "layer_parameters": width * width, "rounding_s": {}}
    for name, symmetric, by_activity in WAYS:
        near = quantise.nearest(torch, weights, int4.GROUP, symmetric=symmetric)
        bench.synchronize()
        start = time.perf_counter()
        mine = quantise.gptq(torch, weights, bent, int4.GROUP, symmetric=symmetric, by_activity=by_activity)
        bench.synchronize()
        facts["rounding_s"][name] = time.perf_counter() - start if bench.timed else None
        ratio = quantise.output_error(weights, mine.weights(), unseen)
        ratio /= quantise.output_error(weights, near.weights(), unseen)
        checks.append(Check(what=f"{name}: error of outputs over round-to-nearest's", difference=ratio, bound=0.9))
        packed = int4.pack(torch, mine)
        unlike = (int4.unpack(torch, packed) != mine.codes).sum()
        unlike += (mine.rounded() != int4.weights(torch, packed).T).sum()
        checks.append(
            Check(what=f"{name}: packed weights that differ from the unpacked", difference=float(unlike), bound=0.0)
        )
        checks.append(_whole(bench, unseen[:16].to(torch.bfloat16), mine.weights().T, packed, name))
    return checks, facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """One shape's weights, in several copies so that caches are cold, and their values."""

    narrow: list[int4.Packed]
    wide: list[Any]
    exact: Any
    squares: Any


def _matrix(bench: Bench, n: int, k: int, generator: Any) -> _Matrix:
    torch, timed = bench.torch, bench.timed
    narrow = [_drawn(bench, n, k // int4.GROUP, generator) for _ in range(copies_for(n * k / 2) if timed else 1)]
    exact = int4.weights(torch, narrow[0])
    wide = [exact.to(torch.bfloat16) for _ in range(copies_for(2 * n * k) if timed else 1)]
    return _Matrix(narrow=narrow, wide=wide, exact=exact, squares=exact.square())


def _gemm(bench: Bench, x: Any, matrix: _Matrix) -> tuple[Compared, list[Check], tuple[str, ...]]:
    """A shape's GEMMs checked and timed, with notes on those that could not be run."""
    torch, wide, packed = bench.torch, matrix.wide, matrix.narrow[0]
    m, (k, n) = int(x.shape[0]), matrix.exact.shape
    what, wide_bytes = f"m {m}, n {n}, k {k}", 2 * n * k
    truth, mixed = x.float() @ matrix.exact, (x.float().square() @ matrix.squares).sqrt()

    def check(way: str, found: Any) -> Check:
        loose = EXACT if way.startswith(FUSED) else ROUNDED
        return _close(f"{what}: {way} against fp32", found, truth, loose * mixed)

    chosen = fastest(bench, x, matrix.narrow, check)
    way, call = chosen.way, chosen.call
    plain = bench.kernel(lambda i: torch.matmul(x, wide[i]), len(wide))
    mine, theirs = call(x, packed), torch.matmul(x, wide[0]).float()
    close = _close(f"{what}: {way} against torch.matmul", mine, theirs, ROUNDED * mixed)
    row = Compared(
        what=what,
        shape={"m": m, "n": n, "k": k, "plain_bytes": wide_bytes, "technique_bytes": packed.nbytes}
        | {"way": way, "ways_s": dict(chosen.ways_s)},
        plain=_measured(bench, plain, lambda: torch.matmul(x, wide[0]), wide_bytes),
        technique=_measured(bench, chosen.timing, lambda: call(x, packed), packed.nbytes),
        deferred_s=0.0,
    )
    return row, [check(way, mine), close, *chosen.wrong], chosen.failed


def _whole(bench: Bench, x: Any, weights: Any, packed: int4.Packed, name: str) -> Check:
    """The layer's GEMM with packed weights, its inputs in their order, against the rounded weights in fp32."""
    there, failed = int4.arranged(x, packed), []
    mixed = (x.float().square() @ weights.square()).sqrt()
    for way, call in ways_of(bench, there, packed).items():
        found, reason = tried(bench, way, call, there, packed)
        if not reason:
            what = f"{name}: the layer's GEMM against fp32"
            return _close(what, found, x.float() @ weights, ROUNDED * mixed)
        failed.append(reason)
    raise nothing_runs(failed)


def _close(what: str, mine: Any, theirs: Any, tolerance: Any) -> Check:
    """The largest difference in multiples of the rounding allowed."""
    allowed = BF16_STEP * theirs.abs() + tolerance
    worst = float(((mine.float() - theirs).abs() / allowed).max())
    return Check(what=f"{what}, of the rounding allowed", difference=worst, bound=1.0)


def _drawn(bench: Bench, n: int, groups: int, generator: Any) -> int4.Packed:
    """Random codes, with scales and zeros like a layer's."""
    torch = bench.torch

    def whole(low: int, high: int, *shape: int, dtype: Any) -> Any:
        return torch.randint(low, high, shape, dtype=dtype, device=bench.device, generator=generator)

    return int4.Packed(
        words=whole(-(2**31), 2**31, groups * int4.WORDS, n, dtype=torch.int64).to(torch.int32),
        scales=(whole(1, 256, groups, n, dtype=torch.int32).float() / 2**16).to(torch.bfloat16),
        zeros=whole(0, quantise.LEVELS + 1, groups, n, dtype=torch.uint8),
    )


def _measured(bench: Bench, timing: Timing | None, call: Callable[[], Any], weights_bytes: int) -> LabRun:
    if timing is None:
        return untimed()
    before = bench.held_bytes
    with bench.peak() as most:
        call()
        bench.synchronize()
        workspace = most() - before
    return device_run(timing, weights_bytes + max(0, workspace))


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Weights dequantized before the GEMM, where that is what ran; else a serving engine's kernel."""
    machine, (m, n, k) = machine_of(chip), (int(row.shape[name]) for name in ("m", "n", "k"))
    wide = gemm_s(machine, m, n, k)
    if not str(row.shape.get("way", "")).startswith(UNFOLDED):
        by = f"vLLM's Marlin kernel on {chip.name}, not the Triton kernel of this row"
        return Predicted(gain=wide / gemm_s(machine, m, n, k, "int4-weights"), by=by, kind="other kernel")
    unfolded = wide + stream_s(machine, float(row.shape["technique_bytes"]), float(row.shape["plain_bytes"]))
    by = f"{chip.name}'s bf16 GEMM and a kernel that dequantizes the weights, as this row does"
    return Predicted(gain=wide / unfolded, by=by)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shapes = [(sizes["n"], sizes["k"])] if sizes["n"] else SHAPES
    counts = [sizes["m"]] if sizes["m"] else ROWS
    return tuple(LabRow(what=f"m {m}, n {n}, k {k}", shape={"m": m, "n": n, "k": k}) for n, k in shapes for m in counts)


EXPERIMENT = Experiment(
    slug="gptq",
    title="GPTQ: four-bit weights rounded by the Hessian, and GEMMs that read them",
    checks="codes equal those by definition, outputs err less than by rounding to nearest, packed weights unpack to "
    "the same, GEMMs equal those in fp32",
    claim=LabClaim(
        what="decodes 3.25 times faster on A100 and 4.5 times on A6000 than in fp16, 175B parameters in three bits",
        comparable=False,
        why="the paper's gain is of whole tokens with its own three-bit kernel, against fp16 on more GPUs; this is of "
        "single four-bit GEMMs by our Triton kernels, against torch.matmul on the same GPU",
    ),
    sizes=(
        Size("layer", "rows and columns of the layer that is rounded", default=4096, on_cpu=256, most=32768),
        Size("tokens", "activations that the Hessian is taken over", default=16384, on_cpu=1024, least=64, most=2**20),
        Size("n", "columns of a GEMM (n); 0: three common shapes", default=0, on_cpu=96, least=0, most=2**17),
        Size("k", "inner dimension of a GEMM; 0 with n", default=0, on_cpu=256, least=0, most=2**16),
        Size("m", "rows of a GEMM; 0: from 1 to 2,048", default=0, on_cpu=5, least=0, most=2**16),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
