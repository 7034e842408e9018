"""CO2: local steps between averages of the weights, checked by processes on the CPU and timed on one GPU, where copies
to host memory and back are the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import (
    BF16_BYTES,
    FP32_BYTES,
    Check,
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
from gnomon.lab.priced import copy_bytes_s, stream_s, torch_machine
from gnomon.lab.ranks import run_ranks
from gnomon.spec import Chip

LR, OUTER_MOMENTUM, OUTER_RATE = 0.05, 0.2, 1.0
"""0.2 as in the authors' example (github.com/weigao266/fairseq-CO2)."""
STEP_RATE = 1e-3
MULTIPLES = (1, 4)
"""Sequences, in those of the smallest step."""
FIT_WIDTH, SAMPLES, ROUNDS = 8, 32, 6
"""Of the matrix that processes fit, and their averages."""
ROUNDING = 1e-12
"""Of sums in fp64 whose terms come in another order."""


@dataclass(frozen=True, slots=True)
class Regression:
    """Ranks that fit a matrix to samples of their own by gradient descent, all in fp64."""

    width: int
    samples: int
    every: int
    rounds: int

    def drawn(self, torch: Any, rank: int) -> tuple[Any, Any]:
        """A rank's inputs, and what the same matrix makes of them."""
        generator = torch.Generator().manual_seed(SEED)
        wanted = torch.randn(self.width, self.width, dtype=torch.float64, generator=generator)
        own = torch.Generator().manual_seed(SEED + 1 + rank)
        x = torch.randn(self.samples, self.width, dtype=torch.float64, generator=own)
        return x, x @ wanted

    def gradient(self, weights: Any, data: tuple[Any, Any]) -> Any:
        x, y = data
        return x.T @ (x @ weights - y) / self.samples

    def loss(self, weights: Any, data: tuple[Any, Any]) -> float:
        x, y = data
        return float((x @ weights - y).square().mean())

    def local(self, weights: Any, data: tuple[Any, Any]) -> Any:
        """Weights after the steps of a round."""
        found = weights.clone()
        for _ in range(self.every):
            found -= LR * self.gradient(found, data)
        return found


class Outer:
    """The outer update (SlowMo's): momentum of how far the ranks' mean moved in a round."""

    def __init__(self, start: Any, momentum: float) -> None:
        self.start, self.momentum, self.kept = start.clone(), momentum, start * 0

    def update(self, moved: Any) -> Any:
        self.kept = self.momentum * self.kept + moved
        self.start = self.start + OUTER_RATE * self.kept
        return self.start


@dataclass(slots=True)
class FittedRank:
    """What a rank ends with."""

    weights: Any
    losses: tuple[float, float]
    """Before and after."""


def each_step(rank: int, world: int, fit: Regression) -> FittedRank:
    """Plain data parallelism: gradients are reduced in every step."""
    import torch
    import torch.distributed as dist

    data, weights = fit.drawn(torch, rank), torch.zeros(fit.width, fit.width, dtype=torch.float64)
    first = fit.loss(weights, data)
    for _ in range(fit.every * fit.rounds):
        gradient = fit.gradient(weights, data)
        dist.all_reduce(gradient)
        weights -= LR * gradient / world
    return FittedRank(weights, (first, fit.loss(weights, data)))


def synchronous(rank: int, world: int, fit: Regression) -> FittedRank:
    """Local steps whose average is waited for, without momentum."""
    return _rounds(rank, world, fit, late=False, momentum=0.0)


def overlapped(rank: int, world: int, fit: Regression) -> FittedRank:
    """Local steps whose average overlaps with those of the next round."""
    return _rounds(rank, world, fit, late=True, momentum=OUTER_MOMENTUM)


def _rounds(rank: int, world: int, fit: Regression, *, late: bool, momentum: float) -> FittedRank:
    """Rounds of local steps. A `late` outer update has the average of the round before."""
    import torch
    import torch.distributed as dist

    data, weights = fit.drawn(torch, rank), torch.zeros(fit.width, fit.width, dtype=torch.float64)
    outer, first = Outer(weights, momentum), fit.loss(weights, data)
    in_flight: list[tuple[Any, Any]] = []
    for _ in range(fit.rounds):
        moved = fit.local(weights, data) - weights
        in_flight.append((dist.all_reduce(moved, async_op=True), moved))
        if len(in_flight) > late:
            weights = _retired(in_flight, outer, world)
    while in_flight:
        weights = _retired(in_flight, outer, world)
    return FittedRank(weights, (first, fit.loss(weights, data)))


def _retired(in_flight: list[tuple[Any, Any]], outer: Outer, world: int) -> Any:
    handle, moved = in_flight.pop(0)
    handle.wait()
    return outer.update(moved / world)


def all_ways(rank: int, world: int, fit: Regression, once: Regression) -> tuple[FittedRank, FittedRank, FittedRank]:
    """Local steps that averages overlap with, and single ones by both ways."""
    return overlapped(rank, world, fit), synchronous(rank, world, once), each_step(rank, world, once)


