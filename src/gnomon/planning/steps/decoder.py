"""One prefill or decode step of a plain decoder, priced operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.cost.lines import Steps
from gnomon.engines import Deployment, Engine
from gnomon.planning.deploy import title_of
from gnomon.planning.steps.batches import check_size, prefill_steps
from gnomon.planning.steps.parallel import parallel
from gnomon.planning.steps.prediction import prediction
from gnomon.spec import Batch
from gnomon.spec.answers import Prediction


def predict_step(engine: Engine, deployment: Deployment, asked: Mapping[str, Any]) -> Prediction:
    """The steps that a phase takes under the engine's limits, priced."""
    batch, tokens, context = asked["batch"], asked["tokens"], asked["context"]
    share = -(-batch // deployment.strategy.dp)
    check_size(engine, deployment, share, tokens, context)
    budget = engine.capacity(deployment.settings).step_tokens
    decode = asked["phase"] == "decode"
    steps = Batch.decode(share, context) if decode else prefill_steps(share, tokens, context, budget)
    if not engine.host(deployment).dp_padded(steps):
        deployment = replace(deployment, dp_load_ratio=batch / (share * deployment.strategy.dp))
    use = engine.memory(deployment)
    kv = share * use.sequence_bytes(context + tokens, tokens)
    price = engine.step_model(deployment).price(steps)
    waits = deployment.techniques.waits(Steps(seconds=price.time_s.value, batch=steps, cached_bytes=kv), deployment)
    price = replace(price, waits=tuple(wait.line(name) for name, wait in waits.items()))
    if asked.get("sustained"):
        price = price.sustained
    return prediction(
        price,
        deployment.strategy,
        replace(use, parts={name: size for name, size in use.parts.items() if name != "kv"} | {"kv": kv}),
        title=_title(engine, deployment, asked, steps.size),
        made=float(batch * tokens),
        parallel=parallel(engine, deployment, steps, float(batch * tokens), sustained=bool(asked.get("sustained"))),
        inputs=asked,
        cached=(share, context + tokens),
    )


def _title(engine: Engine, deployment: Deployment, asked: Mapping[str, Any], steps: int) -> str:
    batch, tokens, context = asked["batch"], asked["tokens"], asked["context"]
    sequences = "1 sequence" if batch == 1 else f"{batch:,} sequences"
    if asked["phase"] == "decode":
        what = f"one decode step of {sequences} at context {context:,}"
    else:
        over = f" over {context:,} cached" if context else ""
        each = "" if batch == 1 else " each"
        chunks = f", in {steps:,} steps" if steps > 1 else ""
        what = f"one prefill of {sequences}, {tokens:,} tokens{each}{over}{chunks}"
    return f"{title_of(engine, deployment)}: {what}{', sustained' if asked.get('sustained') else ''}"
