"""An answer's JSON as a tree of nodes, down to formulas and sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnomon.errors import InputError
from gnomon.report.answer_shapes import shape_of
from gnomon.report.intact import check
from gnomon.report.nodes import AnswerNode, metric
from gnomon.report.opened_training import trained, trained_plan
from gnomon.report.opened_tried import tried
from gnomon.report.text import digits, gib, known_chip, plural, scaled
from gnomon.spec import Chip
from gnomon.units import format_bytes, format_count, format_duration, format_money

Payload = Mapping[str, Any]
Step = Callable[[Mapping[str, Any], int, int], Payload | None]
"""Predicts one decode step of a deployment at a batch and a context."""

MOST_SEQUENCES = 1_000_000
MOST_TOKENS = 1e9
"""A made-up answer may claim any number; no step has more."""


def opened(kind: str, payload: Payload, step: Step, where: str = "the answer") -> tuple[AnswerNode, ...]:
    """The metrics of an answer from that file or run. `step` opens what stands behind a served token."""
    openers = {
        "predict": _prediction,
        "fit": _fit,
        "simulate.serve": lambda p: _served(p, step),
        "plan.serve": lambda p: _planned(p, step),
        "simulate.train": trained,
        "plan.train": trained_plan,
        "try": tried,
        "verify": _verified,
    }
    if kind not in openers:
        what = kind or "this file"
        hint = f"Known: {', '.join(openers)}."
        raise InputError(f"'{what}' is no answer that can be opened", where=where, hint=hint)
    check(payload, shape_of(kind, payload), where)
    try:
        return openers[kind](payload)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        raise InputError("the answer is damaged", where=where, hint="Ask for it again.") from None


def opens(payload: Payload) -> bool:
    """Whether an answer can be opened."""
    try:
        return bool(opened(kind_of(payload), payload, lambda *_: None))
    except InputError:
        return False


def kind_of(payload: Payload) -> str:
    """The command whose answer it is, by its schema."""
    return str(payload.get("schema", "")).removeprefix("gnomon.").partition("/")[0]


def _prediction(payload: Payload) -> tuple[AnswerNode, ...]:
    time, seconds = payload["time_s"], float(payload["time_s"]["value"])
    usd, joules = float(payload["cost_usd"]["value"]), float(payload["energy_j"]["value"])
    used = float(payload["memory_bytes"]["value"])
    return (
        metric("time", format_duration(seconds), "the phase below, one step", time, (_phase(payload),)),
        metric("memory", f"{gib(used)} GiB", "sum of its parts on one chip", payload["memory_bytes"], _sizes(payload)),
        metric(
            "energy",
            f"{digits(joules)} J",
            f"{joules / seconds if seconds else 0:,.0f} W for {format_duration(seconds)}",
            payload["energy_j"],
        ),
        metric(
            "cost",
            format_money(usd),
            f"{format_money(usd / seconds * 3600) if seconds else '-'}/h for {format_duration(seconds)}",
            payload["cost_usd"],
        ),
    )


def _phase(payload: Payload) -> AnswerNode:
    inputs = payload["inputs"]
    chip = known_chip(str(inputs.get("on", "")))
    rows = sorted(payload["breakdown"], key=lambda row: -float(row["time_s"]["value"]))
    total = float(payload["time_s"]["value"])
    dtype = str(inputs.get("arithmetic") or inputs.get("dtype") or "bf16")
    operators = tuple(_operator(row, total, chip, dtype) for row in rows)
    name = str(inputs.get("phase", "step"))
    return AnswerNode(
        name=name,
        level="phase",
        shown=format_duration(total),
        formula=f"sum of {len(operators)} operators, most first",
        parts=operators,
    )


def _operator(row: Payload, total: float, chip: Chip | None, dtype: str) -> AnswerNode:
    time = row["time_s"]
    seconds = float(time["value"])
    share = f", {seconds / total:.0%}" if total else ""
    return AnswerNode(
        name=str(row["op"]),
        level="operator",
        shown=f"{format_duration(seconds)}{share}, bound by {row['bound']}",
        formula=f"{row['count']} x {format_duration(seconds / max(1, int(row['count'])))}",
        provenance=str(time["provenance"]),
        source=str(time["source"]),
        parts=tuple(_against_data_sheet(row, seconds, chip, dtype)),
    )


def _against_data_sheet(row: Payload, seconds: float, chip: Chip | None, dtype: str) -> list[AnswerNode]:
    """Bytes and operations with the time the data sheet would give them, at the rate of the format that the operator's
    kernel multiplies in: how far from the roof."""
    from gnomon.cost.machine import COLLECTIVES, EXCHANGES

    if chip is None or row["bound"] == "network" or row.get("kind") in COLLECTIVES | EXCHANGES:
        return []  # what goes over links is not measured against the chip's own memory
    dtype = str(row.get("arithmetic") or dtype)
    rate = chip.rates_flops.get(dtype, 0.0)
    roofs = (
        ("memory", "B", float(row["bytes"]), chip.memory_bandwidth_bytes_s, "memory_bandwidth_bytes_s"),
        ("arithmetic", "FLOP", float(row["flops"]), rate, f"rates_flops.{dtype}"),
    )
    named = {"memory": "", "arithmetic": f" in {dtype}"}
    parts = []
    for name, unit, work, peak, key in sorted(roofs, key=lambda roof: -roof[2] / max(roof[3], 1.0)):
        if work > 0 and peak > 0:
            least = work / peak
            reached = f"; {least / seconds:.0%} of that rate is reached" if seconds > 0 else ""
            sheet = f"the data sheet's {scaled(peak, unit)}/s{named[name]}"
            parts.append(
                AnswerNode(
                    name=name,
                    level="part",
                    shown=scaled(work, unit),
                    formula=f"{format_duration(least)} at {sheet}{reached}",
                    provenance="formula",
                    source=chip.sources.get(key, ""),
                )
            )
    return parts


def _sizes(payload: Payload) -> tuple[AnswerNode, ...]:
    parts = payload.get("memory_parts", payload.get("parts", {}))
    return tuple(AnswerNode(name=name, level="part", shown=f"{gib(float(size))} GiB") for name, size in parts.items())


def _fit(payload: Payload) -> tuple[AnswerNode, ...]:
    usable, total = float(payload["usable_bytes"]), float(payload["total_bytes"])
    memory = AnswerNode(
        name="memory",
        level="metric",
        shown=f"{gib(usable)} of {gib(total)} GiB usable",
        formula="weights, activations and runtime first; the cache takes the rest",
        parts=_sizes(payload),
    )
    tokens = AnswerNode(
        name="cache",
        level="metric",
        shown=f"{format_count(payload['kv_tokens'])} tokens",
        formula=f"{format_count(payload['kv_blocks'])} blocks of {format_bytes(_block(payload))}",
    )
    return memory, tokens


def _block(payload: Payload) -> float:
    blocks = int(payload["kv_blocks"])
    return float(payload["parts"].get("kv", 0.0)) / blocks if blocks > 0 else 0.0


def _served(payload: Payload, step: Step) -> tuple[AnswerNode, ...]:
    inputs = payload["inputs"]
    ttft, waiting = payload["ttft_s"]["mean"], payload["queue_s"]["mean"]
    tpot = payload["tpot_s"]["mean"]
    tokens, span = float(payload["output_tokens_per_s"]), float(payload["makespan_s"])
    decodes = tokens * (tpot or 0.0)
    each = span / int(payload["requests"])
    context = max(0, int(min((float(payload["total_tokens_per_s"]) - tokens / 2) * each, MOST_TOKENS)))
    return (
        AnswerNode(
            name="TTFT",
            level="metric",
            shown=f"mean {_time(ttft)}, p90 {_time(payload['ttft_s']['p90'])}",
            formula="waiting + the steps of the prompt + delivery",
            parts=(
                AnswerNode(name="waiting", level="part", shown=_time(waiting), formula="arrival to the first step"),
                AnswerNode(
                    name="prompt and delivery",
                    level="part",
                    shown=_time(ttft - waiting if None not in (ttft, waiting) else None),
                    formula="TTFT less waiting",
                ),
            ),
        ),
        _tpot(payload["tpot_s"], _deployed(inputs), max(1, round(min(decodes, MOST_SEQUENCES))), context, step),
        _throughput(payload),
    )


def _tpot(times: Payload, deployment: Mapping[str, Any], batch: int, context: int, step: Step) -> AnswerNode:
    typical = step(deployment, batch, context)
    parts = (_phase(typical),) if typical else ()
    return AnswerNode(
        name="TPOT",
        level="metric",
        shown=f"mean {_time(times['mean'])}, p90 {_time(times['p90'])}",
        formula=f"decode steps, lengthened by prompts beside them; typical: {plural(batch, 'sequence')} at context "
        f"{context:,}",
        provenance="simulated",
        parts=parts,
    )


def _throughput(payload: Payload) -> AnswerNode:
    return AnswerNode(
        name="throughput",
        level="metric",
        shown=f"{format_count(payload['output_tokens_per_s'])} output tokens/s",
        formula=f"busy {float(payload['busy_fraction']):.0%} of {format_duration(payload['makespan_s'])} "
        f"in {format_count(payload['steps'])} steps",
        provenance="simulated",
    )


def _deployed(inputs: Payload) -> dict[str, Any]:
    """The arguments that name the same deployment again."""
    names = ("model", "on", "tp", "pp", "ep", "cp", "dp", "dtype", "kv_dtype", "engine", "settings", "techniques")
    return {name: inputs[name] for name in names if inputs.get(name) is not None}


def _planned(payload: Payload, step: Step) -> tuple[AnswerNode, ...]:
    best, plan = payload["best"], payload["best"]["plan"]
    load, replicas = plan.get("load") or {}, int(plan["replicas"])
    tp = int(plan["strategy"]["tp"])
    engine = plan["engine"]
    deployment = {
        "model": plan["model"],
        "on": f"{plan['chip']}:{tp}",
        "dtype": plan["dtype"],
        "kv_dtype": plan["kv_dtype"],
        "tp": tp,
        "ep": int(plan["strategy"].get("ep", 1)),
        "engine": f"{engine['name']}@{engine['version']}" if engine.get("version") else engine["name"],
        "settings": dict(engine.get("settings") or {}),
        "techniques": list(plan["strategy"].get("techniques") or ()),
    }
    decodes = float(best["output_tokens_per_s"]) / replicas * float(best["tpot_s"].get("mean") or 0.0)
    context = int(min((load.get("input_tokens") or 1024) + (load.get("output_tokens") or 256) / 2, MOST_TOKENS))
    return (
        _choice(payload),
        _tpot(best["tpot_s"], deployment, max(1, round(min(decodes, MOST_SEQUENCES))), context, step),
        AnswerNode(
            name="cost",
            level="metric",
            shown="-" if best.get("usd_per_mtok") is None else f"{format_money(best['usd_per_mtok'])}/Mtok",
            formula=f"{format_money(best['usd_h'])}/h over {format_count(best['output_tokens_per_s'])} output tokens/s",
            source=_price_source(str(plan["chip"])),
        ),
    )


def _choice(payload: Payload) -> AnswerNode:
    best = payload["best"]
    goals = [
        AnswerNode(name=name, level="part", shown=f"{float(margin):.0%} of the goal to spare")
        for name, margin in (best.get("margin") or {}).items()
        if isinstance(margin, (int, float))
    ]
    rejected = [
        AnswerNode(name="not chosen", level="part", shown=f"{format_count(count)} plans", formula=str(reason))
        for reason, count in (payload.get("rejected") or {}).items()
    ]
    second = []
    for name, key in (("runner-up", "runner_up"), ("next cheaper", "next_cheaper")):
        other = payload.get(key) or {}
        if other.get("why"):
            label = str(other.get("label") or "none")
            second.append(AnswerNode(name=name, level="part", shown=label, formula=str(other["why"])))
    return AnswerNode(
        name="plan",
        level="metric",
        shown=str(best["label"]),
        formula=f"best of {format_count(payload['plans_considered'])}; binding: {payload['binding'] or 'nothing'}",
        parts=tuple(goals + second + rejected),
    )


def _price_source(chip: str) -> str:
    found = known_chip(chip)
    return found.sources.get("price_usd_h", "") if found else ""


def _verified(payload: Payload) -> tuple[AnswerNode, ...]:
    return tuple(
        AnswerNode(
            name=str(part["what"] or part["part"]),
            level="metric",
            shown=f"{_figure(part, 'predicted')} predicted, {_figure(part, 'measured')} measured",
            formula=f"off by {float(part['error']):+.1%}" if part["error"] is not None else "",
            provenance="measured",
            source=", ".join(f"{name} {value}" for name, value in payload["conditions"].items()),
        )
        for part in payload["parts"]
    )


def _figure(part: Payload, key: str) -> str:
    if part["unit"] == "bytes":
        return format_bytes(part[key])
    return _time(part[key]) if part["unit"] == "s" else f"{digits(float(part[key]))} {part['unit']}"


def _time(value: float | None) -> str:
    return "-" if value is None else format_duration(value)
