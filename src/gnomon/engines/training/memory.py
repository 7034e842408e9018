"""Bytes of a rank of a pipeline at the fullest moment of a step, for every plan of a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.training.comm import FrozenWeights, ParamCount, gathers_narrow
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.step_table import Sizes
from gnomon.engines.training.traits import Optimizer, Traits
from gnomon.graph.gemm_recipes import HALF
from gnomon.spec.training import RECOMPUTE
from gnomon.spec.workload import Floats

FULL = RECOMPUTE.index("full")
GATHERED_LAYERS = 2
"""With ZeRO 3, unsharded layers at once: the one that runs and the one that is gathered ahead."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankMemory:
    """What a rank of a pipeline holds on its chip, and in the tiers that it shares with its host's others."""

    rank: Ints | int
    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    """What stays between the forwards and backwards of the micro-batches in flight."""
    buffers: Floats
    """Of what stages receive, and of gradients to be reduced."""
    working: Floats
    """What the fullest operator needs beside that."""
    widened: Floats | float = 0.0
    """fp32 copies of gradients that are summed in 16 bits, which an update makes when no activation is left."""
    widened_stay: bool = False
    """Whether they are there while the passes run, too."""
    host: Floats | float = 0.0
    nvme: Floats | float = 0.0
    layer_activations: Floats | float = 0.0
    """Of the activations, those of layers; the others are of embedding and head."""
    all_gradients: Floats | float = np.inf
    """Once the backward pass has ended: `gradients` are fewer where they are none while activations are most."""
    last_backward: Floats | float = np.inf
    """All gradients with what the first layer's backward needs, where gradients are freed before the next step."""

    def with_layer_activations(self, kept: Floats) -> RankMemory:
        """With other activations of layers between their passes."""
        activations = np.asarray(self.activations - self.layer_activations + kept)
        gradients = np.clip(self.last_backward - activations - self.working, 0.0, self.all_gradients)
        return replace(self, activations=activations, layer_activations=kept, gradients=gradients)

    @property
    def total(self) -> Floats:
        """On the chip."""
        states = self.weights + self.held_gradients + self.optimizer
        return states + self.activations + self.buffers + self.fullest

    @property
    def held_gradients(self) -> Floats:
        """With the copies that stay."""
        return np.asarray(self.gradients + self.widened * self.widened_stay)

    @property
    def fullest(self) -> Floats:
        """What is held beside activations at most: by the fullest operator, or by an update in their place."""
        return np.maximum(self.working, self.widened * (not self.widened_stay) - self.activations)


def rank_held(found: Sizes, rank: Ints | int) -> ParamCount:
    """Parameters of a rank, its part of the ends included."""
    body = found.chunks.body(rank)
    return ParamCount(body.dense + _ends(found, rank), body.experts)


def _ends(found: Sizes, rank: Ints | int) -> Floats:
    first, last = has_ends(found.grid, rank)
    return np.asarray(first * found.first_parameters + last * found.last_parameters + found.each_parameters)


