"""Every way to cut a training job up: the grid a plan search runs over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid, Traits
from gnomon.engines.training.grid import COLUMNS, Ints
from gnomon.engines.training.job import equal_stages
from gnomon.engines.training.layer_cost import layer_tapes
from gnomon.engines.training.stages import Stages
from gnomon.errors import GnomonError, InputError
from gnomon.graph.layers import Cut
from gnomon.graph.trained import heads_of, tower_blocks, unpiped, unshared
from gnomon.planning.training.checks import CHIPS
from gnomon.sim.training import SCHEDULES, Schedule, code_of, usual_schedule
from gnomon.spec import Model, MoeFfn, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.recompute import FULL, MODULES
from gnomon.spec.recompute import code_of as code_of_recompute
from gnomon.spec.training import CP_COMMS

NAMES = COLUMNS
SHARED = ("tp", "pp", "dp", "cp", "cp_comm", "ep", "expert_tp")
"""What the plans of a block have in common."""
CHOSEN = ("micro_batch", "vp", "schedule", "zero", "recompute", "sequence_parallel", "dp_shard")
"""What they differ in."""
LEAST_TOKENS = 4096
"""Of a sequence on one rank: context parallelism is for sequences longer than this, in powers of two."""
MOST_PLANS = 5_000_000
"""More take half a minute and gigabytes."""
WHOLE_SHARDS = 3
"""The ZeRO stage whose weights are gathered layer by layer, so that it matters how far apart they are kept: groups of
ranks that share them out (HSDP) are searched for it alone."""
MIN_GAIN = 0.98
"""A way to recompute that keeps more than this of what another keeps is not worth its time."""


def space(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str,
    lean: bool = False, every: bool = True,
) -> Grid:  # fmt: skip
    """All plans that divide: heads over TP, layers over PP x VP, sequences over DP x micro-batch, experts over EP.

    With `lean`, those that take one sequence at a time; unless `every` is asked for, without schedules that another one
    is never slower than. Mixtures and networks of several kinds of layers are also cut
    into powers of two of parts that are not quite equal.
    """
    _check_engine(model, load, engine, optimizer, dtype)
    listed: list[tuple[int, ...]] = []
    choices: list[Ints] = []
    count = 0
    for shared, block in _blocks(model, pool, load, engine, Recipe(optimizer=optimizer), dtype, (lean, every)):
        listed.append(shared)
        choices.append(block)
        count += block.shape[1]
        if count > MOST_PLANS:
            hint = "A batch with fewer divisors, or fewer chips, has fewer."
            raise InputError(f"there are more than {MOST_PLANS:,} plans", where="load.global_batch", hint=hint)
    if not listed:
        raise InputError(f"{model.name} cannot be cut for {pool.count} x {pool.chip.name}", where=CHIPS)
    lengths = [block.shape[1] for block in choices]
    columns: dict[str, Any] = dict(
        zip(SHARED, (np.repeat(values, lengths) for values in np.array(listed).T), strict=True)
    )
    own: dict[str, Any] = {
        name: np.concatenate([block[place] for block in choices]) for place, name in enumerate(CHOSEN)
    }
    return Grid(**columns, **own)


def _check_engine(model: Model, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str) -> None:
    """What the engine refuses even of the plainest plan it refuses of all."""
    engine.check(model, Strategy(), Recipe(optimizer=optimizer), load, dtype)


def _blocks(
    model: Model,
    pool: Pool,
    load: TrainingLoad,
    engine: TrainingEngine,
    recipe: Recipe,
    dtype: str,
    which: tuple[bool, bool],
) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Each way to share the chips out, and the choices that go with it."""
    lengths, choices = _lengths(model), Choices(model, load, engine.traits(model, recipe.optimizer, dtype), *which)
    heads = [heads_of(block) for block in (*model.blocks, *tower_blocks(model))]
    heads += [(block.cross.heads, block.cross.kv_heads) for block in model.blocks if block.cross]
    most_cp, most_pp = 1 if next(unshared(model), "") else pool.count, 1 if unpiped(model) else pool.count
    for tp in range(1, min(min(queries for queries, _ in heads), pool.count) + 1):
        if any(queries % tp or keys % tp for queries, keys in heads) or not _cuts_widths(model, tp, 1):
            continue
        cuts = tuple(cut for cut in (0, 1) if cut == 0 or (tp > 1 and load.seq % tp == 0))
        for cp, pp, dp in product(_contexts(load), lengths, divisors(load.global_batch)):
            if cp > most_cp or pp > most_pp or tp * cp * pp * dp > pool.count or load.seq % (2 * cp if cp > 1 else 1):
                continue
            for comm, ep, expert_tp in _ways(model, tp, cp, dp):
                strategy = Strategy(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep)
                way = replace(recipe, cp_comm=CP_COMMS[comm], expert_tp=0 if expert_tp == tp else expert_tp)
                able = tuple(cut for cut in cuts if _runs(engine, model, strategy, way, load, dtype, cut))
                if cp > 1:
                    able = tuple(cut for cut in able if load.seq % (2 * cp * (tp if cut else 1)) == 0)
                if able:
                    shards = _shards(model, pool, strategy, expert_tp)
                    block = choices.of(pp, load.global_batch // dp, dp * cp > 1, able, tp > 1, shards)
                    if block.size:
                        yield (tp, pp, dp, cp, comm, ep, expert_tp), block


def _shards(model: Model, pool: Pool, strategy: Strategy, expert_tp: int) -> int:
    """Data-parallel ranks of one node that can share weights out between them, where others replicate them; 0 where
    there are none. Ranks that hold the same experts must be as many replicas."""
    inside = pool.node_size // (strategy.tp * strategy.cp)
    if not 1 < inside < strategy.dp or strategy.dp % inside:
        return 0
    same = strategy.dp * strategy.cp * strategy.tp // (expert_tp * strategy.ep)
    return 0 if model.is_moe and same % (strategy.dp // inside) else inside


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
    for block in (*model.blocks, *tower_blocks(model)):
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
    tapes = layer_tapes(model, cut, traits).values()
    found: dict[str, float] = {}
    names = {node.name for tape in tapes for node in tape.nodes}
    cheap = "+".join(one for one in traits.searched_modules if MODULES[one].of(tuple(names)))
    ways = [*traits.recompute, *([f"modules={cheap}"] if cheap else [])]
    for mode in sorted(ways, key=lambda mode: mode == FULL):
        kept = sum(n * tape.saved_activation_bytes(mode) for n, tape in zip(stages.weights, tapes, strict=True))
        if all(kept < MIN_GAIN * before for before in found.values()):
            found[mode] = kept
    return tuple(map(code_of_recompute, found))


def _runs(
    engine: TrainingEngine, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str,
    cut: int,
) -> bool:  # fmt: skip
    known = engine.traits(model, recipe.optimizer, dtype).schedules
    plain = replace(recipe, schedule=known[0] if known else recipe.schedule, sequence_parallel=bool(cut))
    try:
        engine.check(model, strategy, plain, load, dtype)
    except GnomonError:
        return False
    return True


class Choices:
    """Micro-batches, schedules and ways to save memory: [`CHOSEN`, plans]; many ways to share chips out share them."""

    def __init__(self, model: Model, load: TrainingLoad, traits: Traits, lean: bool, every: bool) -> None:
        self.model, self.traits, self.lean = model, traits, lean
        known = traits.schedules
        better = usual_schedule(1).name in known
        self.schedules = [one for one in known if every or not (better and SCHEDULES[one].dominated)]
        self.modes = _modes(model, load, traits)
        self._made: dict[tuple[int, int, bool, tuple[int, ...], bool, int], Ints] = {}

    def of(self, pp: int, each: int, copies: bool, cuts: tuple[int, ...], sharded: bool, shards: int) -> Ints:
        """Of pipelines so long, whose ranks take `each` sequences a step, and may have copies; whose matrices may
        be sharded, and whose weights so many of them may share out."""
        key = pp, each, copies, cuts, sharded and not self.traits.split_tp, shards
        if key not in self._made:
            self._made[key] = self._listed(*key)
        return self._made[key]

    def _listed(self, pp: int, each: int, copies: bool, cuts: tuple[int, ...], whole: bool, shards: int) -> Ints:
        stages = [zero for zero in self.traits.zero if pp == 1 or zero <= self.traits.pipeline_zero] if copies else [0]
        ways = [(*way, 0) for way in product(stages, self.modes, cuts)]
        if shards and WHOLE_SHARDS in self.traits.hybrid_shards:
            ways += [way[:3] + (shards,) for way in ways if way[0] == WHOLE_SHARDS]
        pipes = [(vp, one, code_of(one.name)) for vp, one in _pipes(self.model, pp, self.schedules)]
        runs = [
            (micro_batch, vp, code)
            for micro_batch in ([1] if self.lean else divisors(each))
            for vp, one, code in pipes
            if pp == 1 or self._able(one, pp, vp, each // micro_batch)
        ]
        first = np.repeat(np.array(runs, np.int64).reshape(-1, 3), len(ways), axis=0)
        found = np.hstack([first, np.tile(np.array(ways, np.int64), (len(runs), 1))]).T.copy()
        splits = np.array([one.splits_backward for one in SCHEDULES.values()])[found[2]]
        return found[:, ~(splits & (self._unsplit(found) | whole))] if splits.any() else found

    def _unsplit(self, found: Ints) -> NDArray[np.bool_]:
        """Plans whose backward passes the engine cannot split."""
        _, _, _, zero, recompute, *_ = found
        allowed = [code_of_recompute(mode) for mode in self.traits.split_recompute]
        return np.asarray(~np.isin(recompute, allowed) | (zero > self.traits.split_zero))

    def _able(self, schedule: Schedule, pp: int, vp: int, micros: int) -> bool:
        """Whether a schedule runs so many micro-batches."""
        filled = not self.traits.fills_pipelines or micros >= schedule.fills(pp)
        return filled and bool(schedule.possible(pp, vp, micros))


def _pipes(model: Model, pp: int, known: Sequence[str]) -> Iterator[tuple[int, Schedule]]:
    """Parts of a rank, and schedules that go with them, the usual one first. Without a pipeline there is one order."""
    usual = usual_schedule(1)
    if pp == 1:
        yield 1, usual
        return
    chunks = _lengths(model) if not equal_stages(model) else divisors(model.layers // pp)
    for schedule in sorted(SCHEDULES.values(), key=lambda one: one is not usual):
        if schedule.name in known:
            yield from ((vp, schedule) for vp in chunks if schedule.takes_chunks(vp) and pp * vp <= model.layers)


def divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
