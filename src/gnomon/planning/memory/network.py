"""Does a network that is no decoder under vLLM fit: weights, the working set of one pass, and what that keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines import Deployment, Engine, MemoryUse, training_engine
from gnomon.engines.vllm import networks as vllm_networks
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.planning.deploy import dtype_of, said_degrees, title_of, title_words
from gnomon.planning.shortage import shortage
from gnomon.planning.steps.network import deployed_on, strategy_of
from gnomon.planning.steps.network_words import intake_of
from gnomon.planning.unmodelled import in_files, told
from gnomon.spec import Model, NetworkStep, NotModelled, Pool, Strategy
from gnomon.spec.answers import Fit, Resolved

MOST = 2**20
"""No batch is tried beyond this."""


def fit_network(
    model: Model,
    name: str,
    *,
    on: str,
    dtype: str | None,
    kv_dtype: str | None,
    label: str,
    degrees: Mapping[str, Any],
    context: int | None,
    settings: Mapping[str, Any],
) -> Fit:
    """One pass of one sequence of `context` tokens, or of the longest; pictures and sources are the usual ones."""
    pool = parse_pool(on)
    strategy = strategy_of(pool, label, degrees)
    format = dtype or dtype_of(model, pool)
    if kv_dtype not in (None, format):
        raise InputError(f"'{kv_dtype}' is not what {model.name} keeps, which is {format}", where="--kv-dtype")
    said = {"model": name, "on": on, **said_degrees(strategy), "dtype": format, "kv_dtype": kv_dtype or format}
    said |= {"settings": dict(settings), "kind": model.kind}
    if label.partition("@")[0] == "torch":
        longest = model.max_context if context is None else context
        found = _under_torch(model, pool, strategy, format, label, longest, said | {"context": longest})
    else:
        found = _encoder(model, pool, degrees, format, kv_dtype, label, context, said)
    return replace(found, resolved=Resolved.of(model, pool))


def _step(model: Model, sequences: int, tokens: int) -> NetworkStep:
    """A pass of so many sequences; a prompt's pictures are among its tokens."""
    if not model.towers:
        return NetworkStep(decode=False, sequences=sequences, tokens=tokens)
    intake = intake_of(model)
    taken = intake.picture(*intake.usual) if intake.patch else intake.length(intake.positions)
    return NetworkStep(decode=False, sequences=sequences, tokens=tokens, taken=taken, pieces=1)


def _under_torch(
    model: Model, pool: Pool, strategy: Strategy, dtype: str, label: str, longest: int, said: dict[str, Any]
) -> Fit:
    from gnomon.engines.torch import networks as torch_networks

    runs = training_engine(label)
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
    """PyTorch takes as much memory however kernels are launched."""
    why = "memory is counted as that of eager kernels"
    return tuple(NotModelled(option=f"{name}={value}", why=why) for name, value in settings.items() if value != "eager")


def _encoder(
    model: Model, pool: Pool, degrees: Mapping[str, Any], dtype: str, kv_dtype: str | None, label: str,
    context: int | None, said: dict[str, Any],
) -> Fit:  # fmt: skip
    given = ({} if context is None else {"max_model_len": context}) | said["settings"]
    engine, deployment = deployed_on(model, pool, degrees, label, dtype, kv_dtype, given)
    found = told(engine, deployment, given, lambda one: _one_step(engine, one, said))
    named = f"max_model_len={context}"
    listed = (replace(one, option=f"--context {context}") if one.option == named else one for one in found.not_modelled)
    return replace(found, not_modelled=tuple(listed))


def _one_step(engine: Engine, deployment: Deployment, said: Mapping[str, Any]) -> Fit:
    """An encoder under vLLM has no cache: what one step takes fits, or nothing does."""
    model, longest = deployment.model, int(deployment.settings["max_model_len"])
    use = vllm_networks.memory(engine, deployment, _step(model, 1, longest))
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
        max_batch=int(deployment.settings["max_num_seqs"]) * (margin >= 0),
        margin_bytes=margin,
        changes=(),
        inputs=dict(said) | {"engine": f"{engine.name}@{engine.version}", "context": longest},
    )


def memory_beside(engine: Engine, deployment: Deployment) -> MemoryUse:
    """A decoder's memory under vLLM with its tower's, at work on what one sequence of the longest brings."""
    longest = int(deployment.settings["max_model_len"])
    return vllm_networks.memory(engine, deployment, _step(deployment.model, 1, longest))


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which something holds that holds for all smaller ones; 0 for none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
