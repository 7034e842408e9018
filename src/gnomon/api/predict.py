"""One step, priced and opened up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.cost.draws import normals
from gnomon.cost.machine import Machine
from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError, unknown_name
from gnomon.load import model as load_model
from gnomon.load.tracing import is_script
from gnomon.planning.deploy import deploy_named, refuse_techniques, title_of, whole
from gnomon.planning.energy import carbon_g
from gnomon.planning.network_words import PHASES as NETWORKS
from gnomon.planning.network_words import Words, refuse_auto, refuse_beside, refuse_extra
from gnomon.planning.parallel import parallel
from gnomon.planning.shortage import shortage
from gnomon.planning.steps import bound_of, check_size, engine_line, joules, line, prefill_steps, wait_line
from gnomon.planning.unmodelled import told
from gnomon.spec import Batch, Estimate, Model, Provenance
from gnomon.spec.answers import Prediction
from gnomon.techniques import asked

PHASES = ("decode", "prefill", "train")
HALF_BAND = 1.645
"""Standard deviations between a normal distribution's middle and its 95% quantile."""


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
        from gnomon.api.predict_network import predict_network

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
        chosen, deployment, named["settings"], lambda one: _step(chosen, one, said),
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


def _step(engine: Engine, deployment: Deployment, asked: Mapping[str, Any]) -> Prediction:
    """The steps that a phase takes under the engine's limits, priced."""
    batch, tokens, context = asked["batch"], asked["tokens"], asked["context"]
    share = -(-batch // deployment.strategy.dp)
    check_size(engine, deployment, share, tokens, context)
    budget = int(deployment.settings["max_num_batched_tokens"])
    decode = asked["phase"] == "decode"
    steps = Batch.decode(share, context) if decode else prefill_steps(share, tokens, context, budget)
    if not engine.step_parts(deployment, steps).evened:
        deployment = replace(deployment, fill=batch / (share * deployment.strategy.dp))
    return _predict(engine, deployment, steps, asked)


def _predict(engine: Engine, deployment: Deployment, steps: Batch, inputs: Mapping[str, Any]) -> Prediction:
    machine = Machine(deployment.pool, deployment.profile)
    parts = engine.step_parts(deployment, steps)
    lines = [line(machine, op, parts.padded, steps) for op in engine.graph(deployment).ops]
    lines = [one for one in lines if one.time_s.value > 0]
    lines.append(engine_line(Estimate.total([one.time_s for one in lines]), parts))
    ranks, chip = deployment.strategy.ranks, deployment.pool.chip
    use = engine.memory(deployment)
    tokens = float(inputs["batch"] * inputs["tokens"])
    each = -(-inputs["batch"] // deployment.strategy.dp)
    cached = each * use.sequence_bytes(inputs["context"] + inputs["tokens"], inputs["tokens"])
    lines += [wait_line(one) for one in deployment.ideas.waits(deployment, steps, cached)] if deployment.ideas else []
    total = Estimate.total([one.time_s for one in lines])
    taken = {name: size for name, size in use.parts.items() if name != "kv"} | {"kv": cached}
    flops, moved = sum(one.flops for one in lines), sum(one.bytes for one in lines)
    power, pp = machine.profile.power, deployment.strategy.pp
    waiting_w = (pp - 1) * power["idle_w"]
    energy = total.map(lambda s: ranks / pp * (joules(power, chip, s, flops, moved) + waiting_w * s))
    lines.sort(key=lambda one: -one.time_s.value)
    bound, share = ("host", 1.0) if parts.host_s >= total.value * (1 - 1e-9) else bound_of(lines, total.value)
    return Prediction(
        title=_title(engine, deployment, inputs, steps.size),
        time_s=total,
        memory_bytes=_memory(sum(taken.values()), use.slack_bytes),
        energy_j=energy,
        co2_g=carbon_g(deployment.pool, energy),
        cost_usd=total * (ranks * chip.price_usd_h / 3600),
        tokens_per_s=tokens / total.value,
        bound=bound,
        bound_share=share,
        fits=sum(taken.values()) <= use.usable_bytes,
        cause=shortage(taken, use.usable_bytes, sequences=each, tokens=inputs["context"] + inputs["tokens"]),
        memory_parts=taken,
        memory_total_bytes=use.total_bytes,
        memory_usable_bytes=use.usable_bytes,
        breakdown=tuple(lines),
        parallel=parallel(engine, deployment, steps, tokens),
        inputs=inputs,
    )


def _memory(size: float, slack: float) -> Estimate:
    """Weights and cache are exact; `slack` is what the engine's reserve may be off by, 90% of the time."""
    source = "weights, cache and the engine's reserve"
    if not slack:
        return Estimate.exact(size, source)
    return Estimate(size, size + slack / HALF_BAND * normals("memory"), Provenance.FITTED, source)


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
    return f"{title_of(engine, deployment)}: {what}"
