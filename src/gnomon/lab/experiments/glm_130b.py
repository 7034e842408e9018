"""GLM-130B: a layer with four-bit weights that every GEMM writes out in 16 bits first, against bf16 and fused GEMMs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.errors import InputError
from gnomon.lab import int4, quantise
from gnomon.lab.base import (
    BF16_BYTES,
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
from gnomon.lab.launches import graphed, graphed_with_bytes
from gnomon.lab.priced import gemm_s, machine_of, stream_s
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

PLAIN, FIRST, FUSED = "bf16", "written out before each GEMM", "unpacked inside the GEMMs"
ROWS = (1, 16, 256)
LAYERS = 70
NAMES = ("query, key, value", "output", "gate and up", "down")
INT4_BYTES = 0.5 + 3 / int4.GROUP
"""Of a weight, with a scale and a zero of two bytes and one for 128 of them, where the kernels read them."""
BOUND, BLOCK_BOUND = 0.05, 0.1
"""Of a GEMM's and of a layer's outputs' root mean square, the largest difference: weights and sums rounded to bf16."""
ROUNDED = 0.02
"""Of the error of rounding: how far it may be from that of values that are spread evenly between codes."""
Multiply = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix [k, n] in four bits and in bf16."""

    packed: int4.Packed
    wide: Any


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    for name, value in sizes.items():
        if name != "rows" and value % int4.GROUP:
            hint = f"Give a multiple of {int4.GROUP}."
            raise InputError(f"{value} cannot be divided into groups", where=f"--size {name}", hint=hint)
    bench.need_triton("a four-bit GEMM on a GPU")
    torch, ways, facts = bench.torch, Ways(bench), dict[str, Any]()
    layer: dict[str, _Matrix] = {}
    inside: dict[int, dict[str, Multiply]] = {m: {} for m in _rows(sizes)}
    with torch.no_grad():
        for index, (name, (n, k)) in enumerate(shapes(sizes).items()):
            bench.tell(f"rounding {name}")
            layer[name], rounding = _drawn(bench, n, k, index)
            ways.checks += rounding
            exact = int4.weights(torch, layer[name].packed)
            for m in _rows(sizes):
                bench.tell(f"{name}, {m} rows")
                chosen = _fastest(ways, layer[name], exact, (name, m))
                if chosen is not None:
                    facts[f"{name}, {m} rows"], inside[m][name] = chosen
            del exact
            bench.release()
        runs = {m: _timed(ways, layer, inside[m], m) for m in _rows(sizes)}
    compared = [_compared(row, runs[int(row.shape["m"])]) for row in rows(sizes) if _there(row, runs)]
    return Findings(
        checks=tuple(ways.checks), compared=tuple(compared), facts=facts, notes=(*NOTES, *dict.fromkeys(ways.notes))
    )


NOTES = (
    "the GEMMs, residuals and gated GELU of one layer, without attention and norms; device time inside a captured CUDA "
    "graph; a layer's weights are many times what the cache on the chip holds",
    "weights are rounded to the nearest of 16 steps with one scale a row, as the authors do, without calibration; "
    "kernels read that scale once for 128 weights. gptq has single GEMMs and calibrated rounding; here whole layers "
    "are compared, those that unpack first among them, and their memory",
    f"memory: weights of {LAYERS} layers and what the GEMMs of one of them allocate",
)


def shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """(n, k) of a layer's GEMMs."""
    width, inner = sizes["width"], sizes["inner"]
    return dict(
        zip(NAMES, ((3 * width, width), (width, width), (2 * inner, width), (width, inner)), strict=True),
    )