def by_definition(torch: Any, fit: Regression, world: int) -> Any:
    """Weights after all rounds, in one process: round t + 1 begins with the means of rounds up to t - 1."""
    data = [fit.drawn(torch, rank) for rank in range(world)]
    starts = [torch.zeros(fit.width, fit.width, dtype=torch.float64)]
    means: list[Any] = []
    kept = torch.zeros_like(starts[0])
    for at in range(fit.rounds + 1):
        if at:
            kept = OUTER_MOMENTUM * kept + means[at - 1]
            starts.append(starts[-1] + OUTER_RATE * kept)
        if at < fit.rounds:
            begin = starts[max(at - 1, 0)]
            means.append(sum(fit.local(begin, one) - begin for one in data) / world)
    return starts[-1]


@dataclass(slots=True)
class _Training:
    """Blocks that learn: fp32 weights, bf16 copies of them, gradients in bf16. A link carries what ranks would send:
    out to host memory on one stream, back on another."""

    bench: Bench
    heads: int
    x: Any
    weights: list[Any]
    copies: list[Any]
    host: list[Any]
    out: Any
    back: Any
    arrived: Any = None

    def step(self) -> None:
        """Forward, backward and update; `arrived` is what the update waits for."""
        found = blocks.run(self.bench.torch, self.x, self.copies, self.heads)
        found.float().square().mean().backward()
        self.bench.wait(self.arrived)
        self.arrived = None
        with self.bench.torch.no_grad():
            for weights, copy in zip(self.weights, self.copies, strict=True):
                weights.add_(copy.grad, alpha=-STEP_RATE)
                copy.copy_(weights)
                copy.grad = None

    def send(self, at: int, values: Any) -> None:
        """Values of a block to the host and back, once what was launched so far is done."""
        room = self.host[at].view(values.dtype)[: values.numel()]
        ready = self.bench.recorded()
        with self.bench.within(self.out):
            self.bench.wait(ready)
            room.copy_(values, non_blocking=True)
            there = self.bench.recorded()
        with self.bench.within(self.back):
            self.bench.wait(there)
            values.copy_(room, non_blocking=True)
            self.arrived = self.bench.recorded()


def _training(bench: Bench, sizes: Mapping[str, int], host: Sequence[Any], sequences: int) -> _Training:
    torch, width = bench.torch, sizes["width"]
    weights = [flat.to(bench.device).float() for flat in blocks.drawn(bench, sizes["layers"], width)]
    copies = [flat.to(torch.bfloat16).requires_grad_() for flat in weights]
    x = blocks.inputs(bench, sequences, sizes["tokens"], width)
    return _Training(bench, sizes["heads"], x, weights, copies, list(host), bench.stream(), bench.stream())


def _reduced(training: _Training, steps: int) -> Callable[[], None]:
    """Plain data parallelism: each block's gradients travel while the blocks before it run backward."""
    for at, copy in enumerate(training.copies):
        copy.register_post_accumulate_grad_hook(lambda one, at=at: training.send(at, one.grad))

    def several() -> None:
        for _ in range(steps):
            training.step()

    return several


def _rounds_of(training: _Training, steps: int) -> Callable[[], list[Any]]:
    """A round: the all-reduce of what the last one moved overlaps with its steps and ends in the outer update. Gives
    what this one moved."""
    torch, weights = training.bench.torch, training.weights
    outers = [Outer(flat, OUTER_MOMENTUM) for flat in weights]
    moved = [flat * 0 for flat in weights]

    def one() -> list[Any]:
        for at, values in enumerate(moved):
            training.send(at, values)
        coming, training.arrived = training.arrived, None
        for _ in range(steps):
            training.step()
        training.bench.wait(coming)
        with torch.no_grad():
            for at, (outer, now, copy) in enumerate(zip(outers, weights, training.copies, strict=True)):
                mine = now - outer.start
                now.copy_(outer.update(moved[at]))
                copy.copy_(now)
                moved[at] = mine
        return moved

    return one


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    checks = list(_algorithm(bench, sizes))
    bench.tell("allocating host memory")
    host = [bench.pinned(blocks.parameters(sizes["width"]), bench.torch.float32) for _ in range(sizes["layers"])]
    checks += _travels(bench, sizes, host)
    compared = []
    for row in rows(sizes):
        bench.tell(row.what)
        runs: list[LabRun] = []
        for way in (_reduced, _rounds_of):
            bench.release()
            call = way(_training(bench, sizes, host, int(row.shape["sequences"])), sizes["every"])
            runs.append(bench.wall(call, sizes["repeats"]))
            del call
        plain, mine = runs
        compared.append(row.compared(plain, mine, deferred_s=0.0))
    facts = {"block_bytes": blocks.block_bytes(sizes["width"])}
    return Findings(checks=tuple(checks), compared=tuple(compared), facts=facts, notes=NOTES)


NOTES = (
    "processes on the CPU, joined by gloo, check the algorithm; on the GPU copies to host memory and back are the "
    "network, and nothing is summed with other ranks",
    "the outer update is SlowMo's with the average of the round before; the penalty on stale updates and the clipping "
    "of the momentum are left out",
)


