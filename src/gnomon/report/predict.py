"""The text of `gnomon predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnomon.report.figures import Headline, interval
from gnomon.report.shortage import IF_IT_FITTED, shortage_words
from gnomon.report.text import (
    Notes,
    Style,
    a_load,
    band,
    deployed,
    digits,
    flag,
    fleet,
    gib,
    headed,
    next_steps,
    part,
    scaled,
    words,
)
from gnomon.spec.answers import ModulePrediction, OperatorTime, Prediction
from gnomon.spec.estimate import Estimate
from gnomon.units import format_count, format_duration, format_money

LONGEST = 1280
"""Tokens of a sequence where the model's own longest is not known."""
MOST_LINES = 12
FEW_MODULES, DEEPEST = 6, 4
LIMITS = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "host": "host scheduling and kernel launches",
    "network": "the links between chips",
    "host link": "the link to the host's memory",
    "latency": "the latency of small kernels",
    "efficiency": "kernel efficiency",
    "waiting": "waiting for other stages and gradient reduction",
}


def render(answer: Prediction, style: Style) -> str:
    lines = [style.strong(answer.title), *_how(answer.inputs), ""]
    lines += [*_verdict(answer, style), *_answer(answer, style), ""]
    for title, operators in breakdowns(answer):
        lines += [*_breakdown(operators, answer.time_s.value, style, title), ""]
    return "\n".join([*lines, *_memory(answer), "", *_next(answer)])


def _how(inputs: Mapping[str, Any]) -> list[str]:
    """The parallelism and recipe of a training step."""
    if "zero" not in inputs:
        return []
    from gnomon.report.train import described

    return [described(inputs)]


def _verdict(answer: Prediction, style: Style) -> list[str]:
    """The reason where it does not fit."""
    if answer.fits:
        return []
    return [f"  {style.bad('does not fit')}: {shortage_line(answer)}", f"  {IF_IT_FITTED}", ""]


def shortage_line(answer: Prediction) -> str:
    """What is short of a step that does not fit."""
    cause = answer.cause
    if cause is None:  # an answer of an older version
        return f"memory {gib(answer.memory_bytes.value)} GiB"
    return shortage_words(cause, answer.inputs, answer.resolved, answer.memory_parts, answer.memory_usable_bytes)


def figures(answer: Prediction) -> list[Headline]:
    """The time first, then what it comes to for each token."""
    time = answer.time_s
    seconds, rate = time.value, answer.tokens_per_s
    tokens = rate * seconds
    unit, short = ("sample", "M samples") if answer.inputs.get("unit") == "sample" else ("token", "Mtok")
    found = [
        Headline("time", format_duration(seconds), band(time)),
        Headline("throughput", f"{digits(rate)} {unit}s/s"),
    ]
    if answer.clock_slowdown > 1:
        found.append(Headline("clock", f"clock at {1 / answer.clock_slowdown:.0%} of the highest, by the power limit"))
    if tokens <= 0:
        return found
    energy, carbon, cost = answer.energy_j, answer.co2_g, answer.cost_usd
    usd = cost.value
    found.append(Headline("energy", f"{_two(energy.value / tokens)} J/{unit}", interval(energy, _two, 1 / tokens)))
    if carbon:
        scale = 1e3 / tokens
        found.append(Headline("carbon", f"{_two(carbon.value * scale)} mg CO2/{unit}", interval(carbon, _two, scale)))
    price = f"{format_money(usd / tokens * 1e6)}/{short} at {format_money(usd / seconds * 3600)}/h"
    return [*found, Headline("cost", price, interval(cost, format_money, 1e6 / tokens))]


def _two(value: float) -> str:
    return digits(value, 2)


def _answer(answer: Prediction, style: Style) -> list[str]:
    time, *others = figures(answer)
    shown = [style.strong(time.value), time.band, *(figure.value for figure in others)]
    return [f"  {'      '.join(filter(None, shown))}", f"  {bound_words(answer)}", *parallel_lines(answer)]


def bound_words(answer: Prediction) -> str:
    """What the step is bound by, for how much of the time, and how near it comes to the data sheet."""
    limit = LIMITS.get(answer.bound, answer.bound)
    share = f"{answer.bound_share:.0%} of the time"
    return f"bound by {limit} {share}{_reached(answer, answer.time_s.value)}"


def parallel_lines(answer: Prediction) -> list[str]:
    """What several ranks make of it."""
    found, lines = answer.parallel or {}, []
    if "pipeline" in found:
        pipeline = found["pipeline"]
        layers = ", ".join(map(str, pipeline["layers"]))
        busiest = format_duration(pipeline["busiest_stage_s"])
        most = format_count(pipeline["most_tokens_per_s"])
        lines.append(f"  one batch through a pipeline of {layers} layers; the busiest stage takes {busiest}:")
        lines.append(f"  at most {most} tokens/s with {pipeline['batches']} such batches in flight")
    if "experts" in found:
        ranks, over = found["experts"]["ranks"], float(found["experts"]["busiest_over_mean"])
        chosen = "by their popularity" if found["experts"].get("uneven") else "uniformly at random"
        lines.append(f"  experts are chosen {chosen}: the busiest of {ranks} ranks gets {over:.2f} x the mean")
    return lines


