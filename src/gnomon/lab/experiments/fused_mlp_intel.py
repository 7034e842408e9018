"""Fused MLPs: all layers of a narrow perceptron in one kernel, against a GEMM and a ReLU for each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import BF16_BYTES, Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import ELEMENTWISE, GEMM, TRITON, Tally, call_rate, graphed, launch_rates, repeated
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

EAGER, GRAPH = "eager", "CUDA graph"
COMPILED, EPILOGUE = "torch.compile in a CUDA graph", "GEMMs with ReLU in a CUDA graph"
PLAIN = (EPILOGUE, COMPILED, GRAPH, EAGER)
FUSED, CAPTURED = "one kernel", "one kernel in a CUDA graph"
TILES = ((64, 4), (128, 4), (128, 8), (256, 8))
"""Rows of a program and its warps."""
STAGES = 3
BOUND = 0.1
"""Of the outputs' root mean square, the largest difference: layers rounded to bf16 alike, sums in another order."""
ISSUED = 2.3
"""Instructions of a thread for each value of a layer, as built for sm_90: some 150 for 64, a maximum for each, half a
conversion, shared memory and waits."""
LAYER_CYCLES = 600.0
"""Of a program by itself: four matrix instructions that wait for each other, a barrier, and the next weights."""


@dataclass(frozen=True, slots=True)
class _Perceptron:
    """Layers of a width without biases, a ReLU after each but the last: x [batch, width], weights [layers, width,
    width]."""

    torch: Any
    x: Any
    weights: Any
    biases: Any
    """Zeros, for kernels that want them."""

    def chain(self) -> Any:
        return _chain(self.torch, self.x, self.weights)

    def epilogue(self) -> Any:
        """The ReLU in cuBLAS's own epilogue, which wants a bias."""
        torch, found = self.torch, self.x
        for weight in self.weights[:-1]:
            found = torch._addmm_activation(self.biases, found, weight.T)
        return torch.nn.functional.linear(found, self.weights[-1])

    def fused(self, rows: int, warps: int) -> Any:
        from gnomon.lab.kernels.perceptron import layers

        (batch, width), out = self.x.shape, self.torch.empty_like(self.x)
        layers[(-(-batch // rows),)](
            self.x, self.weights, out, batch,
            LAYERS=len(self.weights), WIDTH=width, ROWS=rows, STAGES=STAGES, num_warps=warps,
        )  # fmt: skip
        return out

    def truth(self) -> Any:
        """Sums in fp64, rounded after each layer as bf16 is."""
        found, kind = self.x.double(), self.x.dtype
        for layer, weight in enumerate(self.weights):
            found = found @ weight.double().T
            found = (found.relu() if layer < len(self.weights) - 1 else found).to(kind).double()
        return found


def _chain(torch: Any, x: Any, weights: Any) -> Any:
    functional = torch.nn.functional
    for weight in weights[:-1]:
        x = functional.relu(functional.linear(x, weight))
    return functional.linear(x, weights[-1])


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["width"] & (sizes["width"] - 1):
        hint = "Give 16, 32, 64 or 128."
        raise InputError(f"{sizes['width']} is not a power of two", where="--size width", hint=hint)
    bench.need_triton("a fused perceptron on a GPU")
    facts = dict[str, Any](launch_rates(bench))
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    for batch in _batches(sizes):
        bench.release()
        bench.tell(f"{batch} rows")
        ways, best = _timed(bench, _drawn(bench, sizes, batch))
        checks += ways.checks
        notes += ways.notes
        for row in rows(sizes):
            technique = f"{row.shape['technique']}, {best}"
            plain, mine = ways.runs.get(str(row.shape["plain"])), ways.runs.get(technique)
            if row.shape["batch"] == batch and plain is not None and mine is not None:
                shape = dict(row.shape) | {"way": best}
                compared.append(row.compared(plain, mine, deferred_s=0.0, shape=shape))
    facts |= _triton_rate(bench, sizes)
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "inference without biases in bf16; eager, and the kernel against it: wall time of a call among others like it, "
    "launches included; in a CUDA graph: device time; inputs stay in the L2 cache where they fit",
    "GEMMs with ReLU: torch._addmm_activation, with a bias of zeros",
)


def _timed(bench: Bench, task: _Perceptron) -> tuple[Ways, str | None]:
    """Each way checked on all rows and timed; the tile of the fastest kernel."""
    ways, there = Ways(bench), bench.device == "cuda"
    truth = task.truth()
    calls: dict[str, Callable[[], Any]] = {EAGER: task.chain, GRAPH: task.chain, EPILOGUE: task.epilogue}
    calls[COMPILED] = partial(_compiled(bench.torch), task.x, task.weights) if there else task.chain
    tiles = {f"{rows} rows, {warps} warps": (rows, warps) for rows, warps in TILES} if there else {"PyTorch": (0, 0)}
    for name, tile in tiles.items():
        call = partial(task.fused, *tile) if there else _narrowed(task)
        calls |= {f"{FUSED}, {name}": call, f"{CAPTURED}, {name}": call}
    for name, call in calls.items():
        what = f"{task.x.shape[0]} rows, {name}"
        found = ways.attempt(f"{what},", call)
        if found is None:
            continue
        near = close(f"{what}: against fp64 sums", found, truth, BOUND)
        del found
        ways.checks.append(near)
        timed = repeated if name.startswith((EAGER, f"{FUSED}, ")) else graphed
        run = ways.attempt(f"{what}, timed,", partial(timed, bench, call)) if near.ok else None
        if run is not None:
            ways.runs[name] = run
    best = ways.fastest(tuple(f"{CAPTURED}, {name}" for name in tiles))
    return ways, best.removeprefix(f"{CAPTURED}, ") if best else None


def _narrowed(task: _Perceptron) -> Callable[[], Any]:
    """In place of the kernel where there is no GPU: tiles of rows, each through all layers."""
    return lambda: task.torch.cat([_chain(task.torch, rows, task.weights) for rows in task.x.split(64)])


def _compiled(torch: Any, backend: str = "inductor") -> Callable[..., Any]:
    def chain(x: Any, weights: Any) -> Any:
        return _chain(torch, x, weights)

    found: Callable[..., Any] = torch.compile(chain, dynamic=False, fullgraph=True, backend=backend)
    return found


def _drawn(bench: Bench, sizes: Mapping[str, int], batch: int, dtype: Any = None) -> _Perceptron:
    generator, kind = bench.generator(SEED + 120), dtype or bench.torch.bfloat16
    layers, width = sizes["layers"], sizes["width"]
    x = bench.normal(batch, width, dtype=kind, generator=generator)
    weights = bench.normal(layers, width, width, dtype=kind, generator=generator, scale=(2 / width) ** 0.5)
    return _Perceptron(bench.torch, x, weights, bench.torch.zeros(width, dtype=kind, device=bench.device))


def _triton_rate(bench: Bench, sizes: Mapping[str, int]) -> dict[str, float]:
    """Small Triton kernels per second that the host launches, measured alone."""
    if not bench.timed:
        return {}
    small = _drawn(bench, sizes, 64)
    return {TRITON: call_rate(bench, partial(small.fused, *TILES[0]) if bench.device == "cuda" else small.chain)}


def _batches(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((sizes["batch"], sizes["large"], sizes["small"])))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("layers", "width")}
    return tuple(
        LabRow(
            what=f"{batch} rows: {FUSED} against {plain}",
            shape=shape | {"batch": batch, "plain": plain, "technique": FUSED if plain == EAGER else CAPTURED},
        )
        for batch in _batches(sizes)
        for plain in PLAIN
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """GEMMs and ReLUs one after the other, or the host's launches; one kernel by its bytes, or by its instructions or
    its chain of layers after it started, whichever takes longest."""
    shape, machine = row.shape, torch_machine(chip)
    batch, layers, width = (int(shape[name]) for name in ("batch", "layers", "width"))
    size, tally = BF16_BYTES * batch * width, Tally(machine)
    for _ in range(layers):
        tally.gemm(batch, width, width)
    for _ in range(0 if shape["plain"] == EPILOGUE else layers - 1):
        tally.stream(size, size)
    matrices = 2.0 * layers * batch * width**2 / chip.rate("bf16")
    issued = layers * batch * width * ISSUED / (chip.rates_flops["fp32"] / 2)
    chained = layers * LAYER_CYCLES / chip.boost_hz
    fused = max(stream_s(machine, size, size), stream_s(machine, 1.0, 1.0) + max(matrices + issued, chained))
    plain = tally.device_s
    if shape["plain"] == EAGER:
        plain = max(plain, tally.elementwise / rates[ELEMENTWISE] + tally.gemms / rates[GEMM])
        fused = max(fused, 1 / rates[TRITON])
    by = f"{tally.launches:.0f} kernels on {chip.name}; one kernel's bytes, matrix and other instructions"
    return Predicted.of_seconds(plain, fused, by)


EXPERIMENT = Experiment(
    slug="fused-mlp-intel",
    title="Fused MLPs: all layers of a narrow perceptron in one kernel",
    checks="every row of every way equals fp64 sums that are rounded after each layer alike",
    claim=LabClaim(
        what="inference on an Intel Max 1550: up to 2.84 times a fused CUDA implementation on an H100, and 19 times "
        "PyTorch on it",
        comparable=False,
        why="the paper compares two vendors' chips; this is a fused Triton kernel against PyTorch's on one, which the "
        "paper's table has as 1.543 s and 0.236 s of 1,000 batches (6.5x) with CUDA kernels on an H100 PCIe",
    ),
    sizes=(
        Size("layers", "matrices of the network", default=12, on_cpu=4, least=2, most=64),
        Size("width", "inputs, hidden values and outputs, a power of two", default=64, on_cpu=32, least=16, most=128),
        Size("batch", "rows of the paper's first table", default=2**17, on_cpu=200, most=2**24),
        Size("large", "rows that the L2 cache does not hold", default=2**20, on_cpu=300, most=2**24),
        Size("small", "rows that leave multiprocessors idle", default=2**13, on_cpu=70, most=2**24),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(ELEMENTWISE, GEMM, TRITON),
)