def _algorithm(bench: Bench, sizes: Mapping[str, int]) -> Iterator[Check]:
    """Several processes against one that follows the definition, and single local steps against plain ones."""
    world, fit = sizes["ranks"], Regression(FIT_WIDTH, SAMPLES, sizes["every"], ROUNDS)
    bench.tell(f"{world} processes")
    found = run_ranks(world, all_ways, fit, Regression(FIT_WIDTH, SAMPLES, 1, ROUNDS))
    mine, single, plain = zip(*found, strict=True)
    apart = max(float((one.weights - mine[0].weights).abs().max()) for one in mine)
    yield Check(what="weights of ranks after the last average, apart", difference=apart, bound=0.0)
    wanted = by_definition(bench.torch, fit, world)
    for what, one, other in (
        ("weights against one process that follows the definition", mine[0].weights, wanted),
        ("one step between averages against gradients reduced", single[0].weights, plain[0].weights),
    ):
        yield Check(what=what, difference=float((one - other).abs().max() / other.abs().max()), bound=ROUNDING)
    worst = max(one.losses[1] / one.losses[0] for one in mine)
    yield Check(what="loss after the last average, over the first", difference=worst, bound=0.5)


def _travels(bench: Bench, sizes: Mapping[str, int], host: Sequence[Any]) -> Iterator[Check]:
    """What a round moved is what the host has after the next one."""
    one = _rounds_of(_training(bench, sizes, host, sizes["sequences"]), 1)
    sent = [values.clone() for values in one()]
    one()
    bench.synchronize()
    there = [room.to(values.device) for room, values in zip(host, sent, strict=True)]
    apart = sum(int((a != b).sum()) for a, b in zip(there, sent, strict=True))
    yield Check(what="weights that came back otherwise than they were sent", difference=float(apart), bound=0.0)
    still = sum(not bool(values.any()) for values in sent)
    yield Check(what="blocks that did not move", difference=float(still), bound=0.0)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    stack = {name: sizes[name] for name in ("layers", "width", "heads", "tokens", "every")}
    return tuple(
        LabRow(
            what=f"{sizes['every']} steps of {each * sizes['sequences'] * sizes['tokens']} tokens",
            shape=stack | {"sequences": each * sizes["sequences"]},
        )
        for each in MULTIPLES
    )


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """A step's passes and update; gradients' copies beside the backward pass, or weights' beside a round."""
    shape = {name: int(value) for name, value in row.shape.items()}
    machine, link = torch_machine(chip), copy_bytes_s(chip)
    sizes = shape["width"], shape["heads"], shape["sequences"], shape["tokens"]
    layers, every, held = shape["layers"], shape["every"], float(blocks.parameters(shape["width"]))
    narrow, wide = BF16_BYTES * held, FP32_BYTES * held
    # Gradients of a block's matrices are put together in one tensor.
    backward = blocks.backward_s(machine, *sizes) + stream_s(machine, narrow, narrow)
    update = stream_s(machine, wide + narrow, wide) + stream_s(machine, wide, narrow)
    passes = layers * (blocks.forward_s(machine, *sizes) + backward + update)
    # The copies of the last block to run backward, out and back, overlap with nothing.
    exposed = max(layers * narrow / link - (layers - 1) * backward, narrow / link) + narrow / link
    plain = every * (passes + exposed)
    # What was moved; the momentum, scaled and added to; the start and its scaled momentum; both copies of that.
    outer = 3 * (stream_s(machine, 2 * wide, wide) + stream_s(machine, wide, wide)) + stream_s(machine, wide, narrow)
    steps = max(every * passes, (layers + 1) * wide / link)
    by = f"kernels of {chip.name}, copies one way at {link / 1e9:.0f} GB/s beside those the other way"
    return Predicted.of_seconds(plain, steps + layers * outer, by)


EXPERIMENT = Experiment(
    slug="co2",
    title="CO2: averages of weights overlapped with local steps",
    checks="weights of several processes equal those of one that follows the definition in fp64, one step between "
    "averages is plain data parallelism, and what travels over the link arrives",
    claim=LabClaim(
        what="near 100% of eight GPUs' speed per GPU on 128 A100, over RDMA and over TCP/IP",
        comparable=False,
        why="one GPU has no others: copies to host memory and back, at the speed of its link, are the network",
    ),
    sizes=(
        Size("ranks", "processes that check the algorithm", default=4, on_cpu=2, least=2, most=64),
        Size("layers", "blocks", default=8, on_cpu=3, most=200),
        Size("width", "hidden width", default=4096, on_cpu=64, most=32768),
        Size("heads", "attention heads", default=32, on_cpu=4, most=256),
        Size("tokens", "tokens of a sequence", default=2048, on_cpu=8, most=2**17),
        Size("sequences", "sequences of the smallest step", default=1, on_cpu=1, most=1024),
        Size("every", "steps between averages", default=12, on_cpu=4, most=10000),
        Size("repeats", "timed rounds", default=3, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
)
