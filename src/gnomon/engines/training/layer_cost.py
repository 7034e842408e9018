"""The pieces a network is made of on one rank, priced: embedding, one layer of each kind, head.

Everything is an array over micro-batches (or over draws of one), so a plan search asks once for each way to cut a
layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.clock import BURST, attention_joules, narrow, slowdown
from gnomon.cost.collective import sm_contention
from gnomon.cost.machine import Machine
from gnomon.cost.tapes import TapeCost
from gnomon.engines.training.grid import SELDOM_CHOSEN, decoded
from gnomon.engines.training.split import deferred_bytes, split_backward
from gnomon.engines.training.stages import ENDS, Origin, Stages, kind_names, mode_of
from gnomon.engines.training.traits import Traits
from gnomon.graph import layers, liveness
from gnomon.graph.core import CoreAttention
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.graph.layers.together import further_layer, tower_layer
from gnomon.graph.ops import IndexScores, LatentDecode, Op, Scan
from gnomon.graph.source_attention import SourceAttention
from gnomon.graph.tape import Tape, TapeNode
from gnomon.spec import Batch, Block, Model
from gnomon.spec.training import CP_COMM_NAMES
from gnomon.spec.workload import Floats

RECOMPUTING = (CoreAttention, SourceAttention, Scan, LatentDecode, IndexScores)
"""Operators whose gradients compute something again."""
APPROACHES = 24
"""Steps towards the clock of a chip that waits for its host, each of which at least halves what is missing."""
DECODED: Mapping[str, Callable[[int], Any]] = {
    "sequence_parallel": bool,
    "cp_comm": CP_COMM_NAMES.__getitem__,
    **{name: partial(decoded, name) for name in SELDOM_CHOSEN},
}
"""Columns that hold something else than what they stand for."""
WORKING = dict.fromkeys(GEMM_RECIPES, "bf16")
"""Formats of activations and states, where only GEMMs with weights are in the format of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One piece under one recomputation mode. Seconds of a micro-batch; bytes saved and needed at most by one."""

    forward_s: Floats
    backward_s: Floats
    forward_launched_s: Floats
    backward_launched_s: Floats
    clock_slowdown: Floats
    """The factor by which the power limit slows arithmetic."""
    forward_exposed_s: Floats
    """Of that, exposed collectives."""
    backward_exposed_s: Floats
    forward_beside_s: Floats
    """Of that, exchanges with experts that a pass of another micro-batch in the other direction hides."""
    backward_beside_s: Floats
    input_s: Floats
    """The backward by input alone, and by weight alone."""
    weight_s: Floats
    input_exposed_s: Floats
    flops: Floats
    recomputed_flops: Floats
    """Of the FLOPs, those that are recomputed."""
    energy_j: Floats
    """Without the board's constant part."""
    parameters: Floats
    experts: Floats
    """Of the parameters, those of experts."""
    narrow_parameters: Floats
    """Those with copies in a narrower format."""
    frozen: Floats
    """Parameters beside those counted here, which do not learn."""
    packed_bytes: Floats
    """Of frozen weights in a format of their own."""
    saved_activation_bytes: Floats
    deferred_bytes: Floats
    """Between the backwards by input and by weight, where they are apart."""
    forward_peak_bytes: Floats
    backward_peak_bytes: Floats
    """Beyond what stays of the piece: operands, gradients and what is recomputed, while it runs backward."""

    @property
    def launched_s(self) -> tuple[Floats, Floats]:
        """Of the host, to launch the kernels of a forward and of a backward."""
        return self.forward_launched_s, self.backward_launched_s


def cut_of(seq: int, dtype: str, choices: Mapping[str, int] | None = None) -> layers.Cut:
    """A rank's part under a plan's format, by the columns of a grid that cut a layer (`grid.CUT`); without them all of
    it."""
    working, recipe = WORKING.get(dtype, dtype), GEMM_RECIPES.get(dtype)
    given = (choices or {}).items()
    cut: dict[str, Any] = {name: DECODED[name](value) if name in DECODED else value for name, value in given}
    return layers.Cut(seq=seq, dtype=working, matrix=recipe.fprop if recipe else "", **cut)


def tapes_of(model: Model, cut: layers.Cut, traits: Traits) -> dict[str, Tape]:
    """Embedding, one layer of each kind (`layer`, `layer 2` and so on), and head."""
    made = layer_tapes(model, cut, traits)
    first, last = (make(model, cut, traits.style, traits.passes) for make in (layers.embedding, layers.head))
    return {"embedding": first, **made, "head": last}


