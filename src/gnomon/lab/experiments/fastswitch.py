"""FastSwitch: requests swapped out and in by groups of blocks beside the running steps, against block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gnomon.lab.base import Check, Compared, Experiment, Findings, LabClaim, LabRow, LabRun, Predicted, Rates, Size
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import replayable
from gnomon.lab.priced import copy_bytes_s, gemm_s, stream_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.lab.swaps import BLOCKS, COPIES, GATHERED, GROUPS, TOKENS, CacheShape, Rotation, SwappedCache, copy_rate
from gnomon.spec import Chip

OUT, BACK, STEPS = "swapped out", "swapped in", "steps with a swap each way"
WAITED, OVERLAPPED = "waited for", "beside the step"
DISTINCT = 4
"""Matrices that GEMMs of a step take turns with, more than the cache on the chip holds."""
CASES = (
    (OUT, BLOCKS, WAITED, GROUPS, WAITED),
    (BACK, BLOCKS, WAITED, GROUPS, WAITED),
    (STEPS, BLOCKS, WAITED, GROUPS, OVERLAPPED),
    (STEPS, BLOCKS, OVERLAPPED, GROUPS, OVERLAPPED),
    (STEPS, GROUPS, WAITED, GROUPS, OVERLAPPED),
    (OUT, GATHERED, WAITED, GROUPS, WAITED),
    (BACK, GATHERED, WAITED, GROUPS, WAITED),
    (STEPS, GATHERED, OVERLAPPED, GROUPS, OVERLAPPED),
    (STEPS, BLOCKS, OVERLAPPED, GATHERED, OVERLAPPED),
)
Run = tuple[str, str, str]
"""What is done, how it is copied, and when."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("allocating the cache and host memory")
    shape = _shape(sizes)
    facts: dict[str, Any] = {"request_bytes": shape.request_bytes, "block_bytes": shape.block_bytes}
    facts |= copy_rate(bench) | link_rates(bench)
    cache, step = SwappedCache(bench, shape), _step(bench, sizes)
    checks: list[Check] = []
    runs: dict[Run, LabRun] = {}
    host_bytes = shape.requests * shape.request_bytes
    for way in (BLOCKS, GROUPS, GATHERED):
        bench.tell(way)
        checks.append(_restored(cache, way))
        calls: dict[Run, Callable[[], Any]] = {
            (OUT, way, WAITED): partial(_every, cache.out, way, shape.requests),
            (BACK, way, WAITED): partial(_every, cache.back, way, shape.requests),
        }
        for when in (WAITED, OVERLAPPED):
            if not any((STEPS, way, when) in _runs(case) for case in CASES):
                continue
            rotation = Rotation(cache, way, step, overlapped=when == OVERLAPPED)
            checks.append(_rotated(rotation, when))
            calls[STEPS, way, when] = partial(rotation.run, shape.requests)
        runs |= {run: bench.wall(call, sizes["repeats"], host_bytes=host_bytes) for run, call in calls.items()}
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "block by block, as vLLM swaps: one cuMemcpyAsync for each block of each layer's keys and values, from a loop; "
    "groups: one for all blocks of a layer's keys or values, which lie next to each other; wall time from an idle GPU "
    "to an idle one",
    "gathered: blocks that lie anywhere are gathered by one kernel and copied at once, which needs no groups and is "
    "not what the paper proposes",
    "steps: GEMMs of a decode in a CUDA graph; all copies are done when the clock stops. A request comes back to the "
    "blocks that it had",
)


