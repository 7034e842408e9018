"""Every way to cut a training job up: the grid a plan search runs over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid, Traits
from gnomon.engines.training.job import check_layers
from gnomon.errors import GnomonError, InputError
from gnomon.graph.layers import Cut, layer
from gnomon.graph.lower import obstacle
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE, SCHEDULES

NAMES = ("tp", "pp", "vp", "dp", "micro_batch", "zero", "recompute", "schedule", "sequence_parallel")
MOST_PLANS = 4_000_000
"""More take half a minute and gigabytes."""
WORTH = 0.98
"""A way to recompute that keeps more than this of what another keeps is not worth its time."""
GPIPE, ONE, INTERLEAVED = (SCHEDULES.index(name) for name in ("gpipe", "1f1b", "interleaved"))


def space(model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str) -> Grid:
    """All plans that divide: heads over TP, layers over PP x VP, sequences over DP x micro-batch."""
    _check_engine(model, load, engine, optimizer, dtype)
    blocks = _blocks(model, pool, load, engine, Recipe(optimizer=optimizer), dtype)
    parts, count = [], 0
    for block in blocks:
        parts.append(np.array(list(block), np.int64))
        count += len(parts[-1])
        if count > MOST_PLANS:
            hint = "A batch with fewer divisors, or fewer chips, has fewer."
            raise InputError(f"there are more than {MOST_PLANS:,} plans", where="--global-batch", hint=hint)
    if not parts:
        raise InputError(f"{model.name} cannot be cut for {pool.count} x {pool.chip.name}", where="--cluster")
    columns = np.concatenate(parts).T
    return Grid(**{name: np.ascontiguousarray(column) for name, column in zip(NAMES, columns, strict=True)})


def _check_engine(model: Model, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str) -> None:
    """What the engine refuses even of the plainest plan it refuses of all."""
    check_layers(model)
    try:
        engine.check(model, Strategy(), Recipe(optimizer=optimizer), load, dtype)
    except GnomonError as error:
        error.where = error.where.replace("load.", "--")
        raise


def _blocks(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, recipe: Recipe, dtype: str
) -> Iterator[Iterator[tuple[int, ...]]]:
    """Plans of each way to share the chips out."""
    traits = engine.traits(model)
    modes = _modes(model, load, traits)
    heads = max(block.attention.heads for block in model.blocks)
    for tp in range(1, min(heads, pool.count) + 1):
        if obstacle(model, tp) or min(block.attention.kv_heads for block in model.blocks) % tp:
            continue
        cuts = (0, 1) if tp > 1 and load.seq % tp == 0 else (0,)
        for pp, dp in product(divisors(model.layers), divisors(load.global_batch)):
            strategy = Strategy(tp=tp, pp=pp, dp=dp)
            if strategy.ranks <= pool.count and _runs(engine, model, strategy, recipe, load, dtype):
                yield _choices(model, load, strategy, cuts, modes, traits)


def _modes(model: Model, load: TrainingLoad, traits: Traits) -> tuple[int, ...]:
    """Ways to recompute, each of which saves memory over the one before: beside fused attention, selective may not."""
    tape = layer(model, model.blocks[0], Cut(seq=load.seq), traits.style)
    kept = [tape.kept_bytes(mode) for mode in RECOMPUTE]
    return tuple(place for place, size in enumerate(kept) if all(size < WORTH * before for before in kept[:place]))


def _runs(
    engine: TrainingEngine, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str
) -> bool:
    plain = replace(recipe, schedule="gpipe", sequence_parallel=False)
    try:
        engine.check(model, strategy, plain, load, dtype)
    except GnomonError:
        return False
    return True


def _choices(
    model: Model, load: TrainingLoad, strategy: Strategy, cuts: tuple[int, ...], modes: tuple[int, ...], traits: Traits
) -> Iterator[tuple[int, ...]]:
    tp, pp, dp = strategy.tp, strategy.pp, strategy.dp
    alone = tuple(zero for zero in traits.zero if zero != 1) if traits.shards_alone else (0,)
    each, levels = load.global_batch // dp, traits.zero if dp > 1 else alone
    pipes = list(_pipes(model.layers // pp, pp))
    for micro_batch in divisors(each):
        micros = each // micro_batch
        for vp, schedule in pipes:
            if (schedule == INTERLEAVED and micros % pp) or (
                schedule == ONE and traits.fills_pipelines and micros < pp
            ):
                continue
            for zero, recompute, cut in product(levels, modes, cuts):
                yield tp, pp, vp, dp, micro_batch, zero, recompute, schedule, cut


def _pipes(layers: int, pp: int) -> Iterator[tuple[int, int]]:
    """Parts of a rank, and schedules that go with them."""
    yield 1, ONE
    if pp > 1:
        yield 1, GPIPE
        for vp in divisors(layers):
            if vp > 1:
                yield vp, INTERLEAVED


def divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
