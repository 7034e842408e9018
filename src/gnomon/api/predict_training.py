"""One training step opened up, operator by operator, on the rank of a pipeline that works most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.simulate_training import simulate_training
from gnomon.cost import tapes
from gnomon.cost.collective import crowding
from gnomon.cost.lines import operator_line
from gnomon.cost.machine import COLLECTIVES
from gnomon.engines.training.stages import kind_names
from gnomon.engines.training.units import ENDS, tapes_of, units
from gnomon.errors import GnomonError, InputError
from gnomon.graph.ops import Attention, Gemm, Op
from gnomon.graph.tape import Tape
from gnomon.planning.steps.energy import carbon_g
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import Batch, Estimate, Model, NotModelled, Provenance
from gnomon.spec.answers import OperatorTime, Prediction, TrainingReport
from gnomon.spec.questions.base import whole

ENGINE = "torch"
KNOWN = (
    "micro_batch",
    "zero",
    "schedule",
    "recompute",
    "optimizer",
    "sequence_parallel",
    "vp",
    "cp_comm",
    "expert_tp",
)
"""Settings of a training step."""
FLAGS = {"--seq": "--tokens", "--global-batch": "--batch", "sequence_parallel": "--set sequence_parallel"} | {
    f"--{name.replace('_', '-')}": f"--set {name}" for name in KNOWN
}
"""Of `gnomon simulate train`, as `gnomon predict` calls them."""


def predict_training(
    model: str | Path | Model,
    *,
    on: str,
    batch: int,
    tokens: int | None,
    context: int,
    dtype: str | None,
    kv_dtype: str | None,
    engine: str | None,
    degrees: Mapping[str, int | None],
    settings: Mapping[str, Any] | None,
) -> Prediction:
    """Seconds, memory, energy and dollars of one step of `batch` sequences of `tokens` tokens, optimizer included.

    Settings are those of `gnomon simulate train`: recompute, zero, optimizer, micro_batch and so on.
    """
    if batch < 1:
        raise InputError(f"{batch} is below 1", where="--batch")
    if tokens is None:
        raise InputError("training needs the tokens of a sequence", where="--tokens", hint="Give --tokens 2048.")
    if context:
        raise InputError("training has no tokens in a cache", where="--context", hint="Leave it out.")
    if kv_dtype is not None:
        raise InputError("training has no cache", where="--kv-dtype", hint="Leave it out.")
    if isinstance(model, Model):
        raise InputError("a training step is predicted of a named model or a config.json", where="model")
    given = dict(settings or {})
    cuts: dict[str, Any] = {name: whole(degree, f"--{name}") for name, degree in degrees.items() if degree is not None}
    if "micro_batch" not in given and cuts.get("pp", 1) == 1:
        given["micro_batch"] = _share(on, batch, cuts)
    for name in given:
        if name not in KNOWN:
            raise InputError(f"unknown setting '{name}'", where="--set", hint=f"Known: {', '.join(KNOWN)}.")
    try:
        answer = simulate_training(
            model, on=on, seq=tokens, global_batch=batch, dtype=dtype, engine=engine or ENGINE, **cuts, **given
        )
    except GnomonError as error:
        error.where = FLAGS.get(error.where, error.where)
        raise
    found = _prediction(answer, {"phase": "train", "batch": batch, "tokens": tokens, "context": 0})
    return replace(found, not_modelled=tuple(map(_as_set, answer.not_modelled)))


def _as_set(one: NotModelled) -> NotModelled:
    """What `gnomon simulate train` calls `--zero 1` is `zero=1` here, a setting."""
    flag, _, value = one.option.partition(" ")
    if not flag.startswith("--"):
        return one
    off = flag.startswith("--no-")
    name = flag.removeprefix("--no-").removeprefix("--").replace("-", "_")
    return replace(one, option=f"{name}={value or ('false' if off else 'true')}")


def _share(on: str, batch: int, cuts: Mapping[str, int]) -> int:
    """All of a rank's sequences at once, where they divide; the step says so where they do not."""
    from gnomon.load import parse_pool

    dp = cuts.get("dp") or parse_pool(on).count // max(cuts.get("tp", 1), 1)
    return batch // dp if dp and batch % dp == 0 else 1


