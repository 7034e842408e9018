"""The pieces a network is made of on one rank, priced: embedding, one layer, head.

Everything is an array over micro-batches (or over draws of one), so a plan search asks once for each way to cut a
layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.clock import ATTENTION, BURST, slowdown
from gnomon.cost.collective import crowding
from gnomon.cost.machine import Machine
from gnomon.cost.tapes import Pass
from gnomon.engines.training.traits import Traits
from gnomon.graph import layers, liveness
from gnomon.graph.ops import Attention, Op
from gnomon.graph.tape import Tape
from gnomon.spec import Batch, Model
from gnomon.spec.workload import Floats

PARTS = ("embedding", "layer", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One piece under one way to recompute. Seconds of a micro-batch; bytes kept and needed at most by one."""

    forward_s: Floats
    backward_s: Floats
    stretch: Floats
    """What the clock under the power limit makes of arithmetic."""
    forward_exposed_s: Floats
    """Of that, collectives that nothing hides."""
    backward_exposed_s: Floats
    flops: Floats
    again_flops: Floats
    """Of the FLOPs, those that are run again."""
    energy_j: Floats
    """Without the board's constant part."""
    parameters: Floats
    kept_bytes: Floats
    forward_peak_bytes: Floats
    backward_peak_bytes: Floats
    """Beyond what stays of the piece: operands, gradients and what is recomputed, while it runs backward."""


def tapes_of(model: Model, seq: int, dtype: str, tp: int, sequence_parallel: bool, traits: Traits) -> dict[str, Tape]:
    cut = layers.Cut(seq=seq, tp=tp, sequence_parallel=sequence_parallel, dtype=dtype)
    return {
        "embedding": layers.embedding(model, cut, traits.style),
        "layer": layers.layer(model, model.blocks[0], cut, traits.style),
        "head": layers.head(model, cut, traits.style),
    }


def ops_of(found: Iterable[Mapping[str, Tape]]) -> list[Op]:
    return [
        op
        for parts in found
        for tape in parts.values()
        for node in tape.nodes
        for op in node.forward + node.by_input + node.by_weight
    ]


def units(
    parts: Mapping[str, Tape], recompute: str, times: tapes.Times, machine: Machine, batch: Batch, traits: Traits
) -> dict[str, Unit]:
    """Every piece, its arithmetic stretched by the clock that the layers' mixture of work allows."""
    crowded = crowding(machine.chip.sm_count)
    passes = {
        name: (tapes.forward(tape, times, batch), tapes.backward(tape, _mode(name, recompute), times, batch, crowded))
        for name, tape in parts.items()
    }
    stretch = _stretch(machine, *passes["layer"])
    return {
        name: _unit(parts[name], _mode(name, recompute), passes[name], stretch, machine, batch, traits)
        for name in parts
    }


def _mode(part: str, recompute: str) -> str:
    return recompute if part == "layer" else "none"


def _stretch(machine: Machine, forward: Pass, backward: Pass) -> Floats:
    power = machine.profile.power
    return slowdown(
        power,
        machine.chip,
        compute_s=forward.compute_s + backward.compute_s,
        compute_j=_compute_j(machine, forward) + _compute_j(machine, backward),
        other_s=forward.stream_s + forward.exposed_s + backward.stream_s + backward.exposed_s,
        other_j=power["j_per_byte"] * (forward.stream_bytes + backward.stream_bytes),
    )


def _compute_j(machine: Machine, one: Pass) -> Floats:
    """Joules of a pass's arithmetic at full clock."""
    power = machine.profile.power
    per_flop = power.get(BURST, power["j_per_flop"])
    flops = one.flops + (power.get(ATTENTION, 1.0) - 1.0) * one.attention_flops
    return per_flop * flops + power["j_per_byte"] * one.compute_bytes


def _unit(
    tape: Tape, mode: str, passes: tuple[Pass, Pass], stretch: Floats, machine: Machine, batch: Batch, traits: Traits
) -> Unit:
    forward, backward = passes
    power, launch_s = machine.profile.power, traits.launch_s.get(mode, 0.0)
    again = sum((op.count * op.flops(batch) for node in tape.rerun(mode) for op in node.forward), np.zeros(1))
    # Of the five products of a fused attention's backward, one makes the scores again.
    back = (op for node in tape.nodes for op in node.by_input if isinstance(op, Attention))
    again = again + sum((op.count * op.flops(batch) / 5 for op in back), np.zeros(1))
    # As in the law of the clock, a slower one saves of the constant part as well while arithmetic runs.
    saved = power["active_w"] * (1 / stretch - stretch)
    cooled = [
        _compute_j(machine, p) / stretch + saved * p.compute_s + power["j_per_byte"] * p.stream_bytes for p in passes
    ]
    tokens = batch.tokens
    kept = tape.kept_bytes(mode)
    return Unit(
        forward_s=np.maximum(forward.seconds(stretch), forward.kernels * launch_s),
        backward_s=np.maximum(backward.seconds(stretch), backward.kernels * launch_s),
        stretch=stretch,
        forward_exposed_s=forward.exposed_s,
        backward_exposed_s=backward.exposed_s,
        flops=forward.flops + backward.flops,
        again_flops=np.asarray(again),
        energy_j=cooled[0] + cooled[1],
        parameters=np.array([tape.parameters]),
        kept_bytes=kept * tokens,
        forward_peak_bytes=(_most(liveness.forward(tape, mode)) - kept) * tokens,
        backward_peak_bytes=(_most(liveness.backward(tape, mode)) - kept) * tokens,
    )


def _most(moments: list[liveness.Moment]) -> float:
    return max(size for _, size in moments)
