"""One step, priced and opened up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError, unknown_name
from gnomon.load import model as load_model
from gnomon.load.tracing import is_script
from gnomon.planning.deploy import deploy_named, refuse_techniques, whole
from gnomon.planning.steps.decoder import predict_step
from gnomon.planning.steps.network_words import PHASES as NETWORKS
from gnomon.planning.steps.network_words import Words, refuse_auto, refuse_beside, refuse_extra
from gnomon.planning.unmodelled import told
from gnomon.spec import Model
from gnomon.spec.answers import Prediction, Resolved
from gnomon.techniques import asked

PHASES = ("decode", "prefill", "train")


def predict(
    model: str | Path | Model,
    *,
    on: str,
    phase: str | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    context: int = 0,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | None = None,
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    dp: int | None = None,
    settings: Mapping[str, Any] | None = None,
    source: int | None = None,
    images: int | None = None,
    image: str | None = None,
    steps: int | None = None,
    techniques: Sequence[str] = (),
) -> Prediction:
    """Seconds, memory, energy and dollars of one step of `batch` sequences.

    `tokens` is new tokens a sequence (1 in a decode), `context` those already in the cache. Sequences are dealt to
    data-parallel ranks evenly; with a pipeline the time is that of one batch through all its stages. Phase `train` is
    a whole training step; without an engine, prompts and decodes run on vLLM and training on the built-in runner.
    Without a phase it is a decode.

    Networks that are no plain decoders run on vLLM where it knows them, else on PyTorch. An encoder's `prefill` is one
    pass over `tokens` in both directions. An encoder-decoder has `source` tokens or frames behind its cross-attention.
    A model with a vision tower gets `images` of the size `image` beside its `tokens` of text. A diffusion
    transformer's `forward` is one step over an `image` or so many `tokens` (patches), or `steps` of them.

    `script.py:function` runs that function, which gives a torch module and its inputs, and is predicted as
    `gnomon.trace` does.

    `techniques` are named as in a plan, for prompts and decodes of plain decoders: `int4-weights:bits=3`.
    """
    techniques = asked(techniques)
    refuse_auto(techniques)
    if isinstance(model, str) and is_script(model):
        from gnomon.api.trace_script import predict_script

        refuse_techniques("a module of your own", techniques)
        unused = {"--tokens": tokens, "--context": context, "--kv-dtype": kv_dtype, "--tp": tp}
        unused |= {"--source": source, "--images": images, "--image": image, "--steps": steps}
        degrees = {"--pp": pp, "--ep": ep, "--cp": cp, "--dp": dp}
        return predict_script(
            model, on=on, phase=phase, batch=None if batch is None else whole(batch, "--batch"), dtype=dtype,
            engine=engine, settings=settings, unused=unused | degrees,
        )  # fmt: skip
    batch, context = whole(1 if batch is None else batch, "--batch"), whole(context, "--context")
    words = Words(
        phase=phase, batch=batch, tokens=tokens, context=context, source=source, images=images, image=image, steps=steps
    )
    if phase == "train":
        from gnomon.api.predict_training import predict_training

        refuse_extra("training", words)
        refuse_techniques("phase train", techniques, "Use `gnomon simulate train`, which takes --with.")
        cuts = {"tp": tp, "pp": pp, "ep": ep, "cp": cp, "dp": dp}
        return predict_training(
            model, on=on, batch=batch, tokens=tokens, context=context, dtype=dtype, kv_dtype=kv_dtype, engine=engine,
            degrees=cuts, settings=settings,
        )  # fmt: skip
    dp = 1 if dp is None else dp
    found = model if isinstance(model, Model) else load_model(model)
    name = found.name if isinstance(model, Model) else str(model)
    if found.kind in NETWORKS:
        from gnomon.planning.steps.network import predict_network

        refuse_beside(found, techniques)
        return predict_network(
            found, words, name=name, on=on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, settings=settings,
            degrees={"tp": tp, "pp": pp, "ep": ep, "cp": cp, "dp": dp},
        )  # fmt: skip
    refuse_extra(f"{found.name}, a plain decoder", words)
    phase = phase or "decode"
    work = _work(phase, batch, None if tokens is None else whole(tokens, "--tokens"), context)

    def deployed(ideas: Sequence[str]) -> tuple[Engine, Deployment, dict[str, Any]]:
        return deploy_named(
            found, on, dtype=dtype, kv_dtype=kv_dtype, engine=engine or "vllm", tp=tp, pp=pp, ep=ep, cp=cp, dp=dp,
            settings=settings, techniques=ideas,
        )  # fmt: skip

    chosen, deployment, named = deployed(techniques)
    said = named | {"model": name, "phase": phase, "batch": batch, "tokens": work, "context": context}
    return told(
        chosen, deployment, named["settings"],
        lambda one: replace(predict_step(chosen, one, said), resolved=Resolved.of(found, one.pool)),
        without=lambda name: deployed([other for other in techniques if other != name])[1],
    )  # fmt: skip


def _work(phase: str, batch: int, tokens: int | None, context: int) -> int:
    """New tokens a sequence, once the numbers make sense."""
    if phase not in PHASES:
        raise unknown_name("phase", str(phase), PHASES, where="--phase")
    for flag, value, least in (
        ("--batch", batch, 1),
        ("--context", context, 0),
        ("--tokens", 1 if tokens is None else tokens, 1),
    ):
        if value < least:
            raise InputError(f"{value} is below {least}", where=flag)
    if phase == "decode":
        if tokens not in (None, 1):
            raise InputError(f"a decode makes 1 token a sequence, not {tokens}", where="--tokens")
        return 1
    if tokens is None:
        raise InputError("a prefill needs the new tokens a sequence", where="--tokens", hint="Give --tokens 1024.")
    return tokens
