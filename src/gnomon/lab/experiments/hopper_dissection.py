"""Dissecting Hopper: chains of loads by level, matrix instructions alone, tiles whose loads run ahead, copies in L2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gnomon.errors import InputError
from gnomon.lab.base import Check, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.ways import Ways
from gnomon.spec import Chip

CHASE, INSTRUCTIONS, TILES, COPIES = "loads", "matrix instructions", "tiles", "copies"
L1, L2, MEMORY = "l1", "l2", "memory"
LEVELS = {L1: "L1", L2: "L2", MEMORY: "memory"}
CYCLES = {L1: 32.0, L2: 264.5, MEMORY: 625.0}
"""Of a load in a random chain on an H800 PCIe, the middle of 603 to 648 for memory: HPMLL/NVIDIA-Hopper-Benchmark
(ded6f57), logs."""
MMA, WGMMA = "mma", "wgmma"
REACHED = {MMA: 0.629, WGMMA: 0.95}
"""Of the peak of an H800 PCIe in 16 bits: arXiv:2402.13499, notes on its tables and logs."""
SYNCHRONOUS, AHEAD = "loads waited for", "loads ahead"
STAGES = {SYNCHRONOUS: 1, AHEAD: 4}
LINE, INDEX = 128, 4
STARTS = 16
"""Places in a chain to begin at, so that no level finds what the call before left in a lower one."""
WHOLE = 3
"""Operands are whole numbers up to this, so that sums are exact."""
L2_BYTES_CYCLE = 64.0
"""Of a multiprocessor, from the L2 cache: NVIDIA's Ampere white paper, 5,120 bytes a clock for all."""
FLOPS_CYCLE = 4096.0
"""Of a Hopper multiprocessor in 16 bits: its data sheet's rate over processors and clock."""


class Form(NamedTuple):
    """A tile's sides and warps, and how many programs a multiprocessor runs at once."""

    m: int
    n: int
    k: int
    warps: int
    programs: int


FORMS = {MMA: Form(64, 64, 32, 1, 8), WGMMA: Form(64, 256, 64, 4, 2)}
"""A warp is no warpgroup, which wgmma needs; its tile is as large as registers allow, so that what it reads from shared
memory each time does not bind it."""
SHARES = {MMA: 2, WGMMA: 1}
"""Times that a form is repeated for one of the other, so that both do the same work."""
TILED = {"64 x 64 x 32": (Form(64, 64, 32, 4, 7), 7), "128 x 128 x 64": (Form(128, 128, 64, 8, 2), 1)}
"""Tiles of a GEMM, and the programs at once where loads run ahead, which takes shared memory: as built for sm_90."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Lines of 128 bytes in a random order, each with the index of the next."""

    following: Any
    order: Any
    steps: int

    def start(self, turn: int) -> int:
        return int(self.order[turn * self.steps % len(self.order)])

    def end(self, turn: int) -> int:
        return int(self.order[(turn + 1) * self.steps % len(self.order)])

    def plainly(self, starts: list[int], turn: int) -> Any:
        at = self.following.new_tensor([starts[turn]])
        for _ in range(self.steps):
            at = self.following[at]
        return at

    def kernel(self, starts: list[int], turn: int) -> Any:
        from gnomon.lab.kernels.dissected import chase

        out = self.following.new_empty(1)
        chase[(1,)](self.following, out, starts[turn], self.steps, num_warps=1)
        return out


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    if sizes["side"] % 128:
        raise InputError(f"{sizes['side']} is not a multiple of 128", where="--size side")
    bench.need_triton("kernels that time one thing each")
    ways = Ways(bench)
    for part in (_chase, _instructions, _tiles, _copies):
        bench.release()
        part(ways, sizes)
    compared = []
    for row in rows(sizes):
        plain, mine = (ways.runs.get(f"{row.shape['kind']}, {row.shape[name]}") for name in ("plain", "technique"))
        if plain is not None and mine is not None:
            compared.append(row.compared(plain, mine, deferred_s=0.0))
    notes = (*NOTES, *dict.fromkeys(ways.notes))
    return Findings(checks=tuple(ways.checks), compared=tuple(compared), facts=_facts(ways, sizes), notes=notes)