def _shape(sizes: Mapping[str, int]) -> CacheShape:
    return CacheShape(
        layers=sizes["layers"],
        blocks=-(-sizes["tokens"] // TOKENS),
        block_bytes=TOKENS * sizes["kv_bytes"],
        requests=2 * sizes["pairs"],
    )


def _step(bench: Bench, sizes: Mapping[str, int]) -> Callable[[], Any]:
    """A step's GEMMs, one after the other, as one graph."""
    torch, width, generator = bench.torch, sizes["width"], bench.generator(SEED + 132)
    scale = width**-0.5
    matrices = [
        bench.normal(width, width, dtype=torch.bfloat16, generator=generator, scale=scale) for _ in range(DISTINCT)
    ]
    x = bench.normal(sizes["batch"], width, dtype=torch.bfloat16, generator=generator)

    def gemms() -> Any:
        found = x
        for turn in range(sizes["gemms"]):
            found = torch.nn.functional.linear(found, matrices[turn % DISTINCT])
        return found

    return replayable(bench, gemms)[0]


def _every(swap: Callable[[str, int], None], way: str, count: int) -> None:
    for request in range(count):
        swap(way, request)


def _restored(cache: SwappedCache, way: str) -> Check:
    """All requests out, the cache emptied, all in again."""
    bench, count = cache.bench, cache.shape.requests
    cache.reset(way, ())
    _every(cache.out, way, count)
    bench.synchronize()
    cache.near.zero_()
    _every(cache.back, way, count)
    bench.synchronize()
    unlike = sum(cache.differing_near(way, one) + cache.differing_far(way, one) for one in range(count))
    return Check(what=f"{way}: words that differ after a swap out and in", difference=float(unlike), bound=0.0)


def _rotated(rotation: Rotation, when: str) -> Check:
    """Half of the requests leave while the others come, three times, without a pause."""
    cache, way = rotation.cache, rotation.way
    count = cache.shape.requests
    half = count // 2
    cache.reset(way, range(half, count))
    rotation.spoils = True
    rotation.run(3 * half)
    rotation.spoils = False
    cache.bench.synchronize()
    unlike = sum(cache.differing_far(way, one) for one in range(half))
    unlike += sum(cache.differing_near(way, one) for one in range(half, count))
    return Check(what=f"{way}, {when}: words that differ after steps with swaps", difference=float(unlike), bound=0.0)


def _runs(case: tuple[str, str, str, str, str]) -> tuple[Run, Run]:
    what, plain, plain_when, mine, mine_when = case
    return (what, plain, plain_when), (what, mine, mine_when)


def _compared(row: LabRow, runs: Mapping[Run, LabRun]) -> Compared:
    plain, mine = _runs_of(row)
    return row.compared(runs[plain], runs[mine], deferred_s=0.0, of_paper=mine[1] == GROUPS)


def _runs_of(row: LabRow) -> tuple[Run, Run]:
    what, plain, plain_when, mine, mine_when = (
        str(row.shape[name]) for name in ("done", "plain", "plain_when", "technique", "technique_when")
    )
    return _runs((what, plain, plain_when, mine, mine_when))


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shared = {name: sizes[name] for name in ("layers", "tokens", "kv_bytes", "pairs", "gemms", "width", "batch")}
    found = []
    for done, plain, plain_when, mine, mine_when in CASES:
        count = 2 * sizes["pairs"]
        if done == STEPS:
            what = f"{count} {STEPS}, {mine} {mine_when}, against {plain} {plain_when}"
        else:
            what = f"{count} requests {done}, {mine}, against {plain}"
        case = {"done": done, "plain": plain, "plain_when": plain_when, "technique": mine, "technique_when": mine_when}
        found.append(LabRow(what=what, shape=shared | case))
    return tuple(found)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted:
    """Copies as fast as the link, or as they are issued; steps from the chip's GEMMs."""
    shape, machine = row.shape, torch_machine(chip)
    cache = _shape({name: int(shape[name]) for name in ("layers", "tokens", "kv_bytes", "pairs")})
    width, batch = int(shape["width"]), int(shape["batch"])
    compute, link = int(shape["gemms"]) * gemm_s(machine, batch, width, width), copy_bytes_s(chip)

    def issued_s(way: str) -> float:
        """The host's part of one request's copies, one way."""
        return cache.planes * {BLOCKS: cache.blocks, GROUPS: 1, GATHERED: 0}[way] / rates[COPIES]

    def swap_s(way: str) -> float:
        """One request, one way."""
        gathered = stream_s(machine, cache.request_bytes, cache.request_bytes) if way == GATHERED else 0.0
        return max(cache.request_bytes / link, issued_s(way)) + gathered

    def seconds(run: Run) -> float:
        done, way, when = run
        if done != STEPS:
            return cache.requests * swap_s(way)
        if when == WAITED:
            return cache.requests * (compute + 2 * swap_s(way))
        return cache.requests * max(compute, swap_s(way), 2 * issued_s(way))

    by = f"the link of {chip.name}'s host, small copies as the run measured them alone, and GEMMs of the chip"
    plain, mine = _runs_of(row)
    return Predicted.of_seconds(seconds(plain), seconds(mine), by)


EXPERIMENT = Experiment(
    slug="fastswitch",
    title="FastSwitch: preempted requests swapped by groups of blocks, beside the running steps",
    checks="requests that were swapped out and in again, also beside steps, are the same, bit by bit, on the GPU and "
    "in host memory",
    claim=LabClaim(
        what="1.4 to 11.2 times faster tails of TTFT and TBT than vLLM 0.3.3, and up to 1.44 times its throughput, on "
        "an A10 and an A100",
        comparable=False,
        why="the paper's gains are of requests under priorities that change; this is of swaps, and of steps that each "
        "have one",
    ),
    sizes=(
        Size("layers", "layers of the model", default=32, on_cpu=3, most=200),
        Size("tokens", "tokens of a request, in blocks of 16", default=1000, on_cpu=70, most=2**20),
        Size("kv_bytes", "bytes of a token's keys or values in a layer, a multiple of 8", default=2048, on_cpu=16,
             least=8, most=2**16),
        Size("pairs", "requests that run, and as many that wait", default=4, on_cpu=2, most=64),
        Size("gemms", "square GEMMs of a step", default=128, on_cpu=2, most=10_000),
        Size("width", "their width", default=8192, on_cpu=32, least=8, most=32768),
        Size("batch", "their rows", default=64, on_cpu=4, most=8192),
        Size("repeats", "timed passes", default=9, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=(COPIES,),
)  # fmt: skip
