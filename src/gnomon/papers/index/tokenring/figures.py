"""TokenRing (Wang et al. 2024): a step of a ring where keys travel, and of one where queries do, on four A10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from gnomon.cost.machine import Machine
from gnomon.engines.torch.style import style
from gnomon.graph.layers import Cut, layer
from gnomon.graph.ops import Collective, Op
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.papers.base import Ours
from gnomon.spec import Batch

SEQ, RANKS, MILLI = 24000, 4, 1e-3


@cache
def _machine() -> Machine:
    pool = parse_pool(f"A10:{RANKS}")
    return Machine(pool, profile_for(pool.chip), framework="torch")


@cache
def _attention(queries_travel: bool) -> tuple[Op, ...]:
    """Operators of attention over a sequence that lies on four ranks, forward."""
    model = replace(load_model("llama-2-7b"), max_context=SEQ)
    kernels = replace(style(model), queries_travel=queries_travel, merged=None)
    tape = layer(model, model.blocks[0], Cut(seq=SEQ, cp=RANKS, dtype="fp16"), kernels)
    return next(node.forward for node in tape.nodes if node.own_overlap)


def _seconds(ops: Sequence[Op]) -> float:
    """Of all runs, for the tokens of a rank."""
    batch = Batch.prefill(1, SEQ // RANKS)
    return float(sum(op.count * _machine().op_seconds(replace(op, count=1), batch)[0] for op in ops))


def _split(queries_travel: bool) -> tuple[float, float, Op]:
    """Arithmetic of a step of the ring, a hop, and the send that it is."""
    ops = _attention(queries_travel)
    (send,) = (op for op in ops if op.kind == "send_recv")
    rest = [op for op in ops if op.kind != "send_recv"]
    return _seconds(rest) / RANKS, _seconds([send]) / send.count, send


def figures() -> Iterator[Ours]:
    keys_s, hop_s, _ = _split(False)
    queries_s, both_s, send = _split(True)
    assert isinstance(send, Collective)
    model = load_model("llama-2-7b")
    query = replace(send, bytes_per_row=float(2 * model.hidden))  # a query in 16 bits, with nothing returned
    alone_s = max(queries_s, _seconds([query]) / query.count)
    ring_s, ours_s = max(keys_s, hop_s), max(queries_s, both_s)
    yield "ring attention, a step", ring_s / MILLI
    yield "query in the ring, a step that sends queries alone", alone_s / MILLI
    yield "query in the ring, a step that sends queries and outputs", ours_s / MILLI
    yield "ring attention over queries in the ring, a step", ring_s / ours_s