NOTES = (
    "loads: one warp, each load's address is the value before it, random lines of 128 bytes; matrix instructions: "
    "operands in shared memory, as many FLOPs either way; tiles: one Triton kernel, compiled with one stage or four",
    "instructions for dynamic programming (DPX) and shared memory of other multiprocessors are out of Triton's reach",
)


def _timed_alone(ways: Ways, name: str, call: Callable[[], Any]) -> None:
    _timed(ways, name, lambda _: call())


def _timed(ways: Ways, name: str, call: Callable[[int], Any], copies: int = 1) -> None:
    run = ways.attempt(f"{name}, timed,", partial(ways.bench.cold, call, copies))
    if run is not None:
        ways.runs[name] = run


def _exact(ways: Ways, name: str, found: Any, truth: Any) -> bool:
    ways.checks.append(Check(what=f"{name}: values that differ", difference=float((found != truth).sum()), bound=0.0))
    return ways.checks[-1].ok


def _chase(ways: Ways, sizes: Mapping[str, int]) -> None:
    torch, bench = ways.bench.torch, ways.bench
    for level in LEVELS:
        name = f"{CHASE}, {level}"
        bench.tell(name)
        order = torch.randperm(sizes[level] // LINE, device=bench.device, generator=bench.generator(SEED + 130))
        order = (order * (LINE // INDEX)).to(torch.int32)
        following = bench.empty(sizes[level] // INDEX, dtype=torch.int32).zero_()
        following[order.long()] = order.roll(-1)
        chain = _Chain(following, order, sizes["steps"])
        call = chain.kernel if bench.device == "cuda" else chain.plainly
        starts = [chain.start(turn) for turn in range(STARTS)]
        ends = [ways.attempt(name, partial(call, starts, turn)) for turn in (0, 1)]
        if any(end is None for end in ends):
            continue
        truth = torch.tensor([chain.end(turn) for turn in (0, 1)], device=bench.device)
        if _exact(ways, name, torch.cat(ends), truth):
            _timed(ways, name, partial(call, starts), STARTS)


def _whole(bench: Bench, *shape: int, seed: int) -> Any:
    """Random whole numbers in bf16."""
    torch = bench.torch
    found = torch.randint(-WHOLE, WHOLE + 1, shape, device=bench.device, generator=bench.generator(SEED + seed))
    return found.to(torch.bfloat16)


def _instructions(ways: Ways, sizes: Mapping[str, int]) -> None:
    bench = ways.bench
    for kind, form in FORMS.items():
        name, times = f"{INSTRUCTIONS}, {kind}", sizes["times"] * SHARES[kind]
        bench.tell(name)
        a, b = _whole(bench, form.m, form.k, seed=131), _whole(bench, form.k, form.n, seed=132)
        programs = form.programs * bench.processors if bench.device == "cuda" else 2
        call = partial(_multiplied, bench, form, (a, b), programs, times)
        found = ways.attempt(name, call)
        truth = (a.double() @ b.double() * times).float()
        if found is not None and _exact(ways, name, found, truth.expand(programs, -1, -1)):
            _timed_alone(ways, name, call)


def _multiplied(bench: Bench, form: Form, operands: tuple[Any, Any], programs: int, times: int) -> Any:
    a, b = operands
    out = bench.empty(programs, form.m, form.n, dtype=bench.torch.float32)
    if bench.device != "cuda":
        return out.copy_(sum(a.float() @ b.float() for _ in range(times)))
    return multiplied(form, operands, out, times)


def multiplied(form: Form, operands: tuple[Any, Any], out: Any, times: int) -> Any:
    from gnomon.lab.kernels import dissected

    a, b = operands
    dissected.multiplied[(len(out),)](a, b, out, times, M=form.m, N=form.n, K=form.k, num_warps=form.warps)
    return out


def _tiles(ways: Ways, sizes: Mapping[str, int]) -> None:
    torch, bench, side = ways.bench.torch, ways.bench, sizes["side"]
    a, b = (_whole(bench, side, side, seed=seed) for seed in (133, 134))
    truth = (a.float() @ b.float().T).to(torch.bfloat16)
    for shape, (form, _) in TILED.items():
        for how, stages in STAGES.items():
            name = f"{TILES}, {shape}, {how}"
            bench.tell(name)
            out = torch.empty_like(a)
            if bench.device == "cuda":
                call = partial(tiled, form, stages, (a, b), out)
            else:
                call = partial(_by_depth, form.k, (a, b), out)
            found = ways.attempt(name, call)
            if found is not None and _exact(ways, name, found, truth):
                _timed_alone(ways, name, call)


def tiled(form: Form, stages: int, operands: tuple[Any, Any], out: Any) -> Any:
    from gnomon.lab.kernels import dissected

    (a, b), side = operands, len(out)
    grid = ((side // form.m) * (side // form.n),)
    dissected.tiled[grid](a, b, out, side, M=form.m, N=form.n, K=form.k, STAGES=stages, num_warps=form.warps)
    return out


def _by_depth(depth: int, operands: tuple[Any, Any], out: Any) -> Any:
    a, b = (each.float().split(depth, 1) for each in operands)
    return out.copy_(sum(left @ right.T for left, right in zip(a, b, strict=True)))


def _copies(ways: Ways, sizes: Mapping[str, int]) -> None:
    torch, bench = ways.bench.torch, ways.bench
    x = torch.randint(0, 2**30, (sizes[MEMORY] // INDEX,), dtype=torch.int32, device=bench.device)
    out = torch.empty_like(x)
    few = sizes[L2] // INDEX

    def at_once() -> Any:
        return torch.neg(x, out=out)

    def in_pieces() -> Any:
        for _ in range(sizes[MEMORY] // sizes[L2]):
            torch.neg(x[:few], out=out[:few])
        return out[:few]

    for level, call, count in ((MEMORY, at_once, len(x)), (L2, in_pieces, few)):
        name = f"{COPIES}, {level}"
        bench.tell(name)
        out.zero_()
        if _exact(ways, name, call(), -x[:count]):
            _timed_alone(ways, name, call)


def _facts(ways: Ways, sizes: Mapping[str, int]) -> dict[str, float]:
    """Seconds of a load by level, FLOPs of instructions and bytes of copies per second."""
    found: dict[str, float] = {}
    for name, run in ways.runs.items():
        kind, _, rest = name.partition(", ")
        key = rest.replace(" x ", "x").replace(", ", "_").replace(" ", "_")
        if not run.seconds:
            continue
        if kind == CHASE:
            found[f"{key}_load_s"] = run.seconds / sizes["steps"]
        elif kind == COPIES:
            found[f"{key}_copied_bytes_s"] = 2 * (sizes[MEMORY] // sizes[L2] * sizes[L2]) / run.seconds
        elif kind == TILES:
            found[f"tiles_{key}_flops_s"] = 2 * sizes["side"] ** 3 / run.seconds
        else:
            form = FORMS[rest]
            programs = form.programs * ways.bench.processors
            found[f"{key}_flops_s"] = (
                2.0 * form.m * form.n * form.k * programs * sizes["times"] * SHARES[rest] / run.seconds
            )
    return found


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return tuple(_rows(sizes))


def _rows(sizes: Mapping[str, int]) -> Iterator[LabRow]:
    shape = {"kind": INSTRUCTIONS, "times": sizes["times"], "plain": MMA, "technique": WGMMA}
    yield LabRow(what=f"{INSTRUCTIONS} in bf16: {WGMMA} against {MMA}", shape=shape)
    for tile in TILED:
        plain, mine = (f"{tile}, {how}" for how in (SYNCHRONOUS, AHEAD))
        shape = {"kind": TILES, "side": sizes["side"], "tile": tile, "plain": plain, "technique": mine}
        yield LabRow(what=f"{TILES} of {tile}: {AHEAD} against {SYNCHRONOUS}", shape=shape)
    for plain, mine in ((MEMORY, L2), (L2, L1)):
        shape = {"kind": CHASE, "steps": sizes["steps"], "plain": plain, "technique": mine}
        yield LabRow(what=f"{CHASE} that wait for each other: {LEVELS[mine]} against {LEVELS[plain]}", shape=shape)
    shape = {"kind": COPIES, "bytes": sizes[MEMORY], "piece": sizes[L2], "plain": MEMORY, "technique": L2}
    yield LabRow(what=f"{COPIES}: {LEVELS[L2]} against {LEVELS[MEMORY]}", shape=shape)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Latencies and shares of the peak as measured on an H800; tiles by cycles of a multiprocessor; copies by the
    chip's profile."""
    shape, kind = row.shape, row.shape["kind"]
    if kind == CHASE:
        plain, mine = (CYCLES[str(shape[name])] / chip.boost_hz for name in ("plain", "technique"))
        return Predicted.of_seconds(plain * shape["steps"], mine * shape["steps"], "cycles of a load on an H800 PCIe")
    if kind == INSTRUCTIONS:
        return Predicted(gain=REACHED[WGMMA] / REACHED[MMA], by="shares of the peak that an H800 PCIe reached")
    if kind == TILES:
        form, ahead = TILED[str(shape["tile"])]
        steps = int(shape["side"]) ** 3 / (form.m * form.n * form.k * chip.sm_count * chip.boost_hz)
        waited = _step_cycles(form, form.programs, CYCLES[L2])
        by = f"cycles of a step of a tile on {chip.name}: loads from L2 and matrix instructions"
        return Predicted.of_seconds(steps * waited, steps * _step_cycles(form, ahead, 0.0), by)
    machine, total, piece = torch_machine(chip), float(shape["bytes"]), float(shape["piece"])
    in_pieces = total / piece * stream_s(machine, piece, piece)
    return Predicted.of_seconds(stream_s(machine, total, total), in_pieces, f"streams of {chip.name}, cached and not")


def _step_cycles(form: Form, programs: int, latency: float) -> float:
    """Cycles between steps of a multiprocessor: its rates, or one program's wait, load and instructions over all."""
    multiplied = 2.0 * form.m * form.n * form.k / FLOPS_CYCLE
    loaded = 2.0 * (form.m + form.n) * form.k / L2_BYTES_CYCLE
    alone = (latency + multiplied + loaded) / programs if latency else 0.0
    return max(multiplied, loaded, alone)


EXPERIMENT = Experiment(
    slug="hopper-dissection",
    title="Dissecting Hopper: loads by level, matrix instructions, loads that run ahead",
    checks="chains end where they should, sums of whole numbers are exact, copies are equal",
    claim=LabClaim(
        what="on an H800 PCIe: loads of 32, 264 and 603 to 648 cycles from L1, L2 and memory; mma at 62.9% of peak, "
        "wgmma above 95%; asynchronous copies 39.5% faster in small blocks, 1.8% slower in large ones",
        comparable=False,
        why="an H800 PCIe has other memory, power and clocks; its asynchronous copies feed CUDA cores in blocks of 8 x "
        "8 and 32 x 32, ours tensor cores",
    ),
    sizes=(
        Size("steps", "loads of a chain", default=2**16, on_cpu=50, most=2**22),
        Size("l1", "bytes of a chain that L1 holds", default=2**14, on_cpu=2**14, least=2**10, most=2**17),
        Size("l2", "bytes of a chain, or a copy, that L2 holds", default=2**23, on_cpu=2**14, least=2**12, most=2**25),
        Size("memory", "bytes of a chain and copies in memory", default=2**30, on_cpu=2**16, least=2**14, most=2**32),
        Size("times", "repeats of a wgmma tile", default=4096, on_cpu=3, most=2**14),
        Size("side", "of a GEMM, a multiple of 128", default=4096, on_cpu=128, least=128, most=2**14),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
