"""Tilus: GEMMs with weights of any few bits, for one row, against bf16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gnomon.calibrate.timer import copies_for
from gnomon.lab import bits as narrow_bits
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import gemm_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

BITS = (3, 4, 5, 6, 8)
SHAPES = ((57344, 8192), (8192, 8192))
"""(n, k) of Llama-3.3-70B: both up projections as one, and an output."""
LANES = 5.0
"""Cycles of a lane for a code's piece: a logical operation at half rate, a sum, a product, a share of the rest."""
STREAMED = 0.8
"""Of memory bandwidth, what a kernel that streams packed weights reaches."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    torch = bench.torch
    bench.need_triton("a GEMM of few bits on a GPU")
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    plain: dict[tuple[int, int], LabRun] = {}
    for row in rows(sizes):
        bits, n, k = (int(row.shape[name]) for name in ("bits", "n", "k"))
        bench.tell(f"{n} x {k}, {bits} bits")
        bench.release()
        generator = bench.generator(SEED + 50)
        x = bench.normal(k, dtype=torch.bfloat16, generator=generator)
        if (n, k) not in plain:
            plain[n, k] = _plain(bench, x, n, k, generator)
        run, tried = _narrow(bench, x, (bits, n, k), generator)
        checks += tried.checks
        notes += tried.notes
        if run is None:
            continue
        way, took, nbytes = run
        shape = dict(row.shape) | {"way": way, "technique_bytes": nbytes, "plain_bytes": 2 * n * k}
        compared.append(row.compared(plain[n, k], took, deferred_s=0.0, shape=shape))
    return Findings(checks=tuple(checks), compared=tuple(compared), notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "plain: torch.matmul with bf16 weights; device time inside a captured graph, weights cold; bytes are of weights",
)


def _plain(bench: Bench, x: Any, n: int, k: int, generator: Any) -> LabRun:
    torch = bench.torch
    wide = [
        bench.normal(k, n, dtype=torch.bfloat16, generator=generator)
        for _ in range(copies_for(2 * n * k) if bench.timed else 1)
    ]
    row = x[None]
    return bench.cold(lambda i: torch.matmul(row, wide[i]), len(wide), 2 * n * k)


def _narrow(
    bench: Bench, x: Any, shape: tuple[int, int, int], generator: Any
) -> tuple[tuple[str, LabRun, int] | None, Ways]:
    """The fastest kernel that is right, its times and the bytes of its weights."""
    torch, (bits, n, k) = bench.torch, shape
    dense = bench.normal(k, n, dtype=torch.float32, generator=generator, scale=k**-0.5)
    codes, scales = narrow_bits.rounded(torch, dense, bits)
    del dense
    packed = narrow_bits.pack(torch, codes, scales, bits)
    ways = Ways(bench)
    what = f"{bits} bits, {n} x {k}"
    unlike = float((narrow_bits.unpack(torch, packed) != codes).sum())
    ways.checks.append(Check(what=f"{what}: codes that differ when unpacked", difference=unlike, bound=0.0))
    del codes
    truth = x.double() @ narrow_bits.weights(torch, packed).double()
    copies = [packed, *(_copied(packed) for _ in range(copies_for(packed.nbytes) - 1 if bench.timed else 0))]
    found: dict[str, tuple[LabRun, int]] = {}
    for name, call in _calls(bench, x, n, k).items():
        output = ways.attempt(f"{what}, {name},", partial(call, packed))
        if output is None:
            continue
        near = close(f"{what}, {name}: against fp64", output, truth, 0.05)
        ways.checks.append(near)
        if not near.ok:
            ways.notes.append(f"{what}, {name} is wrong and not timed")
            continue
        timed = partial(bench.cold, _in_turn(call, copies), len(copies), packed.nbytes)
        run = ways.attempt(f"{what}, {name}, timed,", timed)
        if run is not None:
            found[name] = run, packed.nbytes
    if not found:
        return None, ways
    best = min(found, key=lambda name: found[name][0].seconds or 0.0)
    return (best, *found[best]), ways


def _in_turn(call: Callable[[narrow_bits.Narrow], Any], copies: list[narrow_bits.Narrow]) -> Callable[[int], Any]:
    return lambda i: call(copies[i])


def _calls(bench: Bench, x: Any, n: int, k: int) -> dict[str, Callable[[narrow_bits.Narrow], Any]]:
    torch = bench.torch
    if bench.device != "cuda":
        return {"PyTorch": lambda packed: (x.float() @ narrow_bits.weights(torch, packed)).to(x.dtype)}
    tiles = narrow_bits.tiles(n, k // narrow_bits.GROUP, bench.processors)
    return {tile.name: partial(narrow_bits.multiply, torch, tile, x) for tile in tiles}


def _copied(packed: narrow_bits.Narrow) -> narrow_bits.Narrow:
    pieces = tuple((piece, words.clone()) for piece, words in packed.pieces)
    return narrow_bits.Narrow(bits=packed.bits, pieces=pieces, scales=packed.scales.clone())


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shapes = [(sizes["n"], sizes["k"])] if sizes["n"] else SHAPES
    several = [sizes["bits"]] if sizes["bits"] else BITS
    return tuple(
        LabRow(what=f"{bits} bits, n {n}, k {k}", shape={"bits": bits, "n": n, "k": k})
        for n, k in shapes
        for bits in several
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Packed weights from memory, or the lanes' work on every piece of every code, whichever takes longer."""
    bits, n, k = (int(row.shape[name]) for name in ("bits", "n", "k"))
    nbytes = n * k * (bits / 8 + 2 / narrow_bits.GROUP)
    streamed = nbytes / (STREAMED * chip.memory_bandwidth_bytes_s)
    worked = len(narrow_bits.pieces_of(bits)) * n * k * LANES / (chip.rates_flops["fp32"] / 2)
    by = f"memory of {chip.name} at {STREAMED:.0%}, {LANES:g} cycles of a lane for each piece of a code; its bf16 GEMM"
    return Predicted.of_seconds(gemm_s(torch_machine(chip), 1, n, k), max(streamed, worked), by)


EXPERIMENT = Experiment(
    slug="tilus",
    title="Tilus: GEMMs of one row with weights of three to eight bits",
    checks="codes unpack to what was packed, outputs equal dequantized weights in fp64",
    claim=LabClaim(
        what="1.75 times Triton, 2.61 times Ladder, 1.29 times QuantLLM and 1.03 times Marlin on low-precision kernels",
        comparable=False,
        why="the paper's baselines are other low-precision kernels; this is of our Triton kernel for any number of "
        "bits against bf16, with the paper's shapes",
    ),
    sizes=(
        Size("bits", "bits of a weight; 0: five numbers", default=0, on_cpu=0, least=0, most=8),
        Size("n", "columns; 0: two shapes", default=0, on_cpu=200, least=0, most=2**18),
        Size("k", "inner dimension, a multiple of 128; 0 with n", default=0, on_cpu=256, least=0, most=2**17),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
