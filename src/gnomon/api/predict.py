"""One step, priced and opened up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.load.tracing import is_script
from gnomon.planning.steps.network_words import refuse_auto, refuse_for_script, refuse_for_training
from gnomon.spec import Model, Pool
from gnomon.spec.answers import Prediction
from gnomon.spec.questions.step import PredictQuestion
from gnomon.techniques import asked

NOT_OF_SCRIPTS = (
    "tokens", "context", "kv_dtype", "tp", "source", "images", "image", "steps", "pp", "ep", "cp", "dp",
)  # fmt: skip
"""Options that say nothing about a module of one's own."""


def predict(
    model: str | Path | Model,
    *,
    on: str | Pool,
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
    return answer(
        PredictQuestion(
            model=model, on=on, phase=phase, batch=batch, tokens=tokens, context=context, dtype=dtype,
            kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp, settings=settings, source=source,
            images=images, image=image, steps=steps, techniques=techniques,
        )
    )  # fmt: skip


def answer(question: PredictQuestion) -> Prediction:
    """The prediction that a question asks for, by the kind of network and phase."""
    refuse_auto(asked(question.techniques))
    if isinstance(question.model, str) and is_script(question.model):
        return _of_script(question, question.model)
    if question.phase == "train":
        return _of_training(question)
    from gnomon.load.deployments import replica_of
    from gnomon.planning.steps.predict import predict_replica

    replica = replica_of(question, question.engine)
    return replace(predict_replica(replica, question), resolved=replica.resolved)


def _of_script(question: PredictQuestion, script: str) -> Prediction:
    from gnomon.api.trace_script import predict_script

    refuse_for_script(question)
    return predict_script(
        script, on=str(question.on), phase=question.phase, batch=question.batch, dtype=question.dtype,
        engine=question.engine, settings=question.settings,
        unused={question.flags()[name].where: getattr(question, name) for name in NOT_OF_SCRIPTS},
    )  # fmt: skip


def _of_training(question: PredictQuestion) -> Prediction:
    from gnomon.api.predict_training import predict_training

    refuse_for_training(question)
    return predict_training(
        question.model, on=str(question.on), batch=question.sequences, tokens=question.tokens, context=question.context,
        dtype=question.dtype, kv_dtype=question.kv_dtype, engine=question.engine, settings=question.settings,
        degrees={name: getattr(question, name) for name in ("tp", "pp", "ep", "cp", "dp")},
    )  # fmt: skip
