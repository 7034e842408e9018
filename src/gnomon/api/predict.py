"""One step, priced and opened up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.deploy import deploy_named, title_of, whole
from gnomon.api.energy import step_joules
from gnomon.api.predict_training import predict_training
from gnomon.api.results import OperatorTime, Prediction
from gnomon.api.trace_script import predict_script
from gnomon.cost.machine import Machine, normals, priced_dtype
from gnomon.cost.profile import profile_for
from gnomon.engines import Deployment, Engine
from gnomon.engines.base import StepParts
from gnomon.errors import InputError, unknown_name
from gnomon.graph.ops import Attention, Op
from gnomon.load.modules import is_script
from gnomon.spec import Batch, Estimate, Model, Provenance, Strategy

PHASES = ("decode", "prefill", "train")
MOST_STEPS = 100_000
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
) -> Prediction:
    """Seconds, memory, energy and dollars of one step of `batch` sequences.

    `tokens` is new tokens a sequence (1 in a decode), `context` those already in the cache. Phase `train` is a whole
    training step; without an engine, prompts and decodes run on vLLM and training on the built-in runner. Without a
    phase it is a decode. `script.py:function` runs that function, which gives a torch module and its inputs, and is
    predicted as `gnomon.trace` does.
    """
    if isinstance(model, str) and is_script(model):
        unused = {"--tokens": tokens, "--context": context, "--kv-dtype": kv_dtype, "--tp": tp}
        degrees = {"--pp": pp, "--ep": ep, "--cp": cp, "--dp": dp}
        return predict_script(
            model, on=on, phase=phase, batch=None if batch is None else whole(batch, "--batch"), dtype=dtype,
            engine=engine, settings=settings, unused=unused | degrees,
        )  # fmt: skip
    phase = phase or "decode"
    batch, context = whole(1 if batch is None else batch, "--batch"), whole(context, "--context")
    if phase == "train":
        cuts = {"tp": tp, "pp": pp, "ep": ep, "cp": cp, "dp": dp}
        return predict_training(
            model, on=on, batch=batch, tokens=tokens, context=context, dtype=dtype, kv_dtype=kv_dtype, engine=engine,
            degrees=cuts, settings=settings,
        )  # fmt: skip
    dp = 1 if dp is None else dp
    work = _work(phase, batch, None if tokens is None else whole(tokens, "--tokens"), context)
    given = tp is not None or (pp, ep, cp, dp) != (1, 1, 1, 1)
    strategy = Strategy(tp=1 if tp is None else tp, pp=pp, ep=ep, cp=cp, dp=dp) if given else None
    chosen, deployment, words = deploy_named(
        model, on, dtype=dtype, kv_dtype=kv_dtype, engine=engine or "vllm", strategy=strategy, settings=settings
    )
    _check_size(chosen, deployment, batch, work, context)
    asked = {"phase": phase, "batch": batch, "tokens": work, "context": context}
    budget = int(deployment.settings["max_num_batched_tokens"])
    steps = Batch.decode(batch, context) if phase == "decode" else _prefill_steps(batch, work, context, budget)
    return _predict(chosen, deployment, steps, words | asked)


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


def _prefill_steps(batch: int, tokens: int, context: int, budget: int) -> Batch:
    """The steps in which an engine works the prompts off, first come first served, `budget` tokens a step."""
    if batch * tokens <= budget:
        return Batch.prefill(batch, tokens, context)
    if batch * tokens > MOST_STEPS * budget or batch > MOST_STEPS:
        raise InputError(f"{batch * tokens:,} tokens are too many for one prediction", where="--batch, --tokens")
    steps: list[list[tuple[int, int]]] = [[]]
    room = budget
    for _ in range(batch):
        done = 0
        while done < tokens:
            if room == 0:
                steps.append([])
                room = budget
            piece = min(tokens - done, room)
            steps[-1].append((piece, context + done))
            done, room = done + piece, room - piece
    return Batch.stack([Batch.step([], chunks) for chunks in steps])


def _check_size(engine: Engine, deployment: Deployment, batch: int, tokens: int, context: int) -> None:
    settings = deployment.settings
    longest = context + tokens
    if longest > settings["max_model_len"]:
        raise InputError(
            f"{longest:,} tokens are more than the {settings['max_model_len']:,} a sequence may have",
            where="--context",
        )
    if batch > settings["max_num_seqs"]:
        raise InputError(
            f"{batch:,} sequences are more than {engine.name} runs in one step ({settings['max_num_seqs']:,})",
            where="--batch",
            hint="Raise it with --set max_num_seqs=….",
        )


def _predict(engine: Engine, deployment: Deployment, steps: Batch, inputs: Mapping[str, Any]) -> Prediction:
    machine = Machine(deployment.pool, profile_for(deployment.pool.chip))
    parts = engine.step_parts(deployment, steps)
    lines = [_line(machine, op, parts.padded, steps) for op in engine.graph(deployment).ops]
    lines = [line for line in lines if line.time_s.value > 0]
    lines.append(_engine_line(Estimate.total([line.time_s for line in lines]), parts))
    total = Estimate.total([line.time_s for line in lines])
    ranks, chip = deployment.strategy.ranks, deployment.pool.chip
    use = engine.memory(deployment)
    tokens = float(steps.tokens.sum())
    cached = inputs["batch"] * use.sequence_bytes(inputs["context"] + inputs["tokens"])
    taken = {name: size for name, size in use.parts.items() if name != "kv"} | {"kv": cached}
    flops, moved = sum(line.flops for line in lines), sum(line.bytes for line in lines)
    power = machine.profile.power
    lines.sort(key=lambda line: -line.time_s.value)
    bound, share = ("host", 1.0) if parts.host_s >= total.value * (1 - 1e-9) else _bound(lines, total.value)
    return Prediction(
        title=_title(engine, deployment, inputs, steps.size),
        time_s=total,
        memory_bytes=_memory(sum(taken.values()), use.slack_bytes),
        energy_j=total.map(lambda s: ranks * _joules(power, chip, s, flops, moved)),
        cost_usd=total * (ranks * chip.price_usd_h / 3600),
        tokens_per_s=tokens / total.value,
        bound=bound,
        bound_share=share,
        fits=sum(taken.values()) <= use.usable_bytes,
        memory_parts=taken,
        memory_total_bytes=use.total_bytes,
        breakdown=tuple(lines),
        inputs=inputs,
    )


def _memory(size: float, slack: float) -> Estimate:
    """Weights and cache are exact; `slack` is what the engine's reserve may be off by, 90% of the time."""
    source = "weights, cache and the engine's reserve"
    if not slack:
        return Estimate.exact(size, source)
    return Estimate(size, size + slack / HALF_BAND * normals("memory"), Provenance.FITTED, source)