def layer_tapes(model: Model, cut: layers.Cut, traits: Traits) -> dict[str, Tape]:
    """One layer of each kind."""
    origins = Stages(model).origins
    return {
        name: _layer(model, origin, block, cut, traits)
        for name, (origin, block) in zip(kind_names(len(origins)), origins, strict=True)
    }


def _layer(model: Model, origin: Origin, block: Block, cut: layers.Cut, traits: Traits) -> Tape:
    cut = replace(cut, matrix="") if origin.wide else cut
    if origin.tower is not None:
        return tower_layer(model, origin.tower, block, cut, traits.style)
    if origin.further:
        return further_layer(model, block, cut, traits.style, traits.passes)
    return layers.layer(model, block, cut, traits.style, traits.passes)


def ops_of(found: Iterable[Mapping[str, Tape]]) -> list[Op]:
    return [op for parts in found for tape in parts.values() for op in tape.priced_ops()]


def units(
    parts: Mapping[str, Tape], recompute: str, times: tapes.Times, machine: Machine, batch: Batch, traits: Traits,
    weights: Sequence[int] = (1,), host: Floats | float = 1.0,
) -> dict[str, LayerCost]:  # fmt: skip
    """Every piece, its arithmetic slowed by the clock that the layers' mix of work allows; `weights` say how
    often each kind of layer comes, and `host` what its seconds are multiplied by: 1, or draws of their error."""
    contended = sm_contention(machine.chip.sm_count)
    passes = {
        name: (
            tapes.forward(tape, times, batch, contended),
            tapes.backward(tape, mode_of(name, recompute), times, batch, contended),
        )
        for name, tape in parts.items()
    }
    halves = {
        name: split_backward(tape, mode_of(name, recompute), times, batch, contended) for name, tape in parts.items()
    }
    kinds = [name for name in parts if name not in ENDS][: len(weights)]  # in the first role
    weighed = [
        (n, traits.launch_of(mode_of(name, recompute)), *passes[name]) for n, name in zip(weights, kinds, strict=True)
    ]
    clock_slowdown = _clock_slowdown(machine, weighed)
    found = {}
    for name in parts:
        mode = mode_of(name, recompute)
        both, launch_s = (passes[name], halves[name]), traits.launch_of(mode) * host
        found[name] = _unit(parts[name], mode, both, clock_slowdown, machine, batch, launch_s)
    beside = {name: tapes.beside_other(tape, times) for name, tape in parts.items()}
    return {
        name: replace(unit, forward_beside_s=beside[name][0], backward_beside_s=beside[name][1])
        for name, unit in found.items()
    }


def useful_flops(parts: Mapping[str, Tape], layers: Mapping[str, int], batch: Batch) -> Floats:
    """FLOPs of a network forward and backward over a micro-batch, with nothing computed twice; `layers` says how often
    each kind of layer comes."""
    total: Floats = np.zeros(1)
    for name, tape in parts.items():
        for op in (op for node in tape.nodes for op in node.forward + node.dgrad + node.wgrad):
            if isinstance(op, tapes.COMPUTE):
                total = total + layers.get(name, 1) * op.count * op.flops(batch)
        for op in (op for node in tape.nodes for op in node.dgrad):
            if hasattr(op, "recomputed_flops"):
                total = total - layers.get(name, 1) * op.count * op.recomputed_flops(batch)
    return total


def _clock_slowdown(machine: Machine, kinds: Sequence[tuple[int, float, TapeCost, TapeCost]]) -> Floats:
    """Of layers, by how often each kind comes and what the host takes to launch one of its kernels. A chip that waits
    for the host draws little; how long it waits follows from the clock, from the longest passes on."""
    power = machine.profile.power

    def total(figure: Callable[[TapeCost], Floats]) -> Floats:
        return np.asarray(sum((n * (figure(there) + figure(back)) for n, _, there, back in kinds), np.zeros(1)))

    def idle_s(clock: Floats) -> Floats:
        each = ((n, launch_s, one) for n, launch_s, *both in kinds for one in both)
        waits = (n * (one.launched(clock, launch_s) - one.seconds(clock)) for n, launch_s, one in each)
        return np.asarray(sum(waits, np.zeros(1)))

    def clock_beside(idle: Floats | float) -> Floats:
        return slowdown(power, machine.chip, compute_s=compute_s, compute_j=compute_j, other_s=other_s + idle,
                        other_j=other_j)  # fmt: skip

    compute_s, other_s = total(lambda one: one.compute_s), total(lambda one: one.stream_s + one.exposed_s)
    compute_j = total(lambda one: _compute_j(machine, one))
    other_j = power["j_per_byte"] * total(lambda one: one.stream_bytes)
    found = clock_beside(0.0)
    for _ in range(APPROACHES if np.any(idle_s(found) > 0) else 0):
        found = clock_beside(idle_s(found))
    return found


