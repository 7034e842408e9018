"""One step, priced and opened up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.errors import placed
from gnomon.load.tracing import is_script, is_trace_file
from gnomon.planning.steps.network_words import refuse_auto, refuse_for_script, refuse_for_training
from gnomon.spec import Model, Pool
from gnomon.spec.answers import Prediction
from gnomon.spec.questions.step import PredictQuestion
from gnomon.techniques import asked


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
    sustained: bool = False,
    power_limit_w: float | None = None,
) -> Prediction:
    """Seconds, memory, energy and dollars of one step of `batch` sequences.

    `tokens` is the new tokens per sequence (1 in a decode step), `context` the tokens already in the KV cache.
    Data-parallel ranks have equal shares of the batch; with pipeline parallelism the time is that of one batch through
    all stages. Phase `train` is a full training step. The default phase is `decode`; the default engine is vLLM, and
    the built-in PyTorch runner for training.

    Networks other than plain decoders run on vLLM where it supports them, else on PyTorch. An encoder's `prefill` is
    one pass over `tokens` in both directions. An encoder-decoder cross-attends to `source` tokens or frames. A model
    with a vision tower gets `images` of the size `image` beside its `tokens` of text. A diffusion transformer's
    `forward` is one step over an `image` or so many `tokens` (patches), or `steps` of them.

    `script.py:function` runs that function, which returns a torch module and its inputs; they are traced and priced
    as by `gnomon.trace`. A `.trace.json` that it wrote is priced without PyTorch.

    `techniques` are named as in a plan, for prefill and decode of plain decoders: `int4-weights:bits=3`.

    A step is priced at full clock, as it runs by itself; with `sustained` at the clock that the chip keeps under its
    power limit if it runs it without end, and so with a lower limit, `power_limit_w`. Training is always sustained.
    """
    return answer(
        PredictQuestion(
            model=model, on=on, phase=phase, batch=batch, tokens=tokens, context=context, dtype=dtype,
            kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp, settings=settings, source=source,
            images=images, image=image, steps=steps, techniques=techniques, sustained=sustained,
            power_limit_w=power_limit_w,
        )
    )  # fmt: skip


def answer(question: PredictQuestion) -> Prediction:
    """The prediction that a question asks for, by the kind of network and phase."""
    refuse_auto(asked(question.techniques))
    if isinstance(question.model, str) and is_script(question.model):
        return _of_script(question)
    if isinstance(question.model, str | Path) and is_trace_file(str(question.model)):
        return _of_trace_file(question)
    if question.phase == "train":
        return _of_training(question)
    from gnomon.load.deployments import replica_of
    from gnomon.planning.steps.predict import predict_replica

    replica = replica_of(question, question.engine, power_limit_w=question.power_limit_w)
    return replace(predict_replica(replica, question), resolved=replica.resolved)


def _of_script(question: PredictQuestion) -> Prediction:
    from gnomon.api.trace import predict_script

    refuse_for_script(question)
    return predict_script(question)


def _of_trace_file(question: PredictQuestion) -> Prediction:
    from gnomon.api.trace import predict_trace_file

    refuse_for_script(question)
    return predict_trace_file(question)


def _of_training(question: PredictQuestion) -> Prediction:
    from gnomon.load.training import bind_training
    from gnomon.planning.steps.training import PLACES, predict_training, training_question

    refuse_for_training(question)
    asked = training_question(question)
    with placed({name: PLACES.get(flag, flag) for name, flag in asked.places().items()}):
        bound = bind_training(
            asked.model, asked.on, asked.engine, power_limit_w=question.power_limit_w, load=asked.load
        )
    return predict_training(question, asked, bound)
