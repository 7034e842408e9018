"""Whether a replica fits in memory, and if not, what would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gnomon.engines import Deployment, Engine, MemoryUse
from gnomon.engines.base import ServingCase
from gnomon.errors import InputError
from gnomon.planning.deploy import Binding, ReplicaSpec, title_of
from gnomon.planning.memory.network import fit_network, memory_beside
from gnomon.planning.proposals import named
from gnomon.planning.shortage import shortage, tier_shortage
from gnomon.planning.steps.network import KINDS, check_served
from gnomon.planning.unmodelled import with_unmodelled
from gnomon.spec import Strategy
from gnomon.spec.answers import Change, Fit, Shortage
from gnomon.spec.formats import NARROW, PLAIN_BITS

CONTEXT_STEP = 1024
SHORT = 1025
"""Tokens of a short sequence: 1,024 in the cache and the next one."""
DEGREES = (1, 2, 4, 8, 16, 32, 64)
NARROWER = ("fp8", "int4")
"""Narrower formats to propose."""
USEFUL = 8192
"""Shortest context that is proposed first."""
QUALITY = "quality changes"
DIGITS_OF = {name: format.bits for name, format in NARROW.items()} | PLAIN_BITS


def fit_replica(replica: ReplicaSpec, context: int | None) -> Fit:
    """Whether the model and one sequence of `context` tokens fit, and the smallest changes with which they would."""
    model, given = replica.model, dict(replica.settings)
    if context is not None:
        if not 1 <= context <= model.max_context:
            raise InputError(f"{context:,} is not between 1 and {model.max_context:,}", where="--context")
        asked = replica.engine.settings_for(context=context)
        if both := [name for name in asked if name in given]:
            hint = "Both set the same limit: give one of them."
            raise InputError(f"is given together with the setting {both[0]}", where="--context", hint=hint)
        given |= asked
    if model.kind == "encoder" or replica.torch is not None:
        return fit_network(replica, context)
    check_served(replica.engine, model)
    replica = replace(replica, settings=given)
    engine, deployment = replica.engine, replica.deploy()
    inputs = replica.inputs(deployment) | ({"kind": model.kind} if model.kind in KINDS else {})
    return with_unmodelled(
        engine, deployment, given, lambda one: _answer(engine, one, inputs),
        without=lambda name: replica.without(name).deploy(),
    )  # fmt: skip


def _memory(engine: Engine, deployment: Deployment) -> MemoryUse:
    return memory_beside(engine, deployment) if deployment.model.kind in KINDS else engine.memory(deployment)


def _answer(engine: Engine, deployment: Deployment, inputs: dict[str, Any]) -> Fit:
    use, capacity = _memory(engine, deployment), engine.capacity(deployment.settings)
    wanted, longest = capacity.context, use.longest(deployment.model.max_context)
    fits = longest >= wanted
    margin = _margin(use, wanted)
    return Fit(
        title=title_of(engine, deployment),
        fits=fits,
        cause=None if fits else tier_shortage(use, deployment.pool) or _cause(use, wanted, margin),
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=max(use.kv_blocks, 0),
        kv_tokens=use.tokens_held(wanted),
        max_context=longest,
        max_batch=min(max(use.kv_blocks, 0) // max(use.blocks_of(wanted), 1), capacity.sequences),
        max_batch_1k=_at_once(use, wanted),
        margin_bytes=margin,
        slack_bytes=use.slack_bytes,
        close=abs(margin) < use.slack_bytes,
        block_tokens=use.block_tokens,
        host_bytes=use.host_bytes,
        nvme_bytes=use.nvme_bytes,
        changes=() if fits else tuple(_changes(engine, deployment, wanted)),
        techniques=deployment.techniques.metrics(use, deployment),
        inputs=inputs | {"context": wanted},
    )


def _at_once(use: MemoryUse, longest: int) -> int:
    """Short sequences that fit at once."""
    return max(use.kv_blocks, 0) // max(use.blocks_of(min(SHORT, longest)), 1)


def _cause(use: MemoryUse, tokens: int, margin: float) -> Shortage | None:
    """What is short: weights, the engine's working memory, or the KV cache of one sequence."""
    taken = {name: size for name, size in use.parts.items() if name != "kv"}
    needed = use.usable_bytes - sum(taken.values()) - margin
    return shortage(taken | {"kv": needed}, use.usable_bytes, sequences=1, tokens=tokens)