def _reached(answer: Prediction, seconds: float) -> str:
    """How much of the data sheet's bandwidth or rate the step uses."""
    chip, dtype = answer.resolved, answer.inputs.get("arithmetic", answer.inputs["dtype"])
    if answer.bound == "memory":
        work, peak, unit = sum(row.bytes for row in answer.breakdown), chip.memory_bandwidth_bytes_s, "B/s"
    elif answer.bound == "compute":
        work, peak, unit = sum(row.flops for row in answer.breakdown), chip.rates_flops.get(dtype, 0.0), "FLOP/s"
    else:
        return ""
    if not peak or not seconds:
        return ""
    rate = work / seconds
    return f": {scaled(rate, unit)} over the step, {rate / peak:.0%} of the data sheet's {scaled(peak, unit)}"


def breakdowns(answer: Prediction) -> list[tuple[str, Sequence[OperatorTime]]]:
    """Where the time goes: operators; of a traced module its kernels, and the parts it is made of."""
    if not isinstance(answer, ModulePrediction):
        return [("where the time goes", answer.breakdown)]
    waiting = [row for row in answer.breakdown if row.kind == "host"]
    return [
        ("where the time goes, by kernel", [*answer.operators, *waiting]),
        ("by module", by_depth(answer.breakdown)),
    ]


def largest_first(rows: Sequence[OperatorTime]) -> list[OperatorTime]:
    return sorted(rows, key=lambda row: -row.time_s.value)


def by_depth(rows: Sequence[OperatorTime]) -> list[OperatorTime]:
    """Modules as deep as it takes to see a few of them, each with all that is below it; a sum has no interval, for
    the JSON does not say how far its parts err together."""
    depth = 1
    while depth < DEEPEST and len({_cut(row.op, depth) for row in rows}) < FEW_MODULES:
        depth += 1
    found: dict[str, OperatorTime] = {}
    for row in largest_first(rows):
        name, time = _cut(row.op, depth), row.time_s
        if name in found:
            first = found[name].time_s
            time = Estimate.exact(first.value + time.value, first.source, first.provenance)
        found[name] = replace(found.get(name, row), op=name, time_s=time)
    return list(found.values())


def _cut(path: str, depth: int) -> str:
    name, backward, _ = path.partition(" backward")
    return ".".join(name.split(".")[:depth]) + backward


def _breakdown(operators: Sequence[OperatorTime], total: float, style: Style, title: str) -> list[str]:
    ordered = largest_first(operators)
    notes = Notes()
    rows = [(title, "time", "share", "bound by", "from")]
    rows += [_row(row, total, notes) for row in ordered[:MOST_LINES]]
    rest = ordered[MOST_LINES:]
    if rest:
        seconds = sum(row.time_s.value for row in rest)
        rows.append((f"{len(rest)} more", format_duration(seconds), _percent(seconds, total), "", ""))
    return [*headed(rows, "<>><<", style), *(style.faint(f"  {note}") for note in notes.lines())]


def _row(row: OperatorTime, total: float, notes: Notes) -> tuple[str, str, str, str, str]:
    time, seconds = row.time_s, row.time_s.value
    origin = ", ".join(filter(None, [time.provenance, notes.short(time.source)]))
    return row.op, format_duration(seconds), _percent(seconds, total), row.bound, origin


def _percent(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total > 0 else ""


def _memory(answer: Prediction) -> list[str]:
    used, names = answer.memory_bytes.value, {"kv": "KV"}
    listed = ", ".join(f"{names.get(name, name)} {part(size)}" for name, size in answer.memory_parts.items() if size)
    limit = gib(answer.memory_total_bytes) if answer.fits else gib(answer.memory_usable_bytes)
    return [f"  memory {gib(used)} of {limit} GiB{'' if answer.fits else ' usable'}: {listed}"]


def _next(answer: Prediction) -> list[str]:
    inputs, resolved = answer.inputs, answer.resolved
    steps = [words("gnomon", "explain", "last", "--op", row.op) for row in largest_first(answer.breakdown)[:1]]
    if isinstance(answer, ModulePrediction):
        return next_steps(*steps, *_other_ways(inputs))
    if inputs["phase"] == "train":
        from gnomon.report.train import planned_again, simulated_again

        again = simulated_again if answer.fits else planned_again
        return next_steps(*steps, again({**inputs, "tokens": None}, inputs["on"]))
    steps.append(words("gnomon", "fit", *deployed(inputs, resolved)))
    if "kind" in inputs:
        return next_steps(*steps)
    load = (*a_load(resolved.model_context or LONGEST), "--slo", "ttft_p90=1s,tpot_p90=50ms")
    plan = ("gnomon", "plan", "serve", inputs["model"], "--fleet", fleet(inputs["on"], resolved), *load)
    return next_steps(*steps, words(*plan))


def _other_ways(inputs: Mapping[str, Any]) -> list[str]:
    """The same module trained, or launched as one graph: only where a script can be asked again."""
    if ".py:" not in str(inputs["model"]):
        return []
    asked = inputs.get("asked") or {}
    again = ["gnomon", "predict", inputs["model"], "--on", inputs["on"]]
    again += [*flag("--dtype", asked.get("dtype")), *flag("--batch", asked.get("batch"))]
    for name, value in (asked.get("settings") or {}).items():
        again += ["--set", f"{name}={value}"] if name != "launch" else []
    trained = words(*again, "--phase", "train") if inputs["phase"] == "forward" else ""
    graph = (*flag("--steps", asked.get("steps")), "--phase", inputs["phase"], "--set", "launch=graph")
    captured = words(*again, *graph) if inputs["launch"] == "eager" else ""
    return [line for line in (trained, captured) if line]