def _compute_j(machine: Machine, one: TapeCost) -> Floats:
    """Joules of a pass's arithmetic at full clock."""
    power = machine.profile.power
    gemm_flops = one.flops - one.attention_flops
    for dtype, flops in one.other_flops.items():
        gemm_flops = gemm_flops + (narrow(power, machine.chip, dtype) - 1.0) * flops
    attention_j = attention_joules(power, machine.chip, one.attention_flops, one.attention_s)
    return power.get(BURST, power["j_per_flop"]) * gemm_flops + attention_j + power["j_per_byte"] * one.compute_bytes


def _unit(
    tape: Tape,
    mode: str,
    both: tuple[tuple[TapeCost, TapeCost], tuple[TapeCost, TapeCost]],
    clock_slowdown: Floats,
    machine: Machine,
    batch: Batch,
    launch_s: Floats | float,
) -> LayerCost:
    """Of both passes, and of the backward's halves by input and by weight."""
    passes, halves = both
    (forward, backward), power = passes, machine.profile.power
    again = sum((op.count * op.flops(batch) for node in tape.recomputed(mode) for op in node.forward), np.zeros(1))
    # What the kernels of a gradient compute again inside.
    back = (op for node in tape.nodes for op in node.dgrad if isinstance(op, RECOMPUTING))
    again = again + sum((op.count * op.recomputed_flops(batch) for op in back), np.zeros(1))
    idle, repeated = _beyond_mean(tape, mode, batch)
    # As in the law of the clock, a slower one saves of the constant part as well while arithmetic runs.
    saved = power["active_w"] * (1 / clock_slowdown - clock_slowdown)
    cooled = [
        _compute_j(machine, p) / clock_slowdown + saved * p.compute_s + power["j_per_byte"] * p.stream_bytes
        for p in passes
    ]
    return LayerCost(
        forward_s=forward.launched(clock_slowdown, launch_s),
        backward_s=backward.launched(clock_slowdown, launch_s),
        forward_launched_s=np.atleast_1d(forward.kernels * launch_s),
        backward_launched_s=np.atleast_1d(backward.kernels * launch_s),
        clock_slowdown=clock_slowdown,
        forward_exposed_s=forward.exposed_s,
        backward_exposed_s=backward.exposed_s,
        forward_beside_s=np.zeros(1),
        backward_beside_s=np.zeros(1),
        input_s=halves[0].launched(clock_slowdown, launch_s),
        weight_s=halves[1].launched(clock_slowdown, launch_s),
        input_exposed_s=halves[0].exposed_s,
        flops=forward.flops + backward.flops - idle - repeated,
        recomputed_flops=np.asarray(again - repeated),
        energy_j=cooled[0] + cooled[1],
        **_sizes(tape, mode, batch),
    )


def _beyond_mean(tape: Tape, mode: str, batch: Batch) -> tuple[Floats, Floats]:
    """FLOPs of the busiest rank beyond those that ranks compute for tokens on average, once and recomputed."""

    def beyond(nodes: Iterable[TapeNode], *, back: bool) -> Floats:
        total: Floats = np.zeros(1)
        for node in (node for node in nodes if node.busiest != 1):
            ops = node.forward + (node.dgrad + node.wgrad if back else ())
            total = total + (1 - 1 / node.busiest) * sum(op.count * op.flops(batch) for op in ops)
        return total

    return beyond(tape.nodes, back=True), beyond(tape.recomputed(mode), back=False)


def sizes(parts: Mapping[str, Tape], recompute: str, batch: Batch) -> dict[str, dict[str, Floats]]:
    """Parameters and bytes of every piece, by the field names of `LayerCost`."""
    return {name: _sizes(tape, mode_of(name, recompute), batch) for name, tape in parts.items()}


def _sizes(tape: Tape, mode: str, batch: Batch) -> dict[str, Floats]:
    kept, tokens = tape.saved_activation_bytes(mode), batch.tokens
    return {
        "parameters": np.array([tape.parameters]),
        "experts": np.array([tape.experts]),
        "narrow_parameters": np.array([tape.narrow_parameters]),
        "frozen": np.array([tape.frozen_parameters]),
        "packed_bytes": np.array([tape.packed_bytes]),
        "saved_activation_bytes": kept * tokens,
        "deferred_bytes": deferred_bytes(tape) * tokens,
        "forward_peak_bytes": (_most(liveness.forward(tape, mode)) - kept) * tokens + tape.unpacked_bytes,
        "backward_peak_bytes": (_most(liveness.backward(tape, mode)) - kept) * tokens + tape.unpacked_bytes,
    }


def _most(moments: list[liveness.Moment]) -> float:
    return max(size for _, size in moments)
