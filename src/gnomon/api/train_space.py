"""Every way to cut a training job up: the grid a plan search runs over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid
from gnomon.errors import GnomonError, InputError
from gnomon.graph.lower import obstacle
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE, SCHEDULES

NAMES = ("tp", "pp", "vp", "dp", "micro_batch", "zero", "recompute", "schedule", "sequence_parallel")
GPIPE, ONE, INTERLEAVED = (SCHEDULES.index(name) for name in ("gpipe", "1f1b", "interleaved"))


def space(model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str) -> Grid:
    """All plans that divide: heads over TP, layers over PP x VP, sequences over DP x micro-batch."""
    _check_engine(model, load, engine, optimizer, dtype)
    parts = [np.array(list(block), np.int64) for block in _blocks(model, pool, load, engine)]
    if not parts:
        raise InputError(f"{model.name} cannot be cut for {pool.count} x {pool.chip.name}", where="--cluster")
    columns = np.concatenate(parts).T
    return Grid(**{name: np.ascontiguousarray(column) for name, column in zip(NAMES, columns, strict=True)})


def _check_engine(model: Model, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str) -> None:
    """What the engine refuses even of the plainest plan it refuses of all."""
    plain = TrainingLoad(seq=load.seq, global_batch=load.global_batch)
    try:
        engine.check(model, Strategy(), Recipe(optimizer=optimizer), plain, dtype)
    except GnomonError as error:
        error.where = error.where.replace("load.", "--")
        raise


def _blocks(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine
) -> Iterator[Iterator[tuple[int, ...]]]:
    """Plans of each way to share the chips out."""
    zero_levels = engine.traits(model).zero
    heads = max(block.mixer.heads for block in model.blocks)
    for tp in range(1, min(heads, pool.count) + 1):
        if obstacle(model, tp) or min(block.mixer.kv_heads for block in model.blocks) % tp:
            continue
        cuts = (0, 1) if tp > 1 and load.seq % tp == 0 else (0,)
        for pp in divisors(model.layers):
            if tp * pp > pool.count or (pp > 1 and not _pipelines(engine, model)):
                continue
            for dp in divisors(load.global_batch):
                if tp * pp * dp <= pool.count:
                    levels = zero_levels if dp > 1 else (0,)
                    yield _choices(model, load, (tp, pp, dp), cuts, levels)


def _pipelines(engine: TrainingEngine, model: Model) -> bool:
    return not (engine.name == "torch" and model.tied_embeddings)


def _choices(
    model: Model, load: TrainingLoad, degrees: tuple[int, int, int], cuts: tuple[int, ...], levels: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    tp, pp, dp = degrees
    each = load.global_batch // dp
    pipes = list(_pipes(model.layers // pp, pp))
    for micro_batch in divisors(each):
        micros = each // micro_batch
        for vp, schedule in pipes:
            if schedule == INTERLEAVED and micros % pp:
                continue
            for zero, recompute, cut in product(levels, range(len(RECOMPUTE)), cuts):
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
