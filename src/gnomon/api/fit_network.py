"""Does a network that is no plain decoder fit: weights, the working set of one pass, and a cache where it has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gnomon.api.deploy import title_of, title_words
from gnomon.api.network_words import intake_of
from gnomon.api.predict_network import default_engine, deployed, dtype_of
from gnomon.api.results import Change, Fit
from gnomon.engines import MemoryUse, training_engine
from gnomon.engines.torch import networks as torch_networks
from gnomon.engines.vllm import networks as vllm_networks
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.spec import Model, NetworkStep, Pool, Strategy

MOST = 2**20
"""No batch is tried beyond this."""


def fit_network(
    model: Model,
    name: str,
    *,
    on: str,
    dtype: str | None,
    kv_dtype: str | None,
    engine: str | None,
    tp: int | None,
    context: int | None,
    settings: Mapping[str, Any],
) -> Fit:
    """One pass of one sequence of `context` tokens, or of the longest; pictures and sources are the usual ones."""
    pool = parse_pool(on)
    strategy = Strategy(tp=pool.count if tp is None else tp)
    longest = model.max_context if context is None else context
    label, format = engine or default_engine(model), dtype or dtype_of(model, pool)
    said = {"model": name, "on": on, "tp": strategy.tp, "dtype": format, "kv_dtype": kv_dtype or format}
    said |= {"settings": dict(settings), "kind": model.kind, "context": longest}
    if label.partition("@")[0] == "torch":
        return _under_torch(model, pool, strategy, format, label, longest, said)
    return _under_vllm(model, pool, strategy, format, kv_dtype, label, longest, said)


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
    runs = training_engine(label)
    torch_networks.check(model, strategy, dtype, {})

    def room(sequences: int, tokens: int) -> bool:
        use = torch_networks.memory(model, _step(model, sequences, tokens), dtype, pool.chip)
        return sum(use.parts.values()) <= use.usable_bytes

    use = torch_networks.memory(model, _step(model, 1, longest), dtype, pool.chip)
    batch = _most(lambda n: room(n, longest), MOST)
    return Fit(
        title=title_words(model, dtype, pool, strategy, f"PyTorch {runs.version}"),
        fits=batch > 0,
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=0,
        kv_tokens=0,
        max_context=_most(lambda n: room(1, n), model.max_context),
        max_batch=batch,
        changes=(),
        inputs=said | {"engine": f"torch@{runs.version}"},
    )


def _under_vllm(
    model: Model, pool: Pool, strategy: Strategy, dtype: str, kv_dtype: str | None, label: str, longest: int,
    said: dict[str, Any],
) -> Fit:  # fmt: skip
    given = dict(said["settings"]) | {"max_model_len": longest}
    engine, deployment = deployed(model, pool, strategy, label, dtype, kv_dtype, given)
    use = vllm_networks.memory(engine, deployment, _step(model, 1, longest))
    block, sequences = (int(deployment.settings[name]) for name in ("block_size", "max_num_seqs"))
    cached = use.kv_bytes_per_token > 0
    tokens = max(use.kv_blocks, 0) * block
    fits = tokens >= longest if cached else sum(use.parts.values()) <= use.usable_bytes
    return Fit(
        title=title_of(engine, deployment),
        fits=fits,
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=max(use.kv_blocks, 0),
        kv_tokens=tokens,
        max_context=min(tokens, model.max_context) if cached else model.max_context * fits,
        max_batch=min(_held(use, tokens, longest), sequences) if cached else sequences * fits,
        changes=() if fits else tuple(_more_chips(model, pool, strategy, dtype, kv_dtype, label, given, longest)),
        inputs=said | {"engine": f"{engine.name}@{engine.version}"},
    )


def _held(use: MemoryUse, tokens: int, longest: int) -> int:
    """Sequences that have room at once, each with its own source where it has one."""
    source = use.parts.get("source", 0.0)
    if not source:
        return tokens // longest
    return int((use.parts["kv"] + source) // (longest * use.kv_bytes_per_token + source))


def _more_chips(
    model: Model, pool: Pool, strategy: Strategy, dtype: str, kv_dtype: str | None, label: str,
    settings: dict[str, Any], longest: int,
) -> Iterator[Change]:  # fmt: skip
    """The first larger degree that fits."""
    for tp in (degree for degree in (2, 4, 8, 16) if degree > strategy.tp):
        larger = pool.resized(tp)
        try:
            engine, deployment = deployed(model, larger, Strategy(tp=tp), label, dtype, kv_dtype, settings)
            use = vllm_networks.memory(engine, deployment, _step(model, 1, longest))
        except InputError:
            continue
        tokens = max(use.kv_blocks, 0) * int(deployment.settings["block_size"])
        if tokens >= longest:
            flags = {"on": larger.words, "dtype": dtype}
            yield Change(what=f"{tp} GPUs, TP {tp}", kv_tokens=tokens, kv_bytes=use.parts["kv"], flags=flags)
            return


def _most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which something holds that holds for all smaller ones; 0 for none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