def _prediction(answer: TrainingReport, asked: Mapping[str, Any]) -> Prediction:
    step: TrainingStep = answer.step
    lines = sorted(_lines(step), key=lambda line: -line.time_s.value)
    total = answer.step_time_s
    shares: dict[str, float] = {}
    for line in lines:
        shares[line.bound] = shares.get(line.bound, 0.0) + line.time_s.value / total.value
    bound, share = max(shares.items(), key=lambda item: item[1])
    fullest = int(np.argmax(step.peaks))
    energy = total * (answer.energy_j / total.value)
    return Prediction(
        title=answer.title,
        time_s=total,
        memory_bytes=answer.peak_memory_bytes,
        energy_j=energy,
        co2_g=carbon_g(step.pool, energy),
        cost_usd=total * (answer.cost_usd / total.value),
        tokens_per_s=step.job.load.step_tokens / total.value,
        bound=bound,
        bound_share=share,
        fits=answer.fits,
        cause=answer.cause,
        memory_parts=answer.memory_parts[fullest],
        memory_total_bytes=step.pool.chip.memory_bytes,
        memory_usable_bytes=step.usable_bytes,
        breakdown=tuple(lines),
        inputs=dict(answer.inputs) | dict(asked),
        resolved=answer.resolved,
    )


def _lines(step: TrainingStep) -> Iterator[OperatorTime]:
    """Operators of the busiest rank over all micro-batches, then what the step spends beside them."""
    job, found = step.job, step.figures
    micros, strategy = int(found.micros[0]), job.plan.strategy
    parts, batch = tapes_of(job.model, step.cut, step.traits), step.batch
    busiest = int(np.argmax(step.timeline.busy_s))
    counts = [int(layers[0]) for layers in found.chunks.on_rank(busiest)]
    runs = dict(zip(kind_names(len(counts)), counts, strict=True))
    runs |= {"embedding": int(busiest == 0), "head": int(busiest == strategy.pp - 1)}
    spent = 0.0
    for name, tape in parts.items():
        mode = "none" if name in ENDS else job.recipe.recompute
        for line in _operators(step, parts, tape, mode, batch, runs[name] * micros):
            spent += line.time_s.value
            yield line
    total = step.timeline.step_s
    beside = {
        "optimizer": (float(found.optimizer_s[0]), "memory"),
        "gradient reduction": (step.timeline.optimizer_start_s - step.timeline.pipeline_s, "network"),
        "weight gather": (float(found.gather_s[0]), "network"),
    }
    for name, (seconds, bound) in beside.items():
        if seconds > 0:
            yield _line(step, name, "step", seconds, bound, 1, 0.0, 0.0)
    left = total - spent - sum(seconds for seconds, _ in beside.values())
    if left > 1e-9 * total:
        yield _line(step, "waiting and gradient sums", "step", left, "waiting", 1, 0.0, 0.0)


def _operators(
    step: TrainingStep, parts: Mapping[str, Tape], tape: Tape, mode: str, batch: Batch, runs: int
) -> Iterator[OperatorTime]:
    """Both passes; of the collectives only what nothing hides."""
    machine = step.machine
    times = tapes.price([op for part in parts.values() for op in _all(part)], machine, batch)
    weights = step.figures.chunks.stages.weights
    made = units(parts, step.job.recipe.recompute, times, machine, batch, step.traits, weights)
    stretch = float(made["layer"].stretch[0])
    passes = (
        (tape.forward_ops(), tapes.forward(tape, times, batch, crowding(machine.chip.sm_count))),
        (tape.backward_ops(mode), tapes.backward(tape, mode, times, batch, crowding(machine.chip.sm_count))),
    )
    spent: dict[Op, tuple[float, int]] = {}
    for ops, found in passes if runs else ():
        networked = sum(float(times[op][0]) for op in ops if op.kind in COLLECTIVES)
        shown = float(found.exposed_s[0]) / networked if networked else 1.0
        for op in ops:
            seconds, count = spent.get(op, (0.0, 0))
            spent[op] = seconds + float(times[op][0]) * _share_of(op, stretch, shown), count + 1
    for op, (seconds, count) in spent.items():
        if seconds > 0:
            yield operator_line(machine, op, batch, seconds * runs, runs=count * runs)


def _share_of(op: Op, stretch: float, shown: float) -> float:
    if op.kind in COLLECTIVES:
        return shown
    return stretch if isinstance(op, (Gemm, Attention)) else 1.0


def _all(tape: Tape) -> list[Op]:
    return [op for node in tape.nodes for op in node.forward + node.by_input + node.by_weight]


def _line(
    step: TrainingStep, name: str, kind: str, seconds: float, bound: str, count: int, flops: float, moved: float
) -> OperatorTime:
    time_s = Estimate(seconds, np.full(32, seconds), Provenance.FITTED, step.machine.profile.source)
    return OperatorTime(op=name, kind=kind, time_s=time_s, bound=bound, count=count, flops=flops, bytes=moved)
