"""One training step, operator by operator, on the busiest pipeline rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.collective import sm_contention
from gnomon.cost.lines import operator_line
from gnomon.cost.machine import COLLECTIVES
from gnomon.engines.training.layer_cost import tapes_of, units
from gnomon.engines.training.memory import has_ends
from gnomon.engines.training.stages import mode_of
from gnomon.errors import InputError, placed
from gnomon.graph.ops import Op
from gnomon.graph.tape import Tape
from gnomon.planning.steps.energy import carbon_g
from gnomon.planning.training.asked import possible_step
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.report import report_step
from gnomon.planning.training.step import TrainingStep
from gnomon.planning.unmodelled import idle_in_training
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import OperatorTime, Prediction, TrainingReport
from gnomon.spec.questions.step import PredictQuestion
from gnomon.spec.questions.training import SimulateTrainingQuestion
from gnomon.spec.training import SELDOM
from gnomon.spec.workload import Floats

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
    *SELDOM,
)
"""Settings of a training step."""
DEGREES = ("tp", "pp", "ep", "cp", "dp")
PLACES = {flag.where: f"--set {name}" for name, flag in SimulateTrainingQuestion.flags().items() if name in KNOWN} | {
    "--seq": "--tokens",
    "--global-batch": "--batch",
}
"""What `gnomon predict` calls the flags of `gnomon simulate train`."""
NOTHING = 1e-9
"""The share of a step below which a line is left out."""


def predict_training(question: PredictQuestion, asked: SimulateTrainingQuestion, bound: TrainingBinding) -> Prediction:
    """Seconds, memory, energy and dollars of one step of `batch` sequences of `tokens` tokens, optimizer included.
    `asked` is the equivalent question of `gnomon simulate train`."""
    settings = question.settings or {}
    if "micro_batch" not in settings and (asked.pp or 1) == 1:
        asked = replace(asked, micro_batch=_share(bound.pool.count, asked))
    step = possible_step(asked, bound, PLACES)
    said = {"phase": "train", "batch": asked.global_batch, "tokens": asked.seq, "context": 0}
    found = _prediction(report_step(step), said)
    idle = idle_in_training(
        asked.recipe_given, step.job.strategy, step.job.model, lambda name, value: f"{name}={_said(value)}"
    )
    return replace(found, not_modelled=(*idle, *found.not_modelled))


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def training_question(question: PredictQuestion) -> SimulateTrainingQuestion:
    """The equivalent question of `gnomon simulate train`; settings are those of its recipe: recompute, zero, …"""
    batch, given = 1 if question.batch is None else question.batch, dict(question.settings or {})
    if batch < 1:
        raise InputError(f"{batch} is below 1", where="--batch")
    if question.tokens is None:
        raise InputError("training needs the tokens of a sequence", where="--tokens", hint="Give --tokens 2048.")
    if question.context:
        raise InputError("training has no tokens in a cache", where="--context", hint="Leave it out.")
    if question.kv_dtype is not None:
        raise InputError("training has no cache", where="--kv-dtype", hint="Leave it out.")
    for name in given:
        if name not in KNOWN:
            raise InputError(f"unknown setting '{name}'", where="--set", hint=f"Known: {', '.join(KNOWN)}.")
    cuts = {name: degree for name in DEGREES if (degree := getattr(question, name)) is not None}
    with placed(PLACES):
        return SimulateTrainingQuestion(
            model=question.model, on=question.on, seq=question.tokens, global_batch=batch, dtype=question.dtype,
            engine=question.engine or ENGINE, images=question.images, image=question.image, source=question.source,
            **cuts, **given,
        )  # fmt: skip


def _share(chips: int, asked: SimulateTrainingQuestion) -> int:
    """The micro-batch: all of a rank's sequences, where the batch divides evenly."""
    dp = asked.dp or chips // asked.tp
    return asked.global_batch // dp if dp and asked.global_batch % dp == 0 else 1


def _prediction(answer: TrainingReport, asked: Mapping[str, Any]) -> Prediction:
    step: TrainingStep = answer.step
    lines = sorted(_lines(step), key=lambda line: -line.time_s.value)
    total = answer.step_time_s
    shares: dict[str, float] = {}
    for line in lines:
        shares[line.bound] = shares.get(line.bound, 0.0) + line.time_s.value / total.value
    bound, share = max(shares.items(), key=lambda item: item[1])
    fullest = int(np.argmax(step.peaks))
    energy = step.energy_j
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
        not_modelled=answer.not_modelled,
        resolved=answer.resolved,
    )