def _rows(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return (sizes["rows"],) if sizes["rows"] else ROWS


def _drawn(bench: Bench, n: int, k: int, index: int) -> tuple[_Matrix, list[Check]]:
    """A random matrix rounded with one scale a row; the bf16 one has the same values."""
    torch, name = bench.torch, NAMES[index]
    generator = bench.generator(SEED + 180 + index)
    dense = bench.normal(n, k, dtype=torch.float32, generator=generator, scale=k**-0.5)
    near = quantise.nearest(torch, dense, k, symmetric=True)
    steps = near.scales.float().square().mean() / 12
    found = float((near.rounded().float() - dense).square().mean() / steps)
    # A code of 15 is half a step short of the largest value, so a few are off by more.
    what = f"{name}: error of rounding over that of even spread, less one"
    checks = [Check(what=what, difference=abs(found - 1), bound=ROUNDED)]
    spread = quantise.Quantised(
        codes=near.codes,
        scales=near.scales.expand(-1, k // int4.GROUP),
        zeros=near.zeros.expand(-1, k // int4.GROUP),
        order=None,
    )
    packed = int4.pack(torch, spread)
    unlike = float((int4.unpack(torch, packed) != near.codes).sum())
    checks.append(Check(what=f"{name}: codes that differ when unpacked", difference=unlike, bound=0.0))
    del dense, near, spread
    bench.release()
    return _Matrix(packed=packed, wide=int4.weights(torch, packed).to(torch.bfloat16)), checks


def _fastest(ways: Ways, matrix: _Matrix, exact: Any, case: tuple[str, int]) -> tuple[str, Multiply] | None:
    """The fastest kernel that unpacks inside a GEMM, of those that run and are right."""
    bench, torch, (name, m) = ways.bench, ways.bench.torch, case
    packed, k = matrix.packed, exact.shape[0]
    x = bench.normal(m, k, dtype=torch.bfloat16, generator=bench.generator(SEED + 190))
    truth, found = x.float() @ exact, dict[str, tuple[float, Multiply]]()
    calls: dict[str, Callable[[Any, int4.Packed], Any]] = {"PyTorch": partial(int4.plainly, torch)}
    if bench.device == "cuda":
        tiles = int4.tiles(m, packed.n, packed.groups, bench.processors)
        calls = {tile.name: partial(int4.fused, torch, tile) for tile in tiles}
    for way, call in calls.items():
        multiply = _on(call, packed)
        output = ways.attempt(f"{name}, {m} rows, {way},", partial(multiply, x))
        if output is None:
            continue
        near = close(f"{name}, {m} rows, {way}: against fp32", output, truth, BOUND)
        ways.checks.append(near)
        run = ways.attempt(f"{name}, {m} rows, {way}, timed,", partial(graphed, bench, partial(multiply, x)))
        if near.ok and run is not None:
            found[way] = run.seconds or 0.0, multiply
    if not found:
        return None
    best = min(found, key=lambda way: found[way][0])
    return best, found[best][1]


def _on(call: Callable[[Any, int4.Packed], Any], packed: int4.Packed) -> Multiply:
    return lambda x: call(x, packed)


def _block(torch: Any, x: Any, multiply: Mapping[str, Multiply]) -> Any:
    """A layer without attention: the queries stand for what it gives."""
    first, second, third, fourth = NAMES
    x = x + multiply[second](multiply[first](x)[:, : x.shape[1]].contiguous())
    gate, up = multiply[third](x).chunk(2, -1)
    return x + multiply[fourth]((torch.nn.functional.gelu(gate) * up).contiguous())


def _timed(ways: Ways, layer: Mapping[str, _Matrix], inside: Mapping[str, Multiply], m: int) -> dict[str, LabRun]:
    """A layer by each way, checked and timed."""
    bench, torch = ways.bench, ways.bench.torch
    width = layer[NAMES[1]].wide.shape[1]
    x = bench.normal(m, width, dtype=torch.bfloat16, generator=bench.generator(SEED + 191))
    before = int4.unfolded if bench.device == "cuda" else int4.plainly
    multiply: dict[str, dict[str, Multiply]] = {
        PLAIN: {name: partial(_matmul, torch, matrix.wide) for name, matrix in layer.items()},
        FIRST: {name: _on(partial(before, torch), matrix.packed) for name, matrix in layer.items()},
    }
    if len(inside) == len(layer):
        multiply[FUSED] = dict(inside)
    exact = {name: _on(partial(_exactly, torch), matrix.packed) for name, matrix in layer.items()}
    truth = _block(torch, x.double(), exact)
    wide, packed = (sum(_nbytes(each) for each in layer.values()) for _nbytes in (_wide_bytes, _packed_bytes))
    runs = {}
    for way, each in multiply.items():
        call = partial(_block, torch, x, each)
        found = ways.attempt(f"{m} rows, {way},", call)
        if found is None:
            continue
        near = close(f"{m} rows, {way}: a layer against fp64", found, truth, BLOCK_BOUND)
        ways.checks.append(near)
        del found
        held = wide if way == PLAIN else packed
        run = ways.attempt(f"{m} rows, {way}, timed,", partial(graphed_with_bytes, bench, call, held))
        if near.ok and run is not None:
            runs[way] = run
    return runs


def _matmul(torch: Any, wide: Any, x: Any) -> Any:
    return torch.matmul(x, wide)


def _exactly(torch: Any, x: Any, packed: int4.Packed) -> Any:
    return x @ int4.weights(torch, packed).double()


def _wide_bytes(matrix: _Matrix) -> int:
    return int(matrix.wide.numel() * BF16_BYTES)


def _packed_bytes(matrix: _Matrix) -> int:
    return matrix.packed.nbytes


def _there(row: LabRow, runs: Mapping[int, Mapping[str, LabRun]]) -> bool:
    there = runs[int(row.shape["m"])]
    return str(row.shape["plain"]) in there and str(row.shape["technique"]) in there


def _compared(row: LabRow, runs: Mapping[str, LabRun]) -> Compared:
    plain, mine = runs[str(row.shape["plain"])], runs[str(row.shape["technique"])]
    amounts = None
    if row.unit == "bytes":
        width, inner = int(row.shape["width"]), int(row.shape["inner"])
        weights = sum(n * k for n, k in shapes({"width": width, "inner": inner}).values())
        others = (LAYERS - 1) * weights
        amounts = Amounts(
            plain=plain.gpu_bytes + others * BF16_BYTES if plain.gpu_bytes else 0.0,
            technique=mine.gpu_bytes + others * INT4_BYTES if mine.gpu_bytes else 0.0,
        )
    return row.compared(plain, mine, deferred_s=0.0, of_paper=row.shape["technique"] == FIRST, amounts=amounts)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    first, *_ = counts = _rows(sizes)

    def row(what: str, m: int, plain: str, technique: str, unit: str = "seconds") -> LabRow:
        shape = {"m": m, "width": sizes["width"], "inner": sizes["inner"], "plain": plain, "technique": technique}
        return LabRow(what=what, shape=shape, unit=unit)

    found = [row(f"memory of {LAYERS} layers, {FIRST}, against {PLAIN}", first, PLAIN, FIRST, "bytes")]
    for m in counts:
        cases = ((PLAIN, FIRST), (PLAIN, FUSED), (FIRST, FUSED))
        found += [row(f"a layer, {m} rows, {mine}, against {plain}", m, plain, mine) for plain, mine in cases]
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted:
    """GEMMs of a layer, with a kernel before each that writes its weights out; a serving engine's kernel where they are
    unpacked inside."""
    sizes = {name: int(row.shape[name]) for name in ("width", "inner")}
    m, machine, each = int(row.shape["m"]), machine_of(chip), shapes(sizes).values()
    plain, mine = str(row.shape["plain"]), str(row.shape["technique"])
    if row.unit == "bytes":
        weights = LAYERS * sum(n * k for n, k in each)
        largest = max(n * k for n, k in each)
        gain = weights * BF16_BYTES / (weights * INT4_BYTES + largest * BF16_BYTES)
        return Predicted(gain=gain, by="bytes of the weights, and the largest matrix in 16 bits")
    inside = 2.0 * m * sizes["inner"]
    width = 2.0 * m * sizes["width"]
    others = 2 * stream_s(machine, 2 * width, width) + stream_s(machine, inside, inside)
    others += stream_s(machine, 2 * inside, inside)
    wide = sum(gemm_s(machine, m, n, k) for n, k in each)
    seconds = {
        PLAIN: wide + others,
        FIRST: wide + others + sum(stream_s(machine, n * k * INT4_BYTES, n * k * BF16_BYTES) for n, k in each),
        FUSED: others + sum(gemm_s(machine, m, n, k, "int4-weights") for n, k in each),
    }
    if FUSED not in (plain, mine):
        by = f"{chip.name}'s bf16 GEMMs and a kernel before each that writes its weights out"
        return Predicted.of_seconds(seconds[plain], seconds[mine], by)
    by = f"vLLM's Marlin kernel on {chip.name}, not the Triton kernels of this row"
    return Predicted(gain=seconds[plain] / seconds[mine], by=by, kind="other kernel")


EXPERIMENT = Experiment(
    slug="glm-130b",
    title="GLM-130B: a layer with four-bit weights written out before each GEMM, against bf16 and fused GEMMs",
    checks="outputs of a layer by every way in fp64 within what bf16 rounds; codes unpack to what was packed; the "
    "error of rounding is that of even spread",
    claim=LabClaim(
        what="in four bits the network fits on 4 RTX 3090 or 8 RTX 2080 Ti, where its 16-bit weights of 260 GB take 8 "
        "A100; decoding takes 139 s for 512 tokens on 4 RTX 3090 by the authors' library",
        comparable=False,
        why="the paper's machines cut a layer over four or eight cards; this is one layer of its shapes on one GPU",
    ),
    sizes=(
        Size("width", "hidden width, a multiple of 128", default=12288, on_cpu=256, least=128, most=32768),
        Size("inner", "channels of the gated MLP, a multiple of 128", default=32768, on_cpu=384, least=128, most=2**17),
        Size("rows", "rows of the GEMMs; 0: three numbers", default=0, on_cpu=0, least=0, most=2**16),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
