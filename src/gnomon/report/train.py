"""The text of `gnomon simulate train`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.shortage import IF_IT_FITTED, shortage_words
from gnomon.report.text import Style, band, digits, flag, gib, next_steps, scaled, table, words
from gnomon.spec.chip import HALVES
from gnomon.units import format_count, format_duration, format_money, format_short_count, parse_count

Payload = Mapping[str, Any]
AFTER = {
    "gradient_reduction_s": "gradient reduction after the last pass",
    "optimizer_s": "optimizer",
    "weight_gather_s": "gathering of new weights",
    "waits_s": "waiting for checkpoints and barriers",
}
DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp")


def render(payload: Payload, style: Style) -> str:
    lines = [style.strong(payload["title"]), in_words(payload["inputs"]), "", *_answer(payload, style), ""]
    lines += [*_times(payload, style), "", *_memory(payload)]
    lines += ["", *run_lines(payload)] if payload["run"] else []
    return "\n".join([*lines, "", *_next(payload)])


def in_words(inputs: Payload) -> str:
    """How the step is carried out, in a line."""
    from gnomon.planning.training.search import expert_words

    degrees = [f"{name.upper()} {inputs[name]}" for name in DEGREES if inputs[name] > 1]
    said = [*(degrees or ["1 chip"]), f"micro-batch {inputs['micro_batch']}"]
    said += [f"{inputs['recompute']} recompute"] if inputs["recompute"] != "none" else []
    said += [f"ZeRO-{inputs['zero']}"] if inputs["zero"] or inputs["dp"] > 1 else []
    said += [inputs["schedule"]] if inputs["pp"] > 1 else []
    said += [expert_words(int(inputs.get("expert_tp") or 0))] if inputs.get("expert_tp") else []
    said += [f"keys by {inputs['cp_comm']}"] if inputs["cp"] > 1 and "cp_comm" in inputs else []
    said += ["sequence parallel"] if inputs["sequence_parallel"] and inputs["tp"] > 1 else []
    return ", ".join([*said, inputs["optimizer"], *inputs.get("techniques", ())])


def mfu_words(payload: Payload) -> str:
    """The peak is that of the format trained in; it is named where it is not the usual one."""
    dtype = payload["inputs"]["dtype"]
    return f"{float(payload['mfu']):.1%} MFU" + (f" of the {dtype} peak" if dtype not in HALVES else "")


def figures(payload: Payload) -> list[Headline]:
    """The step's time first, then how well it uses the chips."""
    time = payload["step_time_s"]
    return [
        Headline("step time", format_duration(time["value"]), band(time)),
        Headline("MFU", mfu_words(payload)),
        Headline("HFU", f"{float(payload['hfu']):.1%} HFU"),
        Headline("throughput", f"{digits(float(payload['tokens_per_s_per_gpu']))} tokens/s/GPU"),
    ]


def _answer(payload: Payload, style: Style) -> list[str]:
    time, *others = figures(payload)
    shown = [style.strong(f"{time.value} a step"), time.band, *(figure.value for figure in others)]
    spent = f"  {'      '.join(filter(None, shown))}"
    return [spent, f"  {_fits(payload, style)}"] if payload["fits"] else [*_does_not(payload, style), spent]


def _fits(payload: Payload, style: Style) -> str:
    return f"{style.good('fits')}: {fit_words(payload)}"


def _does_not(payload: Payload, style: Style) -> list[str]:
    """The verdict and what is short, before the figures that the step would have."""
    return [f"  {style.bad('does not fit')}: {fit_words(payload)}", f"  {IF_IT_FITTED}", ""]


def fit_words(payload: Payload) -> str:
    """How much memory is left to spare, or what is short."""
    if payload["fits"]:
        left = float(payload["usable_memory_bytes"]) - float(payload["peak_memory_bytes"]["value"])
        return f"{memory_range(payload)}, {gib(left)} GiB to spare"
    cause, parts, usable = payload.get("cause"), payload["memory_parts"], float(payload["usable_memory_bytes"])
    fullest = max(parts, key=lambda rank: sum(rank.values()))
    over = float(payload["peak_memory_bytes"]["value"]) - usable
    why = [shortage_words(cause, payload["inputs"], fullest, usable)] if cause else []
    short = f"{memory_range(payload)}, short by {gib(over)} GiB" if over > 0 else memory_range(payload)
    return "; ".join([*why, short])


def memory_range(payload: Payload) -> str:
    """`memory 61.0 to 68.2 of 75.3 GiB by rank`."""
    peaks = [float(rank["peak_memory_bytes"]) for rank in payload["ranks"]]
    least, most = gib(min(peaks)), gib(max(peaks))
    spread, by = (most, "") if least == most else (f"{least} to {most}", " by rank")
    return f"memory {spread} of {gib(payload['usable_memory_bytes'])} GiB usable{by}"


