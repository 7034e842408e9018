"""A backward pass in two: by input, which the stage before waits for, and by weight, which nothing waits for."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost import tapes
from gnomon.cost.tapes import TapeCost, Times
from gnomon.graph.tape import Tape
from gnomon.spec import Batch


def split_backward(
    tape: Tape, mode: str, times: Times, batch: Batch, sm_contention: float
) -> tuple[TapeCost, TapeCost]:
    """The pass by input, with what is recomputed, and the pass by weight. Apart, the reductions of tensor parallelism
    have no GEMMs by weight to overlap with."""
    by_input = replace(tape, nodes=tuple(replace(node, wgrad=()) for node in tape.nodes))
    weighted = (replace(node, forward=node.wgrad, own_overlap=False) for node in tape.nodes)
    by_weight = replace(tape, nodes=tuple(weighted), pieces=(), chunks=())
    return tapes.backward(by_input, mode, times, batch, sm_contention), tapes.forward(by_weight, times, batch)


def deferred_bytes(tape: Tape) -> float:
    """Bytes per token that stay from the backward by input to that by weight: what GEMMs by weight read, the inputs
    of the matrices and the gradients of their outputs."""
    weighted = [node for node in tape.nodes if node.wgrad]
    inputs = sorted({name for node in weighted for name in node.keeps})
    gradients = sorted({name for node in weighted for name in node.writes})
    return sum(tape.sizes[name] for name in inputs) + sum(tape.sizes[name] for name in gradients)
