"""Seconds of the pieces of a training step for every plan of a grid: what a pipeline's timeline is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.collective import sm_contention
from gnomon.cost.governor import streaming_w
from gnomon.cost.machine import Machine
from gnomon.engines.training.batches import EachRow, most_tokens
from gnomon.engines.training.comm import CommModel, FrozenWeights, ParamCount, gathers_narrow, sent_bytes
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.layer_cost import WORKING, LayerCost
from gnomon.engines.training.priced import priced as priced_pieces
from gnomon.engines.training.priced import sized
from gnomon.engines.training.side import SideGroup
from gnomon.engines.training.stage_costs import LayerCosts, StageCosts
from gnomon.engines.training.stages import Stages
from gnomon.engines.training.traits import Traits, Update
from gnomon.graph.gemm_recipes import HALF
from gnomon.sim.training.placement import LOOP, PLACEMENTS
from gnomon.spec import Model, TrainingLoad
from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizes:
    """What the memory of ranks follows from, one row per plan."""

    grid: Grid
    chunks: StageCosts
    """Every chunk of every plan, and what a layer of each kind is."""
    micros: Ints
    layers: Ints
    """Layers of a chunk."""
    first_parameters: Floats
    """Of the embedding on one rank, and of the head."""
    last_parameters: Floats
    each_parameters: Floats
    """Of both, where every rank has a part of them."""
    first_peak_bytes: Floats
    """Of the embedding while it runs."""
    first_saved_activation_bytes: Floats
    """Of what stands before the layers, a tower's ends among it."""
    first_frozen: FrozenWeights
    """Its weights that do not learn, and those of the head."""
    last_frozen: FrozenWeights
    head_saved_activation_bytes: Floats
    """Of one micro-batch, and so are the next ones."""
    head_peak_bytes: Floats
    head_forward_peak_bytes: Floats
    buffer_bytes: Floats
    """Of one stage for what it receives from one neighbour over the step."""

    @property
    def parameters(self) -> Floats:
        """Of the first kind of layer, on one rank; and so are the next ones."""
        return self.chunks.kinds[0].held.total

    @property
    def saved_activation_bytes(self) -> Floats:
        return self.chunks.kinds[0].saved_activation_bytes

    def pick(self, rows: Ints) -> Self:
        columns = {field.name: _picked(getattr(self, field.name), rows) for field in fields(self)}
        return type(self)(**columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTable(Sizes):
    """Seconds too. A chunk is one rank's part of the network; the first also has the embedding, the last the head.

    `first_*` and `last_*` are what those two add. Sends, gradients and weights are of one chunk or one rank. Where
    chunks differ (`chunks`), those between the first and the last are not below these, and `first_*` and `last_*`
    say how far the two are from them, which may be below zero.
    """

    first_layers: Ints
    """Layers of the first."""
    forward_s: Floats
    backward_s: Floats
    input_s: Floats
    """The backward by input alone, and by weight alone."""
    weight_s: Floats
    overlap_s: Floats
    """What the forward of a chunk saves at most where it runs together with a backward."""
    first_forward_s: Floats
    first_backward_s: Floats
    first_input_s: Floats
    first_weight_s: Floats
    last_forward_s: Floats
    last_backward_s: Floats
    last_input_s: Floats
    last_weight_s: Floats
    send_s: Floats
    reduce_s: Floats
    first_reduce_s: Floats
    last_reduce_s: Floats
    optimizer_s: Floats
    gather_s: Floats
    """Both of the rank with most parameters."""
    rank_parameters: Floats
    """Of the rank with most, and those of them whose states it holds."""
    own_parameters: Floats
    away_parameters: Floats
    """Of those, the ones whose states lie on the host."""
    model_flops: Floats
    """Of the whole step on all ranks, without what is recomputed."""
    recomputed_flops: Floats
    energy_j: Floats
    """Of the whole step on all ranks, without the boards' constant part."""
    side: tuple[SideGroup, ...] = ()
    """What techniques run beside the passes."""


def _picked(value: Any, rows: Ints) -> Any:
    if isinstance(value, tuple):
        return tuple(one.pick(rows) for one in value)
    return value.pick(rows) if hasattr(value, "pick") else value[rows]


def sizes(model: Model, load: TrainingLoad, grid: Grid, traits: Traits, dtype: str) -> Sizes:
    """All rows of a grid without their seconds: a search finds which plans fit before it prices them."""
    grid, stages = _as_sharded(grid), Stages.of(model, grid)
    found = sized(model, load, grid, traits, dtype)
    micros: Ints = load.global_batch // (grid.dp * grid.micro_batch)
    nothing = np.broadcast_to(0.0, grid.tp.shape)
    unpriced = {field.name: nothing for field in fields(LayerCosts) if field.name.endswith("_s")}
    kinds = [
        LayerCosts(
            **unpriced,
            held=ParamCount(unit["parameters"] - unit["experts"], unit["experts"]),
            narrow=unit["narrow_parameters"],
            frozen=FrozenWeights(unit["frozen"], unit["packed_bytes"]),
            saved_activation_bytes=_until_backward(grid, unit["saved_activation_bytes"], unit["deferred_bytes"]),
            peak_bytes=np.maximum(unit["forward_peak_bytes"], unit["backward_peak_bytes"]),
        )
        for unit in (found[name] for name in stages.names)
    ]
    first, last = found["embedding"], found["head"]
    sent = sent_bytes(most_tokens(model, load, grid), model.hidden, WORKING.get(dtype, dtype), grid)
    return Sizes(
        grid=grid,
        chunks=StageCosts(stages=stages, grid=grid, kinds=tuple(kinds), ends={}),
        micros=micros,
        layers=model.layers // (grid.pp * grid.vp),
        first_parameters=first["parameters"],
        last_parameters=last["parameters"] + _copied(model, grid) * (first["parameters"] > 0),
        each_parameters=nothing,
        first_peak_bytes=np.maximum(first["forward_peak_bytes"], first["backward_peak_bytes"]),
        first_saved_activation_bytes=first["saved_activation_bytes"],
        first_frozen=FrozenWeights(first["frozen"], first["packed_bytes"]),
        last_frozen=FrozenWeights(
            last["frozen"] + _copied(model, grid) * (first["parameters"] == 0), last["packed_bytes"]
        ),
        head_saved_activation_bytes=_until_backward(grid, last["saved_activation_bytes"], last["deferred_bytes"]),
        head_peak_bytes=np.maximum(last["forward_peak_bytes"], last["backward_peak_bytes"]),
        head_forward_peak_bytes=last["forward_peak_bytes"],
        buffer_bytes=traits.buffers_ahead * (grid.pp > 1) * micros * sent,
    )


def _as_sharded(grid: Grid) -> Grid:
    """One rank has no others to shard gradients and weights over."""
    return replace(grid, zero=np.where(grid.shards == 1, np.minimum(grid.zero, 1), grid.zero))


def _until_backward(grid: Grid, saved: Floats, deferred: Floats) -> Floats:
    """Bytes of a pass until its last half backward: where backwards by input and by weight are apart, whichever of
    both needs more."""
    return np.where(grid.splits, np.maximum(saved, deferred), saved)


def _copied(model: Model, grid: Grid) -> Floats | float:
    """Parameters of a tied embedding on the last stage of a pipeline, which holds a copy of its own where the first is
    on another rank; so does a stage that predicts tokens after the next, for the embeddings of those before."""
    if not model.tied_embeddings and not model.mtp:
        return 0.0
    return np.where(_ends_apart(grid), -(-model.vocab // grid.tp) * (model.embedding_width or model.hidden), 0)


def _ends_apart(grid: Grid) -> NDArray[np.bool_]:
    """Whether no rank of a pipeline holds both its first and its last stage."""
    return np.asarray((grid.pp > 1) & (grid.placement == PLACEMENTS.index(LOOP)))


def figures(
    model: Model,
    load: TrainingLoad,
    grid: Grid,
    machine: Machine,
    traits: Traits,
    optimizer: str,
    dtype: str,
    each: EachRow | None = None,
) -> StepTable:
    """All rows of a grid. `each` tells the rows of one plan apart."""
    grid, stages = _as_sharded(grid), Stages.of(model, grid)
    priced = priced_pieces(model, load, grid, machine, traits, dtype, each, stages)
    wire = CommModel(model, load, grid, machine, traits, traits.optimizers[optimizer], WORKING.get(dtype, dtype), each)
    sent = sent_bytes(most_tokens(model, load, grid), model.hidden, wire.dtype, grid)
    micros: Ints = load.global_batch // (grid.dp * grid.micro_batch)
    first, last = priced["embedding"], priced["head"]
    last = _with_copy(last, first, _copied(model, grid))
    ends = {name: _end(wire, unit) for name, unit in (("first", first), ("last", last))}
    kinds = [_layer(wire, priced[name], stages, grid) for name in stages.names]
    chunks = StageCosts(stages=stages, grid=grid, kinds=tuple(kinds), ends=ends)
    own = _fullest(chunks, first, last)
    cast = _narrowed(wire, chunks.narrow, own) if np.any(chunks.narrow) else 0.0
    whole = micros * grid.dp * grid.cp * grid.tp
    total = {name: whole * _total(priced, stages, grid, name) for name in ("flops", "recomputed_flops", "energy_j")}
    update_s = wire.update(own, ParamCount(_ends_of(chunks, first, last), np.zeros(1))) + cast
    total["energy_j"] = total["energy_j"] + grid.ranks * streaming_w(machine.profile.power, machine.chip) * update_s
    return StepTable(
        grid=grid,
        chunks=chunks,
        micros=micros,
        layers=model.layers // (grid.pp * grid.vp),
        **chunks.columns(),
        send_s=wire.send(),
        optimizer_s=update_s + wire.contended(own) + _newton(wire, stages),
        gather_s=wire.gather(own, chunks.narrow),
        rank_parameters=own.total,
        own_parameters=np.where(grid.zero >= 1, own.shared(grid), own.total),
        away_parameters=np.zeros(grid.size),
        first_parameters=first.parameters,
        last_parameters=last.parameters,
        each_parameters=np.zeros(grid.size),
        first_peak_bytes=np.maximum(first.forward_peak_bytes, first.backward_peak_bytes),
        first_saved_activation_bytes=first.saved_activation_bytes,
        first_frozen=_frozen(first),
        last_frozen=_frozen(last),
        head_saved_activation_bytes=_until_backward(grid, last.saved_activation_bytes, last.deferred_bytes),
        head_peak_bytes=np.maximum(last.forward_peak_bytes, last.backward_peak_bytes),
        head_forward_peak_bytes=last.forward_peak_bytes,
        buffer_bytes=traits.buffers_ahead * (grid.pp > 1) * micros * sent,
        model_flops=total["flops"] - total["recomputed_flops"],
        recomputed_flops=total["recomputed_flops"],
        energy_j=total["energy_j"],
    )


def _narrowed(wire: CommModel, narrow: Floats, own: ParamCount) -> Floats:
    """Seconds of making both narrow copies of a rank's weights. Where one of them is gathered, a rank casts its shard
    alone, and makes the other of what it has gathered."""
    recipe, grid = wire.traits.style.recipe, wire.grid
    each, gathered = HALF * recipe.reads, recipe.gathered_bytes or HALF
    all_cast = wire.updates((Update("optimizer.narrow", each, recipe.weight_bytes),), narrow)
    if gathered >= HALF:
        return all_cast
    shard = narrow * np.where(grid.zero >= 1, own.shared(grid) / np.maximum(own.total, 1.0), 1.0)
    part = wire.updates((Update("optimizer.narrow", each, gathered),), shard)
    other = recipe.weight_bytes - gathered
    turned = wire.updates((Update("optimizer.transpose", gathered, other),), narrow) if other > 0 else 0.0
    return np.where(gathers_narrow(grid, wire.traits), part + turned, all_cast)


def _newton(wire: CommModel, stages: Stages) -> Floats:
    """Of the rank with most layers, each as the slowest kind."""
    if not wire.states.newton_steps:
        return np.zeros(1)
    slowest = np.max([wire.newton(kind) for kind in stages.kinds], axis=0)
    return np.asarray(slowest * stages.most(wire.grid))


def _held(unit: LayerCost) -> ParamCount:
    return ParamCount(unit.parameters - unit.experts, unit.experts)


def _with_copy(last: LayerCost, first: LayerCost, copied: Floats | float) -> LayerCost:
    """A head with the copy of a tied embedding, which learns where the embedding does."""
    learns = first.parameters > 0
    return replace(last, parameters=last.parameters + copied * learns, frozen=last.frozen + copied * ~learns)


def _frozen(unit: LayerCost) -> FrozenWeights:
    return FrozenWeights(unit.frozen, unit.packed_bytes)


def _total(priced: Mapping[str, LayerCost], stages: Stages, grid: Grid, name: str) -> Floats:
    """Of the whole network on one rank of each part."""
    counts = zip(stages.total(grid), stages.names, strict=True)
    body: Floats = sum((n * getattr(priced[kind], name) for n, kind in counts), np.zeros(1))
    return np.asarray(body + getattr(priced["embedding"], name) + getattr(priced["head"], name))


def _accumulated(wire: CommModel, held: ParamCount) -> Floats:
    """Seconds per micro-batch of adding its gradients to the sum; the first of a step has nothing to be added to where
    an engine frees gradients."""
    micros = wire.load.global_batch // (wire.grid.dp * wire.grid.micro_batch)
    share = (micros - 1) / micros if wire.traits.frees_gradients else 1.0
    return np.asarray(wire.accumulate(held) * share + wire.updates(wire.states.casts, held.total))


def _end(wire: CommModel, unit: LayerCost) -> dict[str, Floats]:
    """What an embedding or a head adds to its chunk."""
    held = _held(unit)
    return {
        "forward_s": unit.forward_s + wire.gathered(held, _frozen(unit)),
        "backward_s": unit.backward_s + _accumulated(wire, held) + wire.scattered(held),
        "input_s": unit.input_s,
        "weight_s": unit.weight_s + _accumulated(wire, held) + wire.scattered(held),
        "reduce_s": wire.reduce(held),
    }


def _layer(wire: CommModel, unit: LayerCost, stages: Stages, grid: Grid) -> LayerCosts:
    """A layer of one kind. Gradients of a chunk are reduced together: of its mean number of layers."""
    held, frozen = _held(unit), _frozen(unit)
    summed = _accumulated(wire, held)
    ahead, behind = _beside_backward(wire, unit)
    narrow, both_s = unit.narrow_parameters, (unit.forward_s - ahead, unit.backward_s - behind + summed)
    forward, backward, *leads = wire.passes(*both_s, held, frozen, narrow, unit.launched_s)
    by_input, by_weight, lead_input = wire.halves(unit.input_s, unit.weight_s + summed, held, frozen, narrow)
    mean = stages.order.size / (grid.pp * grid.vp)
    return LayerCosts(
        forward_s=forward,
        backward_s=backward,
        lead_forward_s=leads[0],
        lead_backward_s=leads[1],
        input_s=by_input,
        lead_input_s=lead_input,
        weight_s=by_weight,
        overlap_s=_overlapped_s(wire, unit),
        compute_only_forward_s=unit.forward_s - unit.forward_exposed_s,
        compute_only_backward_s=unit.backward_s - unit.backward_exposed_s + summed,
        compute_only_input_s=unit.input_s - unit.input_exposed_s,
        reduce_s=wire.reduce(held.times(mean)) / mean,
        held=held,
        narrow=unit.narrow_parameters,
        frozen=frozen,
        saved_activation_bytes=_until_backward(grid, unit.saved_activation_bytes, unit.deferred_bytes),
        peak_bytes=np.maximum(unit.forward_peak_bytes, unit.backward_peak_bytes),
    )


def _beside_backward(wire: CommModel, unit: LayerCost) -> tuple[Floats, Floats]:
    """Seconds of exchanges with experts, of a layer's forward and of its backward, that overlap with passes of another
    micro-batch, where all forwards and backwards but those of the warm-up and of the end are paired: the mean over
    the passes that a step's time is made of. No pass is faster than its launches."""
    grid = wire.grid
    if not np.any(grid.beside_backward):
        return np.zeros(grid.size), np.zeros(grid.size)
    passes = grid.vp * (wire.load.global_batch // (grid.dp * grid.micro_batch))
    warm_ups = (grid.vp - 1) * grid.pp + 2 * (grid.pp - 1) + 1
    share = grid.beside_backward * np.maximum(passes - warm_ups, 0) / (passes + grid.pp - 1)
    share = share * (1 - sm_contention(wire.machine.chip.sm_count))
    launched = unit.launched_s
    return (
        np.clip(share * unit.forward_beside_s, 0.0, np.maximum(unit.forward_s - launched[0], 0.0)),
        np.clip(share * unit.backward_beside_s, 0.0, np.maximum(unit.backward_s - launched[1], 0.0)),
    )


def _overlapped_s(wire: CommModel, unit: LayerCost) -> Floats:
    """Seconds of collectives of a forward and of a backward that the other's kernels hide where both run together, less
    what they lose to the SMs that the collectives take."""
    there, back = unit.forward_exposed_s, unit.backward_exposed_s
    hidden = np.minimum(there, unit.backward_s - back) + np.minimum(back, unit.forward_s - there)
    return np.asarray((1 - sm_contention(wire.machine.chip.sm_count)) * hidden)


def _fullest(chunks: StageCosts, first: LayerCost, last: LayerCost) -> ParamCount:
    """Parameters of the rank that has most."""
    body = chunks.fullest
    return ParamCount(body.dense + _ends_of(chunks, first, last), body.experts)


def _ends_of(chunks: StageCosts, first: LayerCost, last: LayerCost) -> Floats:
    """Parameters of the embedding and the head that one rank has."""
    either = np.maximum(first.parameters, last.parameters)
    return np.where(_ends_apart(chunks.grid), either, first.parameters + last.parameters)
