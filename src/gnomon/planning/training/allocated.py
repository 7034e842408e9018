"""Whether a plan's steps fit where the allocator's fragmentation counts: they are run through it, tensor by tensor."""

from __future__ import annotations

from gnomon.engines.training import Grid, Traits
from gnomon.engines.training.allocations import STEPS, Allocations, allocations, in_order
from gnomon.engines.training.batches import RowBatches
from gnomon.engines.training.layer_cost import cut_of, tapes_of
from gnomon.engines.training.stages import Stages, kind_names
from gnomon.spec import Model, Recipe, Strategy, TrainingLoad

NEAR = 0.7
"""Of the usable memory, what a plan may allocate without a doubt that it fits: fragmentation took 22% at most of what
26 steps on an H200 allocated."""

MOST_MICROS = 8
"""Micro-batches of a step of drawn sequences that are run through the allocator."""


def is_replayed(traits: Traits, strategy: Strategy, recipe: Recipe) -> bool:
    """Whether one rank holds all that it trains, which is what the allocator is run on."""
    return traits.caching_allocator and strategy.pp == strategy.ep == 1 and not recipe.zero


def step_allocations(
    model: Model,
    load: TrainingLoad,
    dtype: str,
    traits: Traits,
    strategy: Strategy,
    recipe: Recipe,
    usable_bytes: float,
) -> Allocations:
    """What the allocator of a rank reserves over a few steps."""
    tokens, micros = _passes(model, load, strategy, recipe)
    stages = Stages(model)
    names = kind_names(len(stages.kinds))
    cut = cut_of(load.seq, dtype, Grid.of(strategy, recipe).cut(0))
    return allocations(
        in_order(tapes_of(model, cut, traits), [names[kind] for kind in stages.order.tolist()]),
        recipe.recompute,
        tokens,
        micros,
        traits.optimizers[recipe.optimizer],
        usable_bytes,
        buckets=traits.bucketed and strategy.dp * strategy.cp > 1,
    )


def _passes(model: Model, load: TrainingLoad, strategy: Strategy, recipe: Recipe) -> tuple[int | list[int], int]:
    """Tokens of a rank's micro-batches, and how many a step has: drawn ones where sequences differ, the fullest at
    last."""
    micros = load.global_batch // (strategy.dp * recipe.micro_batch)
    if load.sequences is None:
        return recipe.micro_batch * load.seq // strategy.cp, micros
    rows = RowBatches(model, load, Grid.of(strategy, recipe))
    drawn, micros = rows.drawn(0, strategy.cp), min(micros, MOST_MICROS)
    first = drawn.tokens[drawn.on_ranks(strategy.dp)[:, 0]].ravel()[: STEPS * micros] // strategy.cp
    return [*first.tolist()[:-1], int(rows.fullest(strategy.cp).tokens[0])], micros
