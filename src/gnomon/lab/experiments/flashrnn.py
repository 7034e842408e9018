"""FlashRNN: all steps of an LSTM with heads in one kernel, its recurrent matrices kept on the multiprocessor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.calibrate.timer import captured
from gnomon.errors import InputError
from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import ELEMENTWISE, call_rate
from gnomon.lab.priced import gemm_s, stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

EAGER, GRAPH, FUSED, CUDNN = "eager", "CUDA graph", "one kernel", "cuDNN, one full matrix"
GATES, ROWS = 4, 16
WARPS = (4, 8)
STEP_KERNELS = 13
"""Of an eager step: the product, three sigmoids, two hyperbolic tangents, three multiplications, a sum, two changes of
format and the output's copy."""
STEP_CYCLES = 750.0
"""Of a fused step: four dependent matmuls of 64 (132), the hidden state through shared memory (160), a chain of
exponentials and divisions (200), and half as much again for what overlaps badly."""
BOUND = 0.15
"""Of the outputs' root mean square: bf16 hidden states, rounded in every step."""


@dataclass(frozen=True, slots=True)
class _Lstm:
    """Inputs [steps + 1, batch, heads, gates, dim] and recurrent matrices [heads, gates, dim, dim]."""

    torch: Any
    inputs: Any
    recurrent: Any

    def loop(self) -> Any:
        """One step after the other, each operation of its own, cells in fp32 or wider."""
        torch, recurrent = self.torch, self.recurrent
        steps, batch, heads, _, dim = self.inputs.shape
        flat = recurrent.transpose(1, 2).reshape(heads, dim, GATES * dim).contiguous()
        ordered = self.inputs.permute(0, 2, 1, 3, 4).reshape(steps, heads, batch, GATES * dim)
        hidden = torch.zeros(heads, batch, dim, dtype=flat.dtype, device=flat.device)
        kept = torch.promote_types(flat.dtype, torch.float32)
        cell = torch.zeros(heads, batch, dim, dtype=kept, device=flat.device)
        out = torch.empty(steps - 1, heads, batch, dim, dtype=flat.dtype, device=flat.device)
        for step in range(steps - 1):
            gates = torch.baddbmm(ordered[step], hidden, flat).to(kept)
            enter, forget, new, leave = gates.chunk(GATES, -1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            hidden = (torch.sigmoid(leave) * torch.tanh(cell)).to(flat.dtype)
            out[step] = hidden
        return out.transpose(1, 2)

    def fused(self, warps: int) -> Any:
        from gnomon.lab.kernels.recurrent import lstm

        steps, batch, heads, _, dim = self.inputs.shape
        out = self.torch.empty(steps - 1, batch, heads, dim, dtype=self.inputs.dtype, device=self.inputs.device)
        lstm[(heads, -(-batch // ROWS))](
            self.inputs, self.recurrent, out, steps - 1, batch, HEADS=heads, ROWS=ROWS, DIM=dim, num_warps=warps
        )
        return out

    def definition(self) -> Any:
        """In fp64, gate by gate."""
        torch, (steps, batch, heads, _, dim) = self.torch, self.inputs.shape
        recurrent = self.recurrent.double()
        hidden = torch.zeros(batch, heads, dim, dtype=torch.float64, device=recurrent.device)
        cell, found = hidden.clone(), []
        for step in range(steps - 1):
            gates = self.inputs[step].double() + torch.einsum("bhk,hgkd->bhgd", hidden, recurrent)
            enter, forget, new, leave = gates.unbind(2)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            hidden = torch.sigmoid(leave) * torch.tanh(cell)
            found.append(hidden)
        return torch.stack(found)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["dim"] & (sizes["dim"] - 1):
        hint = "Give 16, 32, 64 or 128."
        raise InputError(f"{sizes['dim']} is not a power of two", where="--size dim", hint=hint)
    bench.need_triton("a fused recurrent kernel on a GPU")
    checks = [_small(bench)]
    notes: list[str] = []
    compared: list[Compared] = []
    references = {}
    facts: dict[str, Any] = {ELEMENTWISE: _launch_rate(bench)} if bench.timed else {}
    for steps in _steps(sizes):
        bench.tell(f"{steps} steps")
        bench.release()
        model = _drawn(bench, sizes, steps)
        ways, way = _timed(bench, model, steps)
        checks += ways.checks
        notes += ways.notes
        reference = ways.attempt(CUDNN, partial(_cudnn, bench, sizes, steps))
        if reference is not None:
            references[f"{CUDNN}, {steps} steps"] = reference
        for row in rows(sizes):
            plain, mine = ways.runs.get(str(row.shape["plain"])), ways.runs.get(way or "")
            if row.shape["steps"] == steps and plain is not None and mine is not None:
                shape = dict(row.shape) | {"way": way}
                compared.append(row.compared(plain, mine, deferred_s=0.0, shape=shape))
    notes = [*NOTES, *dict.fromkeys(notes)]
    return Findings(
        checks=tuple(checks), compared=tuple(compared), references=references, facts=facts, notes=tuple(notes)
    )


NOTES = (
    "forward only, inputs multiplied before; the recurrent matrix is one per head, which cuDNN does not have: its LSTM "
    "has one full matrix of the same width and multiplies its inputs too",
    "eager: wall time; in a CUDA graph: all steps captured once",
)


def _timed(bench: Bench, model: _Lstm, steps: int) -> tuple[Ways, str | None]:
    """Each way checked and timed; the fastest kernel."""
    ways, truth = Ways(bench), model.definition()

    def check(name: str, found: Any) -> Check:
        return close(f"{steps} steps, {name}: against fp64", found, truth, BOUND)

    found = ways.attempt(EAGER, model.loop)
    if found is not None:
        ways.checks.append(check(EAGER, found))
        ways.runs[EAGER] = bench.wall(model.loop, 3)
    if bench.device == "cuda":
        graph = ways.attempt(GRAPH, lambda: captured(bench.torch, lambda _: model.loop(), 1))
        if graph is not None:
            ways.runs[GRAPH] = bench.wall(graph.replay, 5)
        kernels: dict[str, Callable[[], Any]] = {
            f"{FUSED}, {warps} warps": partial(model.fused, warps) for warps in WARPS
        }
    else:
        ways.runs[GRAPH] = ways.runs[EAGER]
        kernels = {FUSED: model.loop}
    for name, call in kernels.items():
        ways.run(name, call, partial(check, name))
    return ways, ways.fastest(tuple(kernels))


def _drawn(bench: Bench, sizes: Mapping[str, int], steps: int, dtype: Any = None) -> _Lstm:
    generator, kind = bench.generator(SEED + 81), dtype or bench.torch.bfloat16
    batch, heads, dim = sizes["batch"], sizes["heads"], sizes["dim"]
    inputs = bench.normal(steps + 1, batch, heads, GATES, dim, dtype=kind, generator=generator)
    recurrent = bench.normal(heads, GATES, dim, dim, dtype=kind, generator=generator, scale=dim**-0.5)
    return _Lstm(bench.torch, inputs, recurrent)


def _small(bench: Bench) -> Check:
    """The loop in fp64 against PyTorch's own LSTM, with one head."""
    torch, steps, dim = bench.torch, 7, 16
    model = _drawn(bench, {"batch": 3, "heads": 1, "dim": dim}, steps, torch.float64)
    own = torch.nn.LSTM(GATES * dim, dim, bias=False, dtype=torch.float64, device=bench.device)
    with torch.no_grad():
        own.weight_ih_l0.copy_(torch.eye(GATES * dim))
        own.weight_hh_l0.copy_(model.recurrent[0].transpose(1, 2).reshape(GATES * dim, dim))
        truth, _ = own(model.inputs[:steps, :, 0].reshape(steps, 3, GATES * dim))
    apart = max(float((each[:, :, 0] - truth).abs().max()) for each in (model.loop(), model.definition()))
    return Check(what="loop and definition in fp64 against PyTorch's LSTM", difference=apart, bound=1e-9)


def _cudnn(bench: Bench, sizes: Mapping[str, int], steps: int) -> Any:
    torch, width = bench.torch, sizes["heads"] * sizes["dim"]
    own = torch.nn.LSTM(width, width, dtype=torch.bfloat16, device=bench.device)
    x = bench.normal(steps, sizes["batch"], width, dtype=torch.bfloat16, generator=bench.generator(SEED + 82))
    with torch.no_grad():
        return bench.wall(lambda: own(x)[0], 5)


def _launch_rate(bench: Bench) -> float:
    """Small kernels per second that the host launches, measured alone."""
    x = bench.empty(1, dtype=bench.torch.float32).zero_()
    return call_rate(bench, lambda: x * 1.5)


def _steps(sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((sizes["steps"], max(1, sizes["steps"] // 4))))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = {name: sizes[name] for name in ("batch", "heads", "dim")}
    return tuple(
        LabRow(what=f"{steps} steps against {plain}", shape=shape | {"steps": steps, "plain": plain})
        for steps in _steps(sizes)
        for plain in (EAGER, GRAPH)
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Launches of an eager step, or its kernels one after the other in a graph; cycles of a fused step."""
    machine, shape = torch_machine(chip), row.shape
    steps, batch, heads, dim = (int(shape[name]) for name in ("steps", "batch", "heads", "dim"))
    if shape["plain"] == EAGER:
        each = STEP_KERNELS / rates[ELEMENTWISE]
    else:
        size = 4.0 * batch * heads * dim
        each = gemm_s(machine, batch, GATES * dim, dim, batch=heads) + (STEP_KERNELS - 1) * stream_s(
            machine, size, size
        )
    clock = chip.rates_flops["fp32"] / (256 * chip.sm_count)
    by = f"{STEP_KERNELS} kernels a step on {chip.name}, launched or in a graph; {STEP_CYCLES:g} cycles of a fused step"
    return Predicted.of_seconds(steps * each, steps * STEP_CYCLES / clock, by)


EXPERIMENT = Experiment(
    slug="flashrnn",
    title="FlashRNN: all steps of an LSTM with heads in one kernel",
    checks="outputs equal the recurrence in fp64 within what bf16 rounds; that equals PyTorch's own LSTM",
    claim=LabClaim(
        what="30 to 52 times a PyTorch loop forward on an H100 (batch 16, 1,024 steps, 768 wide)",
        comparable=True,
        why="the same shapes and baseline on the same generation; the loop's time is the host's, which differs",
    ),
    sizes=(
        Size("batch", "sequences", default=16, on_cpu=5, most=4096),
        Size("heads", "heads, each with a recurrent matrix of its own", default=12, on_cpu=3, most=1024),
        Size("dim", "width of a head, a power of two", default=64, on_cpu=16, least=16, most=128),
        Size("steps", "steps; a quarter of them too", default=1024, on_cpu=12, least=4, most=65536),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(ELEMENTWISE,),
)