def spent_s(payload: Payload) -> list[tuple[str, float]]:
    """Where the time of a step goes, in seconds."""
    step, parts = float(payload["step_time_s"]["value"]), payload["step_parts"]
    pipeline = float(parts["pipeline_s"])
    idle = pipeline * float(payload["bubble_fraction"])
    fill = min(idle, (pipeline - idle) * fill_share(payload))
    spent = {"forward and backward passes": pipeline - idle, "filling and draining the pipeline": fill}
    spent |= {"waiting for sends and for the slowest stage": idle - fill}
    spent |= {name: float(parts.get(key, 0.0)) for key, name in AFTER.items()}
    return [(name, seconds) for name, seconds in spent.items() if seconds > 1e-6 * step]


def _times(payload: Payload, style: Style) -> list[str]:
    step = float(payload["step_time_s"]["value"])
    rows = [("where the time goes", "time", "share")]
    rows += [(name, format_duration(seconds), share(seconds, step)) for name, seconds in spent_s(payload)]
    lines = table(rows, "<>>")
    return [style.faint(lines[0]), *lines[1:], f"  {exposed_words(payload)}"]


def fill_share(payload: Payload) -> float:
    """What an even pipeline with free sends waits, over what it works: (p - 1) / (m v)."""
    inputs = payload["inputs"]
    return (int(inputs["pp"]) - 1) / (int(payload["micro_batches"]) * int(inputs["vp"]))


def exposed_words(payload: Payload) -> str:
    """Communication that is not overlapped."""
    step, seconds = float(payload["step_time_s"]["value"]), float(payload["exposed_communication_s"])
    if seconds <= 1e-6 * step:
        return "no communication stands in the way"
    return f"of all this, communication that nothing hides: {format_duration(seconds)}, {share(seconds, step)}"


def share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else ""


def _memory(payload: Payload) -> list[str]:
    ranks = payload["memory_parts"]
    fullest = max(range(len(ranks)), key=lambda rank: sum(ranks[rank].values()))
    parts = ", ".join(f"{name} {gib(size)}" for name, size in ranks[fullest].items() if size)
    where = f"pipeline rank {fullest}, the fullest of {len(ranks)}" if len(ranks) > 1 else "every rank"
    host = (
        [f"  and {gib(payload['host_bytes'])} GiB in the memory of each host, which is taken to serve no other job"]
        if payload.get("host_bytes")
        else []
    )
    return [f"  memory on {where}, in GiB: {parts}", *host]


def run_lines(payload: Payload) -> list[str]:
    return [f"  {format_short_count(payload['inputs']['tokens'])} tokens: {', '.join(run_figures(payload))}"]


def run_figures(payload: Payload) -> Iterable[str]:
    """Steps, days, dollars and energy of the whole run."""
    run, time = payload["run"], payload["step_time_s"]
    yield f"{format_count(run['steps'])} steps"
    days = float(run["days"])
    length, unit = (days, "days") if days >= 1 else (24 * days, "h")
    scale = length / float(time["value"])
    edges = f" ({digits(time['low'] * scale)} to {digits(time['high'] * scale)})" if time["low"] < time["high"] else ""
    yield f"{digits(length)} {unit}{edges}"
    yield format_money(run["cost_usd"])
    yield scaled(1000 * float(run["energy_kwh"]), "Wh")
    if "co2_kg" in run:
        yield f"{digits(float(run['co2_kg']) / 1e3)} t CO2"


def count_word(count: float | None) -> str | None:
    """A count as a flag takes it: short where that loses nothing."""
    if count is None:
        return None
    short = format_short_count(count)
    return short if parse_count(short) == count else repr(count)


def same_job(inputs: Payload) -> list[Any]:
    """The words that name the same model, load and engine again."""
    said: list[Any] = ["--seq", inputs["seq"], "--global-batch", inputs["global_batch"]]
    said += flag("--tokens", count_word(inputs["tokens"]))
    said += flag("--optimizer", inputs["optimizer"], "adamw")
    said += [word for name in inputs.get("techniques", ()) for word in ("--with", name)]
    return said + ["--dtype", inputs["dtype"], "--engine", inputs["engine"]]


def exports(step: Payload) -> list[str]:
    """Commands that write the launch files, for every target that can say the plan."""
    folders = [("train" if not at else f"train-{name}", name) for at, name in enumerate(step["targets"])]
    return [words("gnomon", "export", "last", "--to", name, "--out", folder) for folder, name in folders]


def _next(payload: Payload) -> list[str]:
    inputs = payload["inputs"]
    plan = words("gnomon", "plan", "train", inputs["model"], "--cluster", inputs["on"], *same_job(inputs))
    return next_steps("gnomon explain last", plan, *(exports(payload)[:1] if payload["fits"] else []))