def _margin(use: MemoryUse, tokens: int) -> float:
    """Bytes left with one sequence of so many tokens in the cache; negative where they are short."""
    taken = sum(size for name, size in use.parts.items() if name != "kv")
    share = use.block_bytes if use.kv_blocks <= 0 else use.parts["kv"] / (use.kv_blocks + 1)
    return use.usable_bytes - taken - (use.blocks_of(tokens) + 1) * share


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The same deployment with another number of ranks, narrower weights or shorter sequences."""

    strategy: Strategy
    dtype: str
    context: int
    kv_tokens: int
    kv_bytes: float
    at_once: int

    @property
    def bits(self) -> float:
        return DIGITS_OF.get(self.dtype, 0.0)

    def beats(self, other: _Way) -> bool:
        ours, theirs = ((-way.strategy.ranks, way.bits, way.context) for way in (self, other))
        return ours != theirs and all(a >= b for a, b in zip(ours, theirs, strict=True))


def _changes(engine: Engine, deployment: Deployment, wanted: int) -> Iterator[Change]:
    """The smallest changes that fit: shorter sequences, more chips, narrower weights, and combinations of them.

    Only Pareto-optimal ones in chips, width of the weights and sequence length are kept.
    """
    found = [
        way
        for dtype in _formats(deployment)
        for least in (wanted, min(wanted, USEFUL), min(wanted, CONTEXT_STEP))
        if (way := _smallest(engine, deployment, dtype, wanted, least))
    ]
    ways = [way for way in dict.fromkeys(found) if not any(other.beats(way) for other in found)]
    for way in sorted(ways, key=lambda way: (way.strategy.ranks, -way.bits)):
        yield _change(engine, deployment, way, wanted)


def _formats(deployment: Deployment) -> list[str]:
    if deployment.techniques:  # which may have chosen the format
        return [deployment.dtype]
    own = DIGITS_OF.get(deployment.dtype, 0.0)
    return [deployment.dtype, *(name for name in NARROWER if NARROW[name].bits < own)]


def _change(engine: Engine, deployment: Deployment, way: _Way, wanted: int) -> Change:
    changed: list[str] = []
    flags: dict[str, Any] = {}
    if way.strategy != deployment.strategy or way.dtype != deployment.dtype:
        changed.append(_chips(way.strategy))
        flags |= {"on": named(deployment.pool, way.strategy.ranks), "dtype": way.dtype}
        flags |= {name: getattr(way.strategy, name) for name in ("tp", "ep")}
    if way.dtype != deployment.dtype:
        changed.append(f"{way.dtype} weights")
    if way.context < wanted:
        for name, value in engine.settings_for(context=way.context).items():
            changed.append(f"{name} {value:,}")
            flags["set"] = f"{name}={value}"
    return Change(
        what=", ".join(changed),
        kv_tokens=way.kv_tokens,
        kv_bytes=way.kv_bytes,
        max_batch_1k=way.at_once,
        flags=flags,
        note=_note(engine, deployment, way.dtype),
    )


def _note(engine: Engine, deployment: Deployment, dtype: str) -> str:
    """What narrower weights entail: another quality, and perhaps a checkpoint to be made."""
    if dtype == deployment.dtype:
        return ""
    started = engine.operations
    made = started.own_checkpoint(deployment.model, dtype) if started else ""
    return f"{QUALITY}; make {made} first" if made else QUALITY


def _chips(strategy: Strategy) -> str:
    degrees = [(name.upper(), getattr(strategy, name)) for name in ("tp", "pp", "ep", "cp", "dp")]
    cut = [f"{name} {degree}" for name, degree in degrees if degree > 1]
    return "1 GPU" if strategy.ranks == 1 else ", ".join([f"{strategy.ranks} GPUs", *cut])


def _smallest(engine: Engine, deployment: Deployment, dtype: str, wanted: int, least: int) -> _Way | None:
    """The smallest tensor-parallel degree, from the current one, at which a sequence of `least` tokens fits in a
    format."""
    here = deployment.strategy
    binding = Binding(pool=deployment.pool, profile=deployment.profile, engine=engine, overheads=deployment.overheads)
    for tp in (tp for tp in DEGREES if tp >= here.tp):
        strategy = replace(here, tp=tp, ep=tp * here.dp if here.ep == here.tp * here.dp and here.ep > 1 else here.ep)
        if not named(deployment.pool, strategy.ranks):  # a cluster's file has no more chips
            break
        draft = ServingCase(
            model=deployment.model, pool=deployment.pool.resized(strategy.ranks), strategy=strategy, dtype=dtype,
            kv_dtype=deployment.kv_dtype, settings=deployment.settings,
        )  # fmt: skip
        try:
            other = binding.deploy(draft, priced=False)
        except InputError:
            continue
        use = _memory(engine, other)
        longest = use.longest(wanted)
        context = wanted if longest >= wanted else longest // CONTEXT_STEP * CONTEXT_STEP
        if context >= least:
            tokens = use.tokens_held(context)
            return _Way(
                strategy=strategy, dtype=dtype, context=context, kv_tokens=tokens, kv_bytes=use.parts["kv"],
                at_once=_at_once(use, context),
            )  # fmt: skip
    return None