def has_ends(grid: Grid, rank: Ints | int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether a rank holds the first stage of its pipeline, and the last."""
    where = np.broadcast_to(rank, grid.tp.shape)
    first = grid.by_schedule(lambda one, rows: one.placement.has_first(grid.pp[rows], where[rows]))
    last = grid.by_schedule(lambda one, rows: one.placement.has_last(grid.pp[rows], where[rows]))
    return first > 0, last > 0


def rank_frozen(found: Sizes, rank: Ints | int) -> tuple[FrozenWeights, FrozenWeights]:
    """Weights of a rank that do not learn: of its layers, and of embedding and head."""
    at_first, last = has_ends(found.grid, rank)
    ends = found.first_frozen.times(np.asarray(at_first, float)).plus(found.last_frozen.times(np.asarray(last, float)))
    return found.chunks.frozen(rank), ends


def _frozen_bytes(found: Sizes, traits: Traits, weight_bytes: float, rank: Ints | int) -> Floats:
    """Weights of a rank that do not learn. With ZeRO 3 they are shared out and gathered with the others."""
    each, grid = traits.frozen_bytes or weight_bytes, found.grid
    body, ends = rank_frozen(found, rank)
    at_rest = body.plus(ends).bytes(each)
    layers = np.max([kind.frozen.bytes(min(each, weight_bytes)) for kind in found.chunks.kinds], axis=0)
    gathered = GATHERED_LAYERS * layers + ends.bytes(min(each, weight_bytes))
    return np.asarray(np.where(grid.zero == 3, at_rest / grid.shards + gathered, at_rest))


def rank_memory(found: Sizes, traits: Traits, optimizer: str, rank: Ints | int, stays: Floats) -> RankMemory:
    """The parts of one rank. `stays` is what the passes through its layers leave at its fullest moment."""
    grid, states = found.grid, traits.optimizers[optimizer]
    held, ends = rank_held(found, rank), _ends(found, rank)
    parameters, shared_out = held.total, held.shared(grid)
    at_first, last = has_ends(grid, rank)
    largest = np.max([kind.held.total for kind in found.chunks.kinds], axis=0)
    at_rest = states.sharded_weight_bytes * shared_out
    weights = np.select(
        [grid.zero == 3, grid.zero == 2],
        [
            at_rest + states.weight_bytes * (GATHERED_LAYERS * largest + ends),
            at_rest + states.weight_bytes * parameters,
        ],
        states.weight_bytes * parameters,
    )
    second = (grid.zero == 3) & (grid.hpz > 0)
    weights = weights + states.weight_bytes * parameters * second / np.maximum(grid.hpz, 1)
    one = states.gradient_bytes * np.maximum(largest, ends)
    shared = (grid.zero >= 2) & ~((grid.pp > 1) & traits.whole_sums)
    gradients = states.gradient_bytes * np.where(shared, shared_out, parameters) + np.where(shared, one, 0.0)
    # In most schedules a head runs backward right after its forward.
    heads = grid.by_schedule(lambda one, rows: one.heads(grid.pp[rows], grid.vp[rows], found.micros[rows]))
    neighbours = 2 * grid.vp * grid.stage_copies - 1.0 * at_first - last
    layer = found.chunks.peak_bytes(rank)
    activations = stays + last * (heads - 1) * found.head_saved_activation_bytes
    passes = grid.by_schedule(lambda one, rows: one.in_flight(grid.pp[rows], grid.vp[rows], found.micros[rows], 0))
    activations = activations + at_first * np.ceil(passes / grid.vp) * found.first_saved_activation_bytes
    # Beside a forward the backward of another micro-batch goes on, layer by layer, which leaves one of them.
    most = np.max([kind.saved_activation_bytes for kind in found.chunks.kinds], axis=0)
    activations = activations + grid.beside_backward * most
    working = np.maximum(layer, last * (found.head_saved_activation_bytes + found.head_peak_bytes))
    # An embedding needs less than a layer, and counts where it is alone or has a tower before it.
    alone = (layer == 0) | (found.first_saved_activation_bytes > 0)
    working = np.maximum(working, at_first * alone * found.first_peak_bytes)
    last_backward = _last_backward(found, traits, gradients, layer, states.gradient_bytes * found.first_parameters)
    buckets = states.gradient_bytes * parameters * (traits.bucketed & (grid.copies > 1))
    head = np.where(last, np.maximum(found.last_parameters, found.first_parameters), 0.0)
    # All copies live until the forward pass ends, with the head's; those of recomputed layers no longer.
    body = states.copy_bytes * (parameters - ends)
    rise = last * (found.head_peak_bytes - found.head_forward_peak_bytes)
    body = np.where(grid.recompute == FULL, np.maximum(body - rise, 0.0), body)
    weights = weights + body + states.copy_bytes * head
    weights = weights + _frozen_bytes(found, traits, states.weight_bytes, rank)
    return RankMemory(
        rank=rank,
        weights=weights + _narrow_bytes(found, traits, states, rank),
        gradients=np.clip(last_backward - activations - working, 0.0, gradients),
        optimizer=np.where(
            grid.zero >= 1, states.states(shared_out, ends / grid.shards), states.states(parameters, ends)
        ),
        activations=activations,
        buffers=neighbours * found.buffer_bytes + buckets,
        working=working,
        widened=states.widened_bytes * np.where(grid.zero >= 1, shared_out, parameters),
        widened_stay=states.widened_stay,
        layer_activations=stays,
        all_gradients=gradients,
        last_backward=last_backward,
    )


def _last_backward(found: Sizes, traits: Traits, gradients: Floats, layer: Floats, first: Floats) -> Floats:
    """Bytes at the end of the backward pass, at whose beginning there is no gradient yet: all gradients, or the first
    layer with those of all but the embedding (`first`). Without end where gradients stay from step to step."""
    if not traits.frees_gradients:
        return np.full(found.grid.size, np.inf)
    whole = gradients + np.maximum(layer + found.saved_activation_bytes - first, 0.0)
    return np.where(found.micros == 1, whole, np.inf)


def _narrow_bytes(found: Sizes, traits: Traits, states: Optimizer, rank: Ints | int) -> Floats:
    """Copies of weights that GEMMs read in fewer bits, along both sides, beside the working weights or in their place.
    Those of sharded weights are made when a layer is gathered, and go with it."""
    recipe, grid, kept = traits.style.recipe, found.grid, gathers_narrow(found.grid, traits)
    own = found.chunks.narrow_on(rank)
    layer = GATHERED_LAYERS * np.max([kind.narrow for kind in found.chunks.kinds], axis=0)
    sharded = (grid.zero == 3) | ((grid.zero == 2) & kept)
    copies = np.where(grid.zero == 3, layer, own) * (recipe.weight_bytes - states.weight_bytes * kept)
    shards = own / grid.shards * min((recipe.gathered_bytes or HALF) - states.sharded_weight_bytes, 0.0)
    return np.asarray(copies + sharded * kept * shards)
