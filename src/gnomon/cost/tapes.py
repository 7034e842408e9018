"""Seconds, FLOPs and bytes of tapes on a machine, forward and backward, for many batches at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.cost.machine import COLLECTIVES, Machine, priced_dtype
from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.ops import Attention, Collective, Gemm, IndexScores, LatentDecode, Op, Scan
from gnomon.graph.sizes import Shape
from gnomon.graph.source_attention import SourceAttention
from gnomon.graph.tape import COMBINE, DISPATCH, ChunkedExchange, ChunkStage, Pieces, Tape, TapeNode
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

COMPUTE = (Gemm, Attention, SourceAttention, Scan, LatentDecode, IndexScores)
"""Operators that follow the clock."""
HALF = 2.0
"""Bytes of a value of 16 bits."""
Times = Mapping[Op, Floats]
Factor = Callable[[Op], Floats | float]
"""What an operator's time is multiplied by: 1, or draws of its error."""


def price(ops: Iterable[Op], machine: Machine, batch: Batch, factor: Factor | None = None) -> dict[Op, Floats]:
    """Seconds of every operator, all its runs, for every batch. Operators of one family are priced in one call."""
    groups: dict[tuple[object, ...], list[tuple[Op, Shape]]] = defaultdict(list)
    for op in dict.fromkeys(ops):
        apart = (op.ranks, op.stride, op.routed) if isinstance(op, Collective) else ()
        shape = op.shape(batch)
        groups[op.kind, priced_dtype(op), *apart, *shape].append((op, shape))
    found: dict[Op, Floats] = {}
    for members in groups.values():
        group, shapes = zip(*members, strict=True)
        together = {name: np.concatenate([shape[name] for shape in shapes]) for name in shapes[0]}
        seconds = machine.seconds(group[0].kind, priced_dtype(group[0]), together)
        for op, part in zip(group, np.split(seconds, len(group)), strict=True):
            found[op] = op.count * part * (factor(op) if factor else 1.0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeCost:
    """One direction of a tape: device seconds of arithmetic, of streaming memory, and of exposed
    collectives; the work behind them."""

    compute_s: Floats
    stream_s: Floats
    exposed_s: Floats
    flops: Floats
    attention_s: Floats
    """Of arithmetic, that of attention; and so its FLOPs."""
    attention_flops: Floats
    other_flops: Mapping[str, Floats]
    """Of operands of other formats than 16 bits, attention's aside, by what multiplies them."""
    compute_bytes: Floats
    stream_bytes: Floats
    kernels: int
    """That the host launches, one by one."""
    awaited_s: Floats
    """Of the device, for what the host launches after it has waited for the device; and how many kernels that is."""
    awaited_kernels: int

    def seconds(self, clock_slowdown: Floats) -> Floats:
        """All of it on the device, arithmetic slowed by the clock."""
        return self.compute_s * clock_slowdown + self.stream_s + self.exposed_s

    def launched(self, clock_slowdown: Floats, launch_s: Floats | float) -> Floats:
        """With a host that takes so long to launch a kernel. It is ahead of the device, unless it takes longer for all
        kernels together; where it has waited for the device, it is not ahead of what it launches then."""
        behind = np.maximum(self.awaited_kernels * launch_s - self.awaited_s, 0.0)
        return np.maximum(self.seconds(clock_slowdown) + behind, self.kernels * launch_s)


def forward(tape: Tape, times: Times, batch: Batch, sm_contention: float = 0.0) -> TapeCost:
    overlapped = _own_overlap((node.forward for node in tape.nodes if node.own_overlap), times)
    own = _pieces_s((one for one in tape.pieces if not one.backward), times)
    overlapped = overlapped + _chunks_s((one for one in tape.chunks if not one.backward), times)
    found = _pass(tape.forward_ops(), times, batch, overlapped * (1 - sm_contention) + own)
    return _by_host(found, times, tape.nodes, ())


def backward(tape: Tape, mode: str, times: Times, batch: Batch, sm_contention: float = 0.0) -> TapeCost:
    """The backward pass, with what is recomputed in it. Collectives overlap with the GEMMs they may run
    concurrently with, but `sm_contention` of their time is lost to the SMs they take."""
    nodes = {node.name: node for node in tape.nodes}
    own = [node.dgrad for node in tape.nodes if node.own_overlap]
    own += [node.forward for node in tape.recomputed(mode) if node.own_overlap]
    overlapped = _own_overlap(own, times)
    for node in tape.nodes:
        if node.beside:
            overlapped = overlapped + _overlap(node, [nodes[name] for name in node.beside if name in nodes], times)
    again = {node.name for node in tape.recomputed(mode)}
    pieces = _pieces_s((one for one in tape.pieces if one.backward), times)
    pieces = pieces + _pieces_s((one for one in tape.pieces if not one.backward and again >= {*one.nodes}), times)
    overlapped = overlapped + _chunks_s((one for one in tape.chunks if one.backward or again >= {*one.nodes}), times)
    found = _pass(tape.backward_ops(mode), times, batch, overlapped * (1 - sm_contention) + pieces)
    return _by_host(found, times, tape.recomputed(mode), tape.nodes)


def _by_host(found: TapeCost, times: Times, forward: Sequence[TapeNode], back: Sequence[TapeNode]) -> TapeCost:
    """With what the host launches: nodes that run forward, where it may wait, and those that run backward."""
    launched = [(node, node.forward) for node in forward] + [(node, node.dgrad + node.wgrad) for node in back]
    place = next((place for place, node in enumerate(forward) if node.awaited), len(forward))
    after = [(node, node.forward) for node in forward[place:]]
    return replace(
        found,
        kernels=_launches(launched),
        awaited_s=_sum(times, (op for node, ops in after for op in ops)),
        awaited_kernels=_launches(after),
    )


def _launches(parts: Iterable[tuple[TapeNode, Sequence[Op]]]) -> int:
    """Kernels that the host launches; those of a CUDA graph cost it next to nothing."""
    ops = (op for node, ops in parts if not node.captured for op in ops)
    return sum(op.launches if isinstance(op, Gemm) else op.count for op in ops)


def _pieces_s(pieces: Iterable[Pieces], times: Times) -> Floats:
    """Seconds of collectives that overlap piece by piece. The first piece of the GEMMs waits for none, and each later
    one at most for the piece on its way; never worse than one after the other, which an engine may choose."""
    saved: Floats = np.zeros(1)
    for one in pieces:
        alone, gemms = times[one.collective], _sum(times, one.gemms)
        hops = one.hop.count
        hop, each = times[one.hop] / hops, _sum(times, one.cut) / (hops + 1)
        cut = (hops + 1) * each + hops * np.maximum(hop - each, 0.0) + _sum(times, one.after)
        saved = saved + np.clip(alone + gemms - cut, 0.0, np.minimum(alone, gemms))
    return saved


def _chunks_s(chunks: Iterable[ChunkedExchange], times: Times) -> Floats:
    """Seconds of exchanges that are hidden where tokens go to experts in chunks, in as many as hide most. Each lane
    runs one thing at a time: all chunks of a stage, in order, before those of its next stage."""
    saved: Floats = np.zeros(1)
    for one in chunks:
        alone = _sum(times, one.whole)
        exchanged = _sum(times, (op for op in one.whole if op.kind in COLLECTIVES))
        ends = [_end_of_chunks(degree, stages, times) for degree, stages in one.ways]
        saved = saved + np.clip(alone - np.minimum.reduce(np.broadcast_arrays(*ends)), 0.0, exchanged)
    return saved


def _end_of_chunks(degree: int, stages: Sequence[ChunkStage], times: Times) -> Floats:
    free: dict[str, Floats] = {}
    ready: list[Floats] = [np.zeros(1)] * degree
    for stage in stages:
        each = _sum(times, stage.ops)
        for chunk in range(degree):
            ready[chunk] = np.maximum(ready[chunk], free.get(stage.lane, np.zeros(1))) + each
            free[stage.lane] = ready[chunk]
    return ready[-1]


def _own_overlap(parts: Iterable[Sequence[Op]], times: Times) -> Floats:
    """Seconds of sends that overlap with the arithmetic of their own node. What is exchanged before that and after
    has nothing to overlap with."""
    overlapped: Floats = np.zeros(1)
    for ops in parts:
        networked = _sum(times, (op for op in ops if op.kind == "send_recv"))
        overlapped = overlapped + np.minimum(networked, _sum(times, (op for op in ops if op.kind not in COLLECTIVES)))
    return overlapped


def _overlap(node: TapeNode, beside: Sequence[TapeNode], times: Times) -> Floats:
    """Seconds of collectives that overlap: gathers with the GEMMs by input, reductions with those by weight."""
    *gathered, summed = (times[op] for op in node.dgrad if op.kind in COLLECTIVES)
    dgrad = _sum(times, (op for other in beside for op in other.dgrad))
    wgrad = _sum(times, (op for other in beside for op in other.wgrad))
    first = np.minimum(sum(gathered), dgrad) if gathered else np.zeros(1)
    return np.asarray(first + np.minimum(summed, wgrad))


def beside_other(tape: Tape, times: Times) -> tuple[Floats, Floats]:
    """Seconds of exchanges with experts, forward and backward, that a layer's passes over two micro-batches hide where
    the forward of one runs beside the backward of the other, in Megatron-LM's order (`combined_1f1b`): the combine of
    the backward beside attention forward, the dispatch forward beside experts backward, that of the backward beside
    experts forward, and the combine forward beside attention backward."""
    names = [node.name for node in tape.nodes]
    if DISPATCH not in names:
        return np.zeros(1), np.zeros(1)
    first, last = names.index(DISPATCH), names.index(COMBINE)
    before, inside = tape.nodes[:first], tape.nodes[first + 1 : last]
    around = (*before, *tape.nodes[last + 1 :])

    def exchange(ops: Iterable[Op]) -> Floats:
        return _sum(times, (op for op in ops if op.kind in COLLECTIVES))

    def work(nodes: Iterable[TapeNode], *, back: bool) -> Floats:
        ops = (op for node in nodes for op in (node.dgrad + node.wgrad if back else node.forward))
        return _sum(times, (op for op in ops if op.kind not in COLLECTIVES))

    dispatch, combine = tape.nodes[first], tape.nodes[last]
    there = np.minimum(exchange(dispatch.forward), work(inside, back=True))
    there = there + np.minimum(exchange(combine.forward), work(around, back=True))
    back = np.minimum(exchange(dispatch.dgrad), work(inside, back=False))
    back = back + np.minimum(exchange(combine.dgrad), work(before, back=False))
    return there, back


def _sum(times: Times, ops: Iterable[Op]) -> Floats:
    return np.asarray(sum((times[op] for op in ops), np.zeros(1)))


def _pass(ops: Sequence[Op], times: Times, batch: Batch, overlapped: Floats) -> TapeCost:
    networked = [op for op in ops if op.kind in COLLECTIVES]
    compute = [op for op in ops if isinstance(op, COMPUTE)]
    stream = [op for op in ops if op.kind not in COLLECTIVES and not isinstance(op, COMPUTE)]
    attention = [op for op in compute if isinstance(op, Attention | SourceAttention)]

    def total(figure: str, among: Iterable[Op]) -> Floats:
        return np.asarray(sum((op.count * getattr(op, figure)(batch) for op in among), np.zeros(1)))

    return TapeCost(
        compute_s=_sum(times, compute),
        stream_s=_sum(times, stream),
        exposed_s=_sum(times, networked) - overlapped,
        flops=total("flops", compute),
        attention_s=_sum(times, attention),
        attention_flops=total("flops", attention),
        other_flops={
            dtype: total("flops", (op for op in compute if op not in attention and _multiplied_in(op) == dtype))
            for dtype in dict.fromkeys(map(_multiplied_in, compute))
            if width(dtype) != HALF
        },
        compute_bytes=total("bytes", compute),
        stream_bytes=total("bytes", stream),
        kernels=0,
        awaited_s=np.zeros(1),
        awaited_kernels=0,
    )


def _multiplied_in(op: Op) -> str:
    return gemm_format(op.dtype).compute_dtype
