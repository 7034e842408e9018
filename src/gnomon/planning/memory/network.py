"""Whether an encoder, or any network under PyTorch, fits: weights and the working set of one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines import Deployment, Engine, MemoryUse
from gnomon.errors import InputError
from gnomon.planning.deploy import ReplicaSpec, dtype_of, said_degrees, title_of, title_words
from gnomon.planning.shortage import shortage
from gnomon.planning.steps.network import deployed, networks_of
from gnomon.planning.steps.network_words import intake_of
from gnomon.planning.unmodelled import in_files, with_unmodelled
from gnomon.spec import Model, NetworkStep, NotModelled
from gnomon.spec.answers import Fit

MOST = 2**20
"""Largest batch that is tried."""


def fit_network(replica: ReplicaSpec, context: int | None) -> Fit:
    """One pass of one sequence of `context` tokens, by default the longest; images and sources have their default
    size."""
    model, kv_dtype = replica.model, replica.kv_dtype
    replica = replace(replica, dtype=replica.dtype or dtype_of(model, replica.pool))
    if kv_dtype not in (None, replica.dtype):
        message = f"'{kv_dtype}' is not supported: {model.name} keeps {replica.dtype}"
        raise InputError(message, where="--kv-dtype")
    said = {
        "model": replica.reference, "on": replica.on, **said_degrees(replica.strategy), "dtype": replica.dtype,
        "kv_dtype": kv_dtype or replica.dtype, "settings": dict(replica.settings), "kind": model.kind,
    }  # fmt: skip
    if replica.torch is not None:
        longest = model.max_context if context is None else context
        return _under_torch(replica, longest, said | {"context": longest})
    return _encoder(replica, context, said)


def _step(model: Model, sequences: int, tokens: int) -> NetworkStep:
    """A pass of so many sequences; the tokens of a prompt include those of its images."""
    if not model.towers:
        return NetworkStep(decode=False, sequences=sequences, tokens=tokens)
    intake = intake_of(model)
    taken = intake.picture(*intake.usual) if intake.patch else intake.length(intake.positions)
    return NetworkStep(decode=False, sequences=sequences, tokens=tokens, taken=taken, pieces=1)


def _under_torch(replica: ReplicaSpec, longest: int, said: dict[str, Any]) -> Fit:
    from gnomon.engines.torch import networks as torch_networks

    model, pool, strategy, dtype, runs = replica.model, replica.pool, replica.strategy, replica.dtype, replica.torch
    assert runs is not None and dtype is not None
    torch_networks.check(model, strategy, dtype, said["settings"], pool.chip)

    def room(sequences: int, tokens: int) -> bool:
        use = torch_networks.memory(model, _step(model, sequences, tokens), dtype, pool.chip)
        return sum(use.parts.values()) <= use.usable_bytes

    use = torch_networks.memory(model, _step(model, 1, longest), dtype, pool.chip)
    batch = _most(lambda n: room(n, longest), MOST)
    return Fit(
        title=title_words(model, dtype, pool, strategy, f"PyTorch {runs.version}"),
        fits=batch > 0,
        cause=shortage(use.parts, use.usable_bytes, sequences=1, tokens=longest),
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=0,
        kv_tokens=0,
        max_context=_most(lambda n: room(1, n), model.max_context),
        max_batch=batch,
        changes=(),
        not_modelled=(*_unmoved(said["settings"]), *in_files(pool, model)),
        inputs=said | {"engine": f"torch@{runs.version}"},
    )


def _unmoved(settings: Mapping[str, Any]) -> tuple[NotModelled, ...]:
    """Launch modes under PyTorch, which do not change its memory."""
    why = "memory is counted as that of eager kernels"
    return tuple(NotModelled(option=f"{name}={value}", why=why) for name, value in settings.items() if value != "eager")


def _encoder(replica: ReplicaSpec, context: int | None, said: dict[str, Any]) -> Fit:
    engine = replica.engine
    asked = {} if context is None else engine.settings_for(context=context)
    given = asked | said["settings"]
    deployment = deployed(replace(replica, settings=given))
    found = with_unmodelled(engine, deployment, given, lambda one: _one_step(engine, one, said))
    named = [f"{name}={value}" for name, value in asked.items()]
    listed = (replace(one, option=f"--context {context}") if one.option in named else one for one in found.not_modelled)
    return replace(found, not_modelled=tuple(listed))


def _one_step(engine: Engine, deployment: Deployment, said: Mapping[str, Any]) -> Fit:
    """A served encoder has no KV cache: one step fits, or nothing does."""
    model, capacity = deployment.model, engine.capacity(deployment.settings)
    longest = capacity.context
    use = networks_of(engine).memory(engine, deployment, _step(model, 1, longest))
    margin = use.usable_bytes - sum(use.parts.values())
    return Fit(
        title=title_of(engine, deployment),
        fits=margin >= 0,
        cause=shortage(use.parts, use.usable_bytes, sequences=1, tokens=longest),
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=0,
        kv_tokens=0,
        max_context=model.max_context * (margin >= 0),
        max_batch=capacity.sequences * (margin >= 0),
        margin_bytes=margin,
        changes=(),
        inputs=dict(said) | {"engine": f"{engine.name}@{engine.version}", "context": longest},
    )


def memory_beside(engine: Engine, deployment: Deployment) -> MemoryUse:
    """A multimodal decoder's memory, with the vision tower's for one sequence of the longest."""
    longest = engine.capacity(deployment.settings).context
    return networks_of(engine).memory(engine, deployment, _step(deployment.model, 1, longest))


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which a monotone predicate holds; 0 for none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