def _joules(power: Mapping[str, float], chip: Any, seconds: Any, flops: float, moved: float) -> Any:
    if np.ndim(seconds) == 0:
        return step_joules(power, chip, float(seconds), flops, moved)
    return np.array([step_joules(power, chip, float(s), flops, moved) for s in seconds])


def _line(machine: Machine, op: Op, padded: Batch, steps: Batch) -> OperatorTime:
    """An operator over the padded steps (attention skips padding); FLOPs and bytes are those of the work asked for."""
    dtype = priced_dtype(op)
    seconds = machine.op_seconds(op, steps if isinstance(op, Attention) else padded).sum(keepdims=True)
    flops, moved = (op.count * figure(steps).sum(keepdims=True) for figure in (op.flops, op.bytes))
    family = machine.evidence(op.kind, dtype)
    value = float(seconds[0])
    return OperatorTime(
        op=op.name,
        kind=op.kind,
        time_s=Estimate(value, value * machine.factors(op.name, op.kind, dtype), family.provenance, family.source),
        bound=str(machine.bound(flops, moved, seconds, op.kind, op.dtype)[0]),
        count=op.count * steps.size,
        flops=float(flops[0]),
        bytes=float(moved[0]),
    )


def _engine_line(device: Estimate, parts: StepParts) -> OperatorTime:
    """The engine's own share: the gaps between steps, and what the host needs beyond the device."""

    def own(seconds: Any, factor: Any) -> Any:
        return np.maximum(parts.host_s * factor - seconds, parts.gap_s * factor)

    value, draws = float(own(device.value, 1.0)), np.asarray(own(device.draws, parts.factors))
    share = Estimate(value, draws, Provenance.FITTED, parts.source)
    return OperatorTime(op="engine", kind="host", time_s=share, bound="host", count=1, flops=0.0, bytes=0.0)


def _bound(lines: list[OperatorTime], total: float) -> tuple[str, float]:
    shares: dict[str, float] = {}
    for line in lines:
        shares[line.bound] = shares.get(line.bound, 0.0) + line.time_s.value / total
    return max(shares.items(), key=lambda item: item[1])


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
