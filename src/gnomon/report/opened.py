"""An answer as a tree of nodes, down to formulas and sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnomon.cost.machine import COLLECTIVES, EXCHANGES
from gnomon.errors import InputError
from gnomon.report.opened_plan import planned
from gnomon.report.opened_training import trained, trained_plan
from gnomon.report.opened_tried import tried
from gnomon.report.predict import largest_first
from gnomon.report.serve import seconds_word
from gnomon.report.text import digits, gib, known, plural, scaled
from gnomon.report.verify import value_word
from gnomon.spec.answers import (
    AnswerNode,
    Fit,
    OperatorTime,
    PlanReport,
    Prediction,
    Resolved,
    Result,
    ServingReport,
    TrainingPlanReport,
    TrainingReport,
    Verified,
)
from gnomon.spec.tried import TechniqueComparison
from gnomon.units import format_bytes, format_count, format_duration, format_money

Step = Callable[[Mapping[str, Any], int, int], Prediction | None]
"""Predicts one decode step of a deployment at a batch and a context."""
DEPLOYED = ("model", "on", "tp", "pp", "ep", "cp", "dp", "dtype", "kv_dtype", "engine", "settings", "techniques")
"""Inputs that name the same deployment again."""
MOST_SEQUENCES = 1_000_000
MOST_TOKENS = 1e9
"""A made-up answer may claim any number; no step has more."""


def opened(answer: Result, step: Step, where: str = "the answer") -> tuple[AnswerNode, ...]:
    """The metrics of an answer from that file or run. `step` opens what stands behind a token of a simulated load."""
    openers: dict[type[Result], Callable[[Any], tuple[AnswerNode, ...]]] = {
        Prediction: _prediction,
        Fit: _fit,
        ServingReport: lambda found: _served(found, step),
        PlanReport: planned,
        TrainingReport: trained,
        TrainingPlanReport: trained_plan,
        TechniqueComparison: tried,
        Verified: _verified,
    }
    opener = next((openers[kind] for kind in openers if isinstance(answer, kind)), None)
    if opener is None:
        what = answer.schema.removeprefix("gnomon.").partition("/")[0] or "this file"
        hint = f"Known: {', '.join(kind.SCHEMA for kind in openers)}."
        raise InputError(f"'{what}' is not an answer that can be explained", where=f"{where}, field schema", hint=hint)
    try:
        return opener(answer)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise InputError("the answer is damaged", where=where, hint="Ask for it again.") from None


def _prediction(answer: Prediction) -> tuple[AnswerNode, ...]:
    seconds, joules, usd = answer.time_s.value, answer.energy_j.value, answer.cost_usd.value
    took = format_duration(seconds)
    power, price = f"{joules / seconds:,.0f} W for {took}", f"{format_money(usd / seconds * 3600)}/h for {took}"
    used, parts = f"{gib(answer.memory_bytes.value)} GiB", _sizes(answer.memory_parts)
    return (
        AnswerNode.metric("time", took, "the phase below, one step", answer.time_s, (_phase(answer),)),
        AnswerNode.metric("memory", used, "sum of its parts on one chip", answer.memory_bytes, parts),
        AnswerNode.metric("energy", f"{digits(joules)} J", power, answer.energy_j),
        AnswerNode.metric("cost", format_money(usd), price, answer.cost_usd),
    )


def _phase(answer: Prediction) -> AnswerNode:
    inputs, total = answer.inputs, answer.time_s.value
    dtype = inputs.get("arithmetic") or inputs.get("dtype") or "bf16"
    operators = tuple(_operator(row, total, answer.resolved, dtype) for row in largest_first(answer.breakdown))
    return AnswerNode(
        name=inputs.get("phase") or "step",
        level="phase",
        shown=format_duration(total),
        formula=f"sum of {len(operators)} operators, most first",
        parts=operators,
    )


def _operator(row: OperatorTime, total: float, chip: Resolved, dtype: str) -> AnswerNode:
    seconds = row.time_s.value
    return AnswerNode(
        name=row.op,
        level="operator",
        shown=f"{format_duration(seconds)}, {seconds / total:.0%}, bound by {row.bound}",
        formula=f"{row.count} x {format_duration(seconds / max(1, row.count))}",
        provenance=str(row.time_s.provenance),
        source=row.time_s.source,
        parts=tuple(_against_data_sheet(row, chip, row.arithmetic or dtype)),
    )


def _against_data_sheet(row: OperatorTime, chip: Resolved, dtype: str) -> list[AnswerNode]:
    """Bytes and operations with the time the data sheet would give them, at the rate of the format that the operator's
    kernel multiplies in: how far from the roof."""
    if row.bound in ("network", "host link") or row.kind in COLLECTIVES | EXCHANGES:
        return []  # what goes over links is not measured against the chip's own memory
    seconds, rate = row.time_s.value, chip.rates_flops.get(dtype, 0.0)
    roofs = (
        ("memory", "B", row.bytes, chip.memory_bandwidth_bytes_s, "memory_bandwidth_bytes_s"),
        ("arithmetic", "FLOP", row.flops, rate, f"rates_flops.{dtype}"),
    )
    named = {"memory": "", "arithmetic": f" in {dtype}"}
    parts = []
    for name, unit, work, peak, key in sorted(roofs, key=lambda roof: -roof[2] / max(roof[3], 1.0)):
        if work > 0 and peak > 0:
            least = work / peak
            reached = f"; {least / seconds:.0%} of that rate is reached" if seconds > 0 else ""
            formula = f"{format_duration(least)} at the data sheet's {scaled(peak, unit)}/s{named[name]}{reached}"
            source = chip.sources.get(key, "")
            parts.append(
                AnswerNode(name=name, shown=scaled(work, unit), formula=formula, provenance="formula", source=source)
            )
    return parts


def _sizes(parts: Mapping[str, float]) -> tuple[AnswerNode, ...]:
    return tuple(AnswerNode(name=name, shown=f"{gib(size)} GiB") for name, size in parts.items())


def _fit(answer: Fit) -> tuple[AnswerNode, ...]:
    blocks = answer.kv_blocks
    each = format_bytes(answer.parts.get("kv", 0.0) / blocks if blocks else 0.0)
    usable = f"{gib(answer.usable_bytes)} of {gib(answer.total_bytes)} GiB usable"
    first = "weights, activations and runtime first; the KV cache gets the rest"
    held = f"{format_count(answer.kv_tokens)} tokens"
    return (
        AnswerNode.metric("memory", usable, first, parts=_sizes(answer.parts)),
        AnswerNode.metric("cache", held, f"{format_count(blocks)} blocks of {each}"),
    )


def _served(answer: ServingReport, step: Step) -> tuple[AnswerNode, ...]:
    ttft, waiting, tpot = (known(times.get("mean")) for times in (answer.ttft_s, answer.queue_s, answer.tpot_s))
    work = None if ttft is None or waiting is None else ttft - waiting
    first = (
        AnswerNode(name="waiting", shown=seconds_word(waiting), formula="arrival to the first step"),
        AnswerNode(name="prefill and delivery", shown=seconds_word(work), formula="TTFT - queueing"),
    )
    tokens = answer.output_tokens_per_s
    batch = max(1, round(min(tokens * (tpot or 0.0), MOST_SEQUENCES)))
    each = answer.makespan_s / answer.requests
    context = max(0, int(min((answer.total_tokens_per_s - tokens / 2) * each, MOST_TOKENS)))
    typical = step(
        {name: answer.inputs[name] for name in DEPLOYED if answer.inputs.get(name) is not None}, batch, context
    )
    usual = f"typical: {plural(batch, 'sequence')} at context {context:,}"
    span, steps = format_duration(answer.makespan_s), format_count(answer.steps)
    return (
        AnswerNode.metric("TTFT", _times(answer.ttft_s), "queueing + prefill steps + delivery", parts=first),
        AnswerNode(
            name="TPOT",
            level="metric",
            shown=_times(answer.tpot_s),
            formula=f"decode steps, lengthened by prefills in the same step; {usual}",
            provenance="simulated",
            parts=(_phase(typical),) if typical else (),
        ),
        AnswerNode(
            name="throughput",
            level="metric",
            shown=f"{format_count(tokens)} output tokens/s",
            formula=f"busy {answer.busy_fraction:.0%} of {span} in {steps} steps",
            provenance="simulated",
        ),
    )


def _times(times: Mapping[str, float | None]) -> str:
    return f"mean {seconds_word(times.get('mean'))}, p90 {seconds_word(times.get('p90'))}"


def _verified(answer: Verified) -> tuple[AnswerNode, ...]:
    conditions = ", ".join(f"{name} {value}" for name, value in answer.conditions.items())
    return tuple(
        AnswerNode(
            name=part["what"] or part["part"],
            level="metric",
            shown=f"{value_word(part, 'predicted')} predicted, {value_word(part, 'measured')} measured",
            formula=f"error {part['error']:+.1%}" if part["error"] is not None else "",
            provenance="measured",
            source=conditions,
        )
        for part in answer.parts
    )
