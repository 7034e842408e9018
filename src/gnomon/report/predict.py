"""The text of `gnomon predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    known_chip,
    longest_of,
    next_steps,
    part,
    scaled,
    table,
    words,
)
from gnomon.units import format_count, format_duration, format_money

MOST_LINES = 12
FEW_MODULES, DEEPEST = 6, 4
LIMITS = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "host": "the host's scheduling and launches",
    "network": "the links between chips",
    "latency": "the latency of small kernels",
    "efficiency": "kernel efficiency",
    "waiting": "waiting for other stages and for sums of gradients",
}


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), *_how(payload["inputs"]), ""]
    lines += [*_verdict(payload, style), *_answer(payload, style), ""]
    for title, operators in breakdowns(payload):
        lines += [*_breakdown(operators, float(payload["time_s"]["value"]), style, title), ""]
    return "\n".join([*lines, *_memory(payload), "", *_next(payload)])


def _how(inputs: Mapping[str, Any]) -> list[str]:
    """How a training step is carried out."""
    if "zero" not in inputs:
        return []
    from gnomon.report.train import in_words

    return [in_words(inputs)]


def _verdict(payload: Mapping[str, Any], style: Style) -> list[str]:
    """Said first where it does not fit, with the reason."""
    if payload.get("fits", True):
        return []
    return [f"  {style.bad('does not fit')}: {why_not(payload)}", f"  {IF_IT_FITTED}", ""]


def why_not(payload: Mapping[str, Any]) -> str:
    """What is short of a step that does not fit."""
    cause = payload.get("cause")
    used, usable = float(payload["memory_bytes"]["value"]), payload.get("memory_usable_bytes")
    why = f"memory {gib(used)} GiB"  # answers that older versions stored do not say what is short
    if cause and usable:
        why = shortage_words(cause, payload["inputs"], payload["memory_parts"], usable)
    return why


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """The time first, then what it comes to for each token."""
    time = payload["time_s"]
    seconds, rate = float(time["value"]), float(payload["tokens_per_s"])
    tokens = rate * seconds
    unit, short = ("sample", "M samples") if payload["inputs"].get("unit") == "sample" else ("token", "Mtok")
    found = [
        Headline("time", format_duration(seconds), band(time)),
        Headline("throughput", f"{digits(rate)} {unit}s/s"),
    ]
    if tokens <= 0:
        return found
    energy, carbon, cost = payload["energy_j"], payload.get("co2_g"), payload["cost_usd"]
    usd = float(cost["value"])
    found.append(Headline("energy", f"{_two(energy['value'] / tokens)} J/{unit}", interval(energy, _two, 1 / tokens)))
    if carbon:
        scale = 1e3 / tokens
        found.append(
            Headline("carbon", f"{_two(carbon['value'] * scale)} mg CO2/{unit}", interval(carbon, _two, scale))
        )
    price = f"{format_money(usd / tokens * 1e6)}/{short} at {format_money(usd / seconds * 3600)}/h"
    return [*found, Headline("cost", price, interval(cost, format_money, 1e6 / tokens))]


def _two(value: float) -> str:
    return digits(float(value), 2)


def _answer(payload: Mapping[str, Any], style: Style) -> list[str]:
    time, *others = figures(payload)
    shown = [style.strong(time.value), time.band, *(figure.value for figure in others)]
    return [f"  {'      '.join(filter(None, shown))}", f"  {bound_words(payload)}", *parallel_lines(payload)]


def bound_words(payload: Mapping[str, Any]) -> str:
    """What the step is bound by, for how much of the time, and how near it comes to the data sheet."""
    limit = LIMITS.get(payload["bound"], payload["bound"])
    share = f"{float(payload['bound_share']):.0%} of the time"
    return f"bound by {limit} {share}{_reached(payload, float(payload['time_s']['value']))}"


def parallel_lines(payload: Mapping[str, Any]) -> list[str]:
    """What several ranks make of it."""
    found, lines = payload.get("parallel") or {}, []
    if "pipeline" in found:
        pipeline = found["pipeline"]
        layers = ", ".join(map(str, pipeline["layers"]))
        pace = format_duration(pipeline["busiest_stage_s"])
        most = format_count(pipeline["most_tokens_per_s"])
        lines.append(f"  one batch alone in a pipeline of {layers} layers; the busiest stage takes {pace}:")
        lines.append(f"  at most {most} tokens/s with {pipeline['batches']} such batches under way")
    if "experts" in found:
        ranks, over = found["experts"]["ranks"], float(found["experts"]["busiest_over_mean"])
        lines.append(
            f"  tokens choose experts evenly at random: the busiest of {ranks} ranks gets {over:.2f} x the mean"
        )
    return lines


def _reached(payload: Mapping[str, Any], seconds: float) -> str:
    """How much of the data sheet's bandwidth or rate the whole step uses."""
    inputs = payload["inputs"]
    chip, dtype = known_chip(inputs["on"]), inputs.get("arithmetic", inputs["dtype"])
    if chip is None:
        return ""
    roofs = {
        "memory": ("bytes", chip.memory_bandwidth_bytes_s, "B/s"),
        "compute": ("flops", chip.rates_flops.get(dtype, 0.0), "FLOP/s"),
    }
    key, peak, unit = roofs.get(payload["bound"], ("", 0.0, ""))
    if not peak or not seconds:
        return ""
    rate = sum(float(row[key]) for row in payload["breakdown"]) / seconds
    return f": {scaled(rate, unit)} over the step, {rate / peak:.0%} of the data sheet's {scaled(peak, unit)}"