def _lines(step: TrainingStep) -> Iterator[OperatorTime]:
    """Operators of the busiest rank over all micro-batches, then the other parts of the step."""
    job, found = step.job, step.figures
    micros = int(found.micros[0])
    stages, batch = found.chunks.stages, step.batch
    parts = stages.in_roles(tapes_of(job.model, step.cut, step.traits))
    busiest = int(np.argmax(step.timeline.busy_s))
    counts = [int(layers[0]) for layers in found.chunks.on_rank(busiest)]
    runs = dict(zip(stages.names, counts, strict=True))
    first, last = (int(held[0]) for held in has_ends(found.grid, busiest))
    runs |= {"embedding": first, "head": last}
    spent = 0.0
    for name, tape in parts.items():
        mode = mode_of(name, job.recipe.recompute)
        for line in _operators(step, parts, tape, mode, batch, runs[name] * micros):
            spent += line.time_s.value
            yield line
    host = micros * _for_the_host(step, parts, batch, runs)
    if host[0] > NOTHING * step.timeline.step_s:
        spent += float(host[0])
        yield _line(step, "kernel launches", host, "host")
    total = step.timeline.step_s
    reduction = step.timeline.optimizer_start_s - step.timeline.pipeline_s
    beside = {
        "optimizer": (_as_drawn(found.optimizer_s, float(found.optimizer_s[0])), "memory"),
        "gradient reduction": (_as_drawn(found.reduce_s + found.first_reduce_s, reduction), "network"),
        "weight gather": (_as_drawn(found.gather_s, float(found.gather_s[0])), "network"),
    }
    for name, (drawn, bound) in beside.items():
        if drawn[0] > 0:
            yield _line(step, name, drawn, bound)
    left = total - spent - sum(float(drawn[0]) for drawn, _ in beside.values())
    if left > NOTHING * total:  # bubbles last as long as the passes that others wait for
        lasting = step.step_s
        drawn = np.concatenate([[left], left * lasting.draws / lasting.value])
        yield _line(step, "waiting and gradient sums", drawn, "waiting")


def _for_the_host(step: TrainingStep, parts: Mapping[str, Tape], batch: Batch, runs: Mapping[str, int]) -> Floats:
    """Seconds of a micro-batch's passes in which the device waits for the host that launches its kernels: the central
    estimate, then its draws."""
    machine, recompute, found = step.machine, step.job.recipe.recompute, np.zeros(1)
    times = tapes.price([op for tape in parts.values() for op in _all(tape)], machine, batch)
    weights = step.figures.chunks.stages.weights
    made = units(parts, recompute, times, machine, batch, step.traits, weights, step.drawn_host)
    contended = sm_contention(machine.chip.sm_count)
    for name, tape in parts.items():
        unit = made[name]
        there = tapes.forward(tape, times, batch, contended)
        back = tapes.backward(tape, mode_of(name, recompute), times, batch, contended)
        device = there.seconds(unit.clock_slowdown) + back.seconds(unit.clock_slowdown)
        found = found + runs[name] * (unit.forward_s + unit.backward_s - device)
    return found


def _as_drawn(rows: Floats, value: float) -> Floats:
    """A value, then its draws, which are as far from it as those of its rows are from their first."""
    return np.asarray(value * rows / rows[0]) if rows[0] > 0 else np.full(rows.shape, value)


def _operators(
    step: TrainingStep, parts: Mapping[str, Tape], tape: Tape, mode: str, batch: Batch, runs: int
) -> Iterator[OperatorTime]:
    """Operators of forward and backward; of the collectives only the exposed part."""
    machine = step.machine
    times = tapes.price([op for part in parts.values() for op in _all(part)], machine, batch)
    weights = step.figures.chunks.stages.weights
    made = units(parts, step.job.recipe.recompute, times, machine, batch, step.traits, weights)
    clock_slowdown = float(made["layer"].clock_slowdown[0])
    passes = (
        (tape.forward_ops(), tapes.forward(tape, times, batch, sm_contention(machine.chip.sm_count))),
        (tape.backward_ops(mode), tapes.backward(tape, mode, times, batch, sm_contention(machine.chip.sm_count))),
    )
    spent: dict[Op, tuple[float, int]] = {}
    for ops, found in passes if runs else ():
        networked = sum(float(times[op][0]) for op in ops if op.kind in COLLECTIVES)
        shown = float(found.exposed_s[0]) / networked if networked else 1.0
        for op in ops:
            seconds, count = spent.get(op, (0.0, 0))
            spent[op] = seconds + float(times[op][0]) * _share_of(op, clock_slowdown, shown), count + 1
    for op, (seconds, count) in spent.items():
        if seconds > 0:
            yield operator_line(machine, op, batch, seconds * runs, runs=count * runs)


def _share_of(op: Op, clock_slowdown: float, shown: float) -> float:
    if op.kind in COLLECTIVES:
        return shown
    return clock_slowdown if isinstance(op, tapes.COMPUTE) else 1.0


def _all(tape: Tape) -> list[Op]:
    return [*tape.priced_ops()]


def _line(step: TrainingStep, name: str, drawn: Floats, bound: str) -> OperatorTime:
    """A part of the step that is no operator: its seconds, then draws of them."""
    time_s = Estimate(float(drawn[0]), drawn[1:], Provenance.FITTED, step.machine.profile.source)
    return OperatorTime(op=name, kind="step", time_s=time_s, bound=bound, count=1, flops=0.0, bytes=0.0)
