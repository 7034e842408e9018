"""The Fused Kernel Library: chains of operations and many small images in one kernel, against one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import ELEMENTWISE, TRITON, call_rate, graphed, repeated
from gnomon.lab.priced import stream_s, torch_machine
from gnomon.lab.ways import Ways, close
from gnomon.spec import Chip

EAGER, COMPILED, FUSED = "eager", "torch.compile", "one kernel"
GRAPH, BATCHED, CAPTURED = "CUDA graph", "batched in a CUDA graph", "one kernel in a CUDA graph"
CHAIN, CROPS = "chain", "crops"
FACTOR = 1.0009765625
CROP, RESIZED = (60, 120), (64, 128)
FRAME = (1080, 1920)
MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALE = 1 / 255
BLOCK, CHAIN_BLOCK = 256, 1024
CROP_KERNELS = 5
"""Of one crop: to fp32, resized, scaled, shifted, divided."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """An array times a factor, several times."""

    torch: Any
    x: Any
    count: int

    def eager(self) -> Any:
        found = self.x
        for _ in range(self.count):
            found = found * FACTOR
        return found

    def fused(self) -> Any:
        from gnomon.lab.kernels.fused import chain

        out, size = self.torch.empty_like(self.x), self.x.numel()
        chain[(-(-size // CHAIN_BLOCK),)](self.x, out, size, FACTOR, self.count, BLOCK=CHAIN_BLOCK)
        return out

    def truth(self) -> Any:
        return self.x[:4096].double() * FACTOR**self.count


@dataclass(frozen=True, slots=True)
class _Crops:
    """Crops of a frame of bytes, resized, scaled, shifted, divided and split by channel."""

    torch: Any
    frame: Any
    corners: Any
    places: tuple[tuple[int, int], ...]
    shifts: Any

    def eager(self) -> list[Any]:
        return [
            self._ready(self.frame[r : r + CROP[0], c : c + CROP[1]].permute(2, 0, 1)[None]) for r, c in self.places
        ]

    def batched(self) -> Any:
        """All crops gathered by their indices, then each operation once."""
        torch = self.torch
        rows = torch.arange(CROP[0], device=self.frame.device)[None, :, None] + self.corners[:, 0, None, None]
        columns = torch.arange(CROP[1], device=self.frame.device)[None, None, :] + self.corners[:, 1, None, None]
        return self._ready(self.frame[rows, columns].permute(0, 3, 1, 2))

    def _ready(self, crops: Any, dtype: Any = None) -> Any:
        wide = crops.to(dtype or self.torch.float32)
        sized = self.torch.nn.functional.interpolate(wide, size=RESIZED, mode="bilinear", align_corners=False)
        means, deviations = self.shifts.to(wide.dtype)[:, None, :, None, None]
        return (sized * SCALE - means) / deviations

    def fused(self) -> Any:
        from gnomon.lab.kernels.fused import crops

        torch, count, (height, width) = self.torch, len(self.places), RESIZED
        out = torch.empty(count, 3, height, width, dtype=torch.float32, device=self.frame.device)
        crops[(count, -(-height * width // BLOCK))](
            self.frame, self.corners, self.shifts, out, self.frame.shape[1], SCALE,
            HEIGHT=CROP[0], WIDTH=CROP[1], OUT_HEIGHT=height, OUT_WIDTH=width, BLOCK=BLOCK,
        )  # fmt: skip
        return out

    def truth(self) -> Any:
        gathered = [self.frame[r : r + CROP[0], c : c + CROP[1]].permute(2, 0, 1) for r, c in self.places]
        return self._ready(self.torch.stack(gathered), self.torch.float64)


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.need_triton("a fused kernel on a GPU")
    facts: dict[str, Any] = _launch_rates(bench)
    checks: list[Check] = []
    notes: list[str] = []
    compared: list[Compared] = []
    runs: dict[tuple[Any, ...], Ways] = {}
    for row in rows(sizes):
        kind, size, count = (row.shape[name] for name in ("kind", "size", "count"))
        if (kind, size, count) not in runs:
            bench.release()
            bench.tell(f"{kind}, {size} values, {count} operations" if kind == CHAIN else f"{count} crops")
            ways = runs[kind, size, count] = Ways(bench)
            _timed(ways, _chain(bench, int(size), int(count)) if kind == CHAIN else _crops(bench, int(count)), row)
            checks += ways.checks
            notes += ways.notes
        plain, mine = (runs[kind, size, count].runs.get(str(row.shape[name])) for name in ("plain", "technique"))
        if plain is not None and mine is not None:
            own = row.shape["technique"] != COMPILED
            compared.append(row.compared(plain, mine, deferred_s=0.0, of_paper=own))
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=(*NOTES, *dict.fromkeys(notes)))


NOTES = (
    "eager, compiled and one kernel: wall time of a call among others like it, launches included; in a CUDA graph: "
    "device time",
    "crops of 60 x 120 bytes x 3 to 64 x 128 in fp32; batched: crops gathered by index, then each operation once",
)


def _timed(ways: Ways, task: _Chain | _Crops, row: LabRow) -> None:
    """Each way of one task, checked and timed."""
    bench, truth = ways.bench, task.truth()
    there = bench.device == "cuda"
    fused = task.fused if there else task.eager
    calls: dict[str, Callable[[], Any]] = {EAGER: task.eager, FUSED: fused, GRAPH: task.eager, CAPTURED: fused}
    if isinstance(task, _Crops):
        calls[BATCHED] = task.batched
    else:
        calls[COMPILED] = bench.torch.compile(task.eager, dynamic=False) if there else task.eager
    for name, call in calls.items():
        found = ways.attempt(name, call)
        if found is None:
            continue
        whole = bench.torch.cat(found) if isinstance(found, list) else found
        what = f"{row.shape['kind']}, {row.shape['size']} values, {row.shape['count']}: {name}"
        near = close(what, whole.flatten()[: truth.numel()], truth.flatten(), 1e-4)
        del found, whole
        ways.checks.append(near)
        timed = graphed if name in (GRAPH, BATCHED, CAPTURED) else repeated
        run = ways.attempt(f"{name}, timed,", partial(timed, bench, call)) if near.ok else None
        if run is not None:
            ways.runs[name] = run


def _launch_rates(bench: Bench) -> dict[str, float]:
    """Small kernels per second that the host launches, PyTorch's and Triton's, measured alone."""
    if not bench.timed:
        return {}
    small = _chain(bench, 1, 1)
    own = small.fused if bench.device == "cuda" else small.eager
    return {ELEMENTWISE: call_rate(bench, small.eager), TRITON: call_rate(bench, own)}


def _chain(bench: Bench, size: int, count: int) -> _Chain:
    x = bench.normal(size, dtype=bench.torch.float32, generator=bench.generator(SEED + 71))
    return _Chain(bench.torch, x, count)


def _crops(bench: Bench, count: int) -> _Crops:
    torch, generator = bench.torch, bench.torch.Generator().manual_seed(SEED + 72)
    frame = torch.randint(0, 256, (*FRAME, 3), dtype=torch.uint8, generator=generator).to(bench.device)
    first, second = (torch.randint(0, FRAME[i] - CROP[i] + 1, (count,), generator=generator) for i in range(2))
    places = tuple(zip(first.tolist(), second.tolist(), strict=True))
    corners = torch.tensor(places, dtype=torch.int32, device=bench.device)
    shifts = torch.tensor((MEANS, DEVIATIONS), dtype=torch.float32, device=bench.device)
    return _Crops(torch, frame, corners, places, shifts)


def _cases(sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    for count in (sizes["short"], sizes["long"]):
        for size in (sizes["small"], sizes["large"]):
            yield CHAIN, size, count
    yield CROPS, 3 * RESIZED[0] * RESIZED[1], sizes["crops"]


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    found = []
    for kind, size, count in _cases(sizes):
        shape = {"kind": kind, "size": size, "count": count}
        name = f"{count} crops" if kind == CROPS else f"{count} multiplications over {size} values"
        other = (BATCHED, CAPTURED) if kind == CROPS else (EAGER, COMPILED)
        pairs = ((EAGER, FUSED), (GRAPH, CAPTURED), other)
        found += [
            LabRow(what=f"{name}: {mine} against {plain}", shape=shape | {"plain": plain, "technique": mine})
            for plain, mine in pairs
        ]
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """A kernel's stream through memory and its launch, times the kernels; the host's launches where they are slower."""
    shape, machine = row.shape, torch_machine(chip)
    count = int(shape["count"])
    lanes = chip.rates_flops["fp32"] / 2

    def seconds(way: str) -> float:
        every, values = 1 if shape["kind"] == CHAIN else CROP_KERNELS, 4.0 * int(shape["size"])
        if way in (FUSED, CAPTURED):
            moved = values if shape["kind"] == CHAIN else count * values
            took = max(stream_s(machine, moved, moved), every * count * values / 4 / lanes)
            return max(took, 1 / rates[TRITON]) if way == FUSED else took
        if way == BATCHED:
            # Indices added twice and the gather, then each operation once over all crops.
            return 3 * stream_s(machine, 1.0, 1.0) + CROP_KERNELS * stream_s(machine, count * values, count * values)
        launch = 1 / rates[ELEMENTWISE] if way == EAGER else 0.0
        return count * every * max(launch, stream_s(machine, values, values))

    if row.shape["technique"] == COMPILED:
        return None
    by = f"a kernel's stream on {chip.name}, and launches as the run measured them alone"
    return Predicted.of_seconds(seconds(str(shape["plain"])), seconds(str(shape["technique"])), by)


EXPERIMENT = Experiment(
    slug="the-fused-kernel-library",
    title="The Fused Kernel Library: chains of operations and many small images in one kernel",
    checks="every way gives the result in fp64 within rounding",
    claim=LabClaim(
        what="2 to more than 1,000 times traditional GPU libraries; 38 times for 50 crops on an RTX A2000",
        comparable=False,
        why="the paper's baseline is OpenCV's CUDA kernels, and its kernels are C++ templates; these are PyTorch's "
        "operators and a Triton kernel with the same operations",
    ),
    sizes=(
        Size("small", "values of a small array", default=21_600, on_cpu=5000, least=4096, most=2**31 - 1),
        Size("large", "values of a large array", default=66_355_200, on_cpu=7000, least=4096, most=2**31 - 1),
        Size("short", "operations of a short chain", default=10, on_cpu=3, most=1000),
        Size("long", "operations of a long chain", default=100, on_cpu=5, most=1000),
        Size("crops", "crops of a frame", default=50, on_cpu=3, most=10_000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(ELEMENTWISE, TRITON),
)
