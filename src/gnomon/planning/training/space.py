"""Every way to cut a training job up: the grid a plan search runs over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd

import numpy as np

from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid, Traits
from gnomon.engines.training.job import equal_stages
from gnomon.engines.training.stages import Stages
from gnomon.errors import GnomonError, InputError
from gnomon.graph.layers import Cut, layer
from gnomon.graph.trained import heads_of
from gnomon.spec import Model, MoeFfn, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import CP_COMMS, RECOMPUTE, SCHEDULES

NAMES = (
    "tp", "pp", "vp", "dp", "micro_batch", "zero", "recompute", "schedule", "sequence_parallel", "cp", "cp_comm", "ep",
    "expert_tp",
)  # fmt: skip
LEAST_TOKENS = 4096
"""Of a sequence on one rank: context parallelism is for sequences longer than this, in powers of two."""
MOST_PLANS = 4_000_000
"""More take half a minute and gigabytes."""
WORTH = 0.98
"""A way to recompute that keeps more than this of what another keeps is not worth its time."""
GPIPE, ONE, INTERLEAVED = (SCHEDULES.index(name) for name in ("gpipe", "1f1b", "interleaved"))


def space(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str, lean: bool = False
) -> Grid:
    """All plans that divide: heads over TP, layers over PP x VP, sequences over DP x micro-batch, experts over EP.

    With `lean`, those that take one sequence at a time. Mixtures and networks of several kinds of layers are also cut
    into powers of two of parts that are not quite equal.
    """
    _check_engine(model, load, engine, optimizer, dtype)
    blocks = _blocks(model, pool, load, engine, Recipe(optimizer=optimizer), dtype, lean)
    parts, count = [], 0
    for block, beside in blocks:
        listed = np.array(list(block), np.int64).reshape(-1, len(NAMES) - len(beside))
        parts.append(np.hstack([listed, np.broadcast_to(beside, (len(listed), len(beside)))]))
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
    try:
        engine.check(model, Strategy(), Recipe(optimizer=optimizer), load, dtype)
    except GnomonError as error:
        error.where = error.where.replace("load.", "--")
        raise


def _blocks(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, recipe: Recipe, dtype: str, lean: bool
) -> Iterator[tuple[Iterator[tuple[int, ...]], tuple[int, ...]]]:
    """Plans of each way to share the chips out, and what the last of `NAMES` are in all of them."""
    traits = engine.traits(model)
    modes = _modes(model, load, traits)
    heads = [heads_of(block) for block in model.blocks]
    for tp in range(1, min(min(queries for queries, _ in heads), pool.count) + 1):
        if any(queries % tp or keys % tp for queries, keys in heads) or not _cuts_widths(model, tp, 1):
            continue
        cuts = tuple(cut for cut in (0, 1) if cut == 0 or (tp > 1 and load.seq % tp == 0))
        for cp, pp, dp in product(_contexts(load), _lengths(model), divisors(load.global_batch)):
            if tp * cp * pp * dp > pool.count or load.seq % (2 * cp if cp > 1 else 1):
                continue
            for comm, ep, expert_tp in _ways(model, tp, cp, dp):
                strategy = Strategy(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep)
                way = replace(recipe, cp_comm=CP_COMMS[comm], expert_tp=0 if expert_tp == tp else expert_tp)
                able = tuple(cut for cut in cuts if _runs(engine, model, strategy, way, load, dtype, cut))
                if cp > 1:
                    able = tuple(cut for cut in able if load.seq % (2 * cp * (tp if cut else 1)) == 0)
                if able:
                    yield _choices(model, load, strategy, able, modes, traits, lean), (cp, comm, ep, expert_tp)


def _contexts(load: TrainingLoad) -> list[int]:
    return [1, *(2**n for n in range(1, 20) if load.seq // 2**n >= LEAST_TOKENS)]


def _lengths(model: Model) -> list[int]:
    """Of pipelines."""
    even = divisors(model.layers)
    return even if equal_stages(model) else sorted({*even, *(2**n for n in range(20) if 2**n <= model.layers)})


def _ways(model: Model, tp: int, cp: int, dp: int) -> Iterator[tuple[int, int, int]]:
    """How keys are exchanged, how many ranks experts lie on, and how many one of them is cut over."""
    common = gcd(*(number for block in model.blocks for number in heads_of(block))) // tp
    comms = [place for place, name in enumerate(CP_COMMS) if name != "a2a" or common % cp == 0] if cp > 1 else [0]
    counts = [block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn)]
    for comm in comms:
        if not counts:
            yield comm, 1, tp
            continue
        for expert_tp in sorted({1, tp}):
            if _cuts_widths(model, tp, expert_tp):
                for ep in divisors(gcd(*counts, dp * cp * tp // expert_tp)):
                    yield comm, ep, expert_tp


def _cuts_widths(model: Model, tp: int, expert_tp: int) -> bool:
    """Whether ranks can share the columns of every feed-forward out."""
    for block in model.blocks:
        ffn = block.feed_forward
        if isinstance(ffn, MoeFfn):
            if ffn.shared_inner % tp or ffn.inner % expert_tp:
                return False
        elif ffn.inner % tp:
            return False
    return True


def _modes(model: Model, load: TrainingLoad, traits: Traits) -> tuple[int, ...]:
    """Ways to recompute, each of which saves memory over the one before: beside fused attention, selective may not."""
    stages, cut = Stages(model), Cut(seq=load.seq)
    tapes = [layer(model, kind, cut, traits.style) for kind in stages.kinds]
    kept = [sum(n * tape.kept_bytes(mode) for n, tape in zip(stages.weights, tapes, strict=True)) for mode in RECOMPUTE]
    return tuple(place for place, size in enumerate(kept) if all(size < WORTH * before for before in kept[:place]))


def _runs(
    engine: TrainingEngine, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str,
    cut: int,
) -> bool:  # fmt: skip
    plain = replace(recipe, schedule="gpipe", sequence_parallel=bool(cut))
    try:
        engine.check(model, strategy, plain, load, dtype)
    except GnomonError:
        return False
    return True


def _choices(
    model: Model, load: TrainingLoad, strategy: Strategy, cuts: tuple[int, ...], modes: tuple[int, ...], traits: Traits,
    lean: bool,
) -> Iterator[tuple[int, ...]]:  # fmt: skip
    tp, pp, dp = strategy.tp, strategy.pp, strategy.dp
    alone = tuple(zero for zero in traits.zero if zero != 1) if traits.shards_alone else (0,)
    each, levels = load.global_batch // dp, traits.zero if dp * strategy.cp > 1 else alone
    pipes = list(_pipes(model, pp))
    for micro_batch in [1] if lean else divisors(each):
        micros = each // micro_batch
        for vp, schedule in pipes:
            if (schedule == INTERLEAVED and micros % pp) or (
                schedule == ONE and traits.fills_pipelines and micros < pp
            ):
                continue
            for zero, recompute, cut in product(levels, modes, cuts):
                yield tp, pp, vp, dp, micro_batch, zero, recompute, schedule, cut


def _pipes(model: Model, pp: int) -> Iterator[tuple[int, int]]:
    """Parts of a rank, and schedules that go with them."""
    yield 1, ONE
    if pp > 1:
        yield 1, GPIPE
        for vp in _lengths(model) if not equal_stages(model) else divisors(model.layers // pp):
            if vp > 1 and pp * vp <= model.layers:
                yield vp, INTERLEAVED


def divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