def breakdowns(payload: Mapping[str, Any]) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Where the time goes: operators; of a traced module its kernels, and the parts it is made of."""
    if "operators" not in payload:
        return [("where the time goes", payload["breakdown"])]
    waiting = [row for row in payload["breakdown"] if row["kind"] == "host"]
    return [
        ("where the time goes, by kernel", [*payload["operators"], *waiting]),
        ("by module", by_depth(payload["breakdown"])),
    ]


def by_depth(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Modules as deep as it takes to see a few of them, each with all that is below it; a sum has no interval, for the
    JSON does not say how far its parts err together."""
    depth = 1
    while depth < DEEPEST and len({_cut(row["op"], depth) for row in rows}) < FEW_MODULES:
        depth += 1
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: -float(row["time_s"]["value"])):
        name, time = _cut(row["op"], depth), row["time_s"]
        if name not in found:
            found[name] = dict(row) | {"op": name, "time_s": dict(time)}
        else:
            total = found[name]["time_s"]["value"] + time["value"]
            found[name]["time_s"] |= {"value": total, "low": total, "high": total}
    return list(found.values())


def _cut(path: str, depth: int) -> str:
    name, backward, _ = path.partition(" backward")
    return ".".join(name.split(".")[:depth]) + backward


def _breakdown(operators: Sequence[Mapping[str, Any]], total: float, style: Style, title: str) -> list[str]:
    ordered = sorted(operators, key=lambda row: -float(row["time_s"]["value"]))
    notes = Notes()
    rows = [(title, "time", "share", "bound by", "from")]
    rows += [_row(row, total, notes) for row in ordered[:MOST_LINES]]
    rest = ordered[MOST_LINES:]
    if rest:
        seconds = sum(float(row["time_s"]["value"]) for row in rest)
        rows.append((f"{len(rest)} more", format_duration(seconds), _percent(seconds, total), "", ""))
    lines = table(rows, "<>><<")
    return [style.faint(lines[0]), *lines[1:], *(style.faint(f"  {note}") for note in notes.lines())]


def _row(row: Mapping[str, Any], total: float, notes: Notes) -> tuple[str, str, str, str, str]:
    time = row["time_s"]
    seconds = float(time["value"])
    origin = ", ".join(filter(None, [time["provenance"], notes.short(time["source"])]))
    return row["op"], format_duration(seconds), _percent(seconds, total), row["bound"], origin


def _percent(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total > 0 else ""


def _memory(payload: Mapping[str, Any]) -> list[str]:
    used, parts = float(payload["memory_bytes"]["value"]), payload["memory_parts"]
    names = {"kv": "KV"}
    listed = ", ".join(f"{names.get(name, name)} {part(size)}" for name, size in parts.items() if size)
    total = float(payload["memory_total_bytes"])
    if payload.get("fits", used <= total):
        return [f"  memory {gib(used)} of {gib(total)} GiB: {listed}"]
    # Answers that older versions stored do not say what was usable.
    limit = (
        f"{gib(payload['memory_usable_bytes'])} GiB usable" if "memory_usable_bytes" in payload else f"{gib(total)} GiB"
    )
    return [f"  memory {gib(used)} of {limit}: {listed}"]


def _next(payload: Mapping[str, Any]) -> list[str]:
    inputs = payload["inputs"]
    largest = max(payload["breakdown"], key=lambda row: float(row["time_s"]["value"]), default=None)
    steps = [words("gnomon", "explain", "last", "--op", largest["op"])] if largest else []
    if "operators" in payload:
        return next_steps(*steps, *_other_ways(inputs))
    if inputs["phase"] == "train":
        return next_steps(*steps, _as_simulated(inputs) if payload["fits"] else _as_planned(inputs))
    if "kind" in inputs:
        return next_steps(*steps, words("gnomon", "fit", *deployed(inputs)))
    plan = (*a_load(longest_of(inputs["model"])), "--slo", "ttft_p90=1s,tpot_p90=50ms")
    steps.append(words("gnomon", "fit", *deployed(inputs)))
    steps.append(words("gnomon", "plan", "serve", inputs["model"], "--fleet", fleet(inputs["on"]), *plan))
    return next_steps(*steps)


def _as_planned(inputs: Mapping[str, Any]) -> str:
    """A search for a plan of the same step that fits."""
    said = ["--cluster", inputs["on"], "--seq", inputs["tokens"], "--global-batch", inputs["batch"]]
    said += flag("--optimizer", inputs.get("optimizer"), "adamw")
    return words(
        "gnomon", "plan", "train", inputs["model"], *said, "--dtype", inputs["dtype"], "--engine", inputs["engine"]
    )


def _as_simulated(inputs: Mapping[str, Any]) -> str:
    """The same step as `gnomon simulate train` takes it."""
    said = ["--on", inputs["on"], "--seq", inputs["tokens"], "--global-batch", inputs["batch"]]
    defaults = {"tp": 1, "pp": 1, "vp": 1, "cp": 1, "ep": 1, "micro_batch": 1, "zero": 0, "recompute": "none"}
    defaults |= {"schedule": "interleaved" if inputs["vp"] > 1 else "1f1b", "optimizer": "adamw"}
    defaults |= {"cp_comm": "p2p", "expert_tp": 0}
    for name, default in defaults.items():
        said += flag(f"--{name.replace('_', '-')}", inputs.get(name), default)
    said += ["--no-sequence-parallel"] if inputs["tp"] > 1 and not inputs["sequence_parallel"] else []
    return words(
        "gnomon", "simulate", "train", inputs["model"], *said, "--dtype", inputs["dtype"], "--engine", inputs["engine"]
    )


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
    captured = words(*again, "--phase", inputs["phase"], "--set", "launch=graph") if inputs["launch"] == "eager" else ""
    return [line for line in (trained, captured) if line]
