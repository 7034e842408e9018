"""Does it fit, and if not, what would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnomon.api.deploy import deploy, deploy_named, title_of, whole
from gnomon.api.fit_network import fit_network
from gnomon.api.predict_network import KINDS
from gnomon.api.results import Change, Fit
from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.graph.lower import check_degrees
from gnomon.load import model as load_model
from gnomon.spec import Model, Strategy


def fit(
    model: str | Path | Model,
    *,
    on: str,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | None = None,
    tp: int | None = None,
    context: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Fit:
    """Memory of one rank: whether the model and one sequence of `context` tokens have room beside the engine, which is
    vLLM where it runs the model, else PyTorch."""
    found = model if isinstance(model, Model) else load_model(model)
    given = dict(settings or {})
    if context is not None:
        context = whole(context, "--context")
        if not 1 <= context <= found.max_context:
            raise InputError(f"{context:,} is not between 1 and {found.max_context:,}", where="--context")
        given.setdefault("max_model_len", context)
    if found.kind in KINDS:
        return fit_network(
            found, found.name if isinstance(model, Model) else str(model), on=on, dtype=dtype, kv_dtype=kv_dtype,
            engine=engine, tp=None if tp is None else whole(tp, "--tp"), context=context, settings=dict(settings or {}),
        )  # fmt: skip
    chosen, deployment, words = deploy_named(
        model, on, dtype=dtype, kv_dtype=kv_dtype, engine=engine or "vllm", tp=tp, settings=given
    )
    wanted = int(deployment.settings["max_model_len"])
    if context is not None and context > wanted:
        raise InputError(f"{context:,} is more than max_model_len {wanted:,}", where="--context")
    use = chosen.memory(deployment)
    tokens = max(use.kv_blocks, 0) * int(deployment.settings["block_size"])
    fits = tokens >= wanted
    return Fit(
        title=title_of(chosen, deployment),
        fits=fits,
        usable_bytes=use.usable_bytes,
        total_bytes=use.total_bytes,
        parts=use.parts,
        kv_blocks=max(use.kv_blocks, 0),
        kv_tokens=tokens,
        max_context=min(tokens, found.max_context),
        max_batch=min(tokens // wanted, int(deployment.settings["max_num_seqs"])),
        changes=() if fits else tuple(_changes(chosen, deployment, wanted)),
        inputs=words | {"context": wanted},
    )


def _changes(engine: Engine, deployment: Deployment, wanted: int) -> Iterator[Change]:
    """The smallest single changes that fit: fewer cached tokens, smaller weights, more chips, and both."""
    chip, model = deployment.pool.chip, deployment.model
    here = deployment.strategy.tp
    use = engine.memory(deployment)
    tokens = max(use.kv_blocks, 0) * int(deployment.settings["block_size"])
    if tokens >= 1024:
        held = tokens // 1024 * 1024
        yield Change(
            what=f"max_model_len {held:,}",
            kv_tokens=tokens,
            kv_bytes=use.parts["kv"],
            flags={"set": f"max_model_len={held}"},
        )
    formats = [deployment.dtype] + (["fp8"] if deployment.dtype != "fp8" and "fp8" in chip.rates_flops else [])
    for dtype in reversed(formats):
        tp = next((t for t in _degrees(model, here) if _tokens(engine, deployment, t, dtype)[0] >= wanted), None)
        if tp is None or (tp == here and dtype == deployment.dtype):
            continue
        held, size = _tokens(engine, deployment, tp, dtype)
        chips = "1 GPU" if tp == 1 else f"{tp} GPUs, TP {tp}"
        weights = f", {dtype} weights" if dtype != deployment.dtype else ""
        yield Change(
            what=chips + weights,
            kv_tokens=held,
            kv_bytes=size,
            flags={"on": deployment.pool.resized(tp).words, "dtype": dtype},
        )


def _degrees(model: Model, least: int) -> Iterator[int]:
    for tp in (1, 2, 4, 8, 16, 32, 64):
        if tp < least:
            continue
        try:
            check_degrees(model, Strategy(tp=tp))
        except InputError:
            continue
        yield tp


def _tokens(engine: Engine, deployment: Deployment, tp: int, dtype: str) -> tuple[int, float]:
    _, other = deploy(
        deployment.model,
        deployment.pool.resized(tp),
        strategy=Strategy(tp=tp),
        dtype=dtype,
        kv_dtype=deployment.kv_dtype,
        engine=f"{engine.name}@{engine.version}",
        settings=deployment.settings,
    )
    use = engine.memory(other)
    return max(use.kv_blocks, 0) * int(other.settings["block_size"]), use.parts["kv"]
