"""One prefill or decode step of a plain decoder, priced operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.cost.draws import normals
from gnomon.cost.machine import Machine
from gnomon.engines import Deployment, Engine
from gnomon.planning.deploy import title_of
from gnomon.planning.shortage import shortage
from gnomon.planning.steps.energy import carbon_g
from gnomon.planning.steps.lines import bound_of, check_size, engine_line, joules, line, prefill_steps, wait_line
from gnomon.planning.steps.parallel import parallel
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import Prediction

HALF_BAND = 1.645
"""Standard deviations between a normal distribution's middle and its 95% quantile."""


def predict_step(engine: Engine, deployment: Deployment, asked: Mapping[str, Any]) -> Prediction:
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
