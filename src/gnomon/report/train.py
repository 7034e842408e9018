"""The text of `gnomon simulate train`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.run import reliability_lines
from gnomon.report.shortage import IF_IT_FITTED, shortage_words
from gnomon.report.text import (
    Style,
    band,
    digits,
    flag,
    folder_of,
    gib,
    headed,
    next_steps,
    scaled,
    technique_lines,
    words,
)
from gnomon.spec.answers import TrainingReport
from gnomon.spec.answers.training import DEGREES
from gnomon.spec.chip import HALVES
from gnomon.spec.questions.run import NEEDS_FAILURES
from gnomon.spec.training import BESIDE_TEXT, PRECISION, RANDOM, SELDOM
from gnomon.units import format_count, format_duration, format_money, format_short_count, parse_count

AFTER = {
    "imbalance_s": "imbalance of sequence lengths",
    "gradient_reduction_s": "gradient reduction after the last pass",
    "optimizer_s": "optimizer",
    "weight_gather_s": "all-gather of updated weights",
    "waits_s": "waits of techniques",
}
LITTLE_PADDING = 5e-4
RUN_FLAGS = {name: f"--{name.removesuffix('_s').replace('_', '-')}" for name in ("failures", *NEEDS_FAILURES, "grid")}
"""Flags about the run, by the names that they have among the inputs."""


def render(answer: TrainingReport, style: Style) -> str:
    lines = [style.strong(answer.title), described(answer.inputs), *lengths_lines(answer)]
    lines += ["", *_answer(answer, style), ""]
    lines += [*_times(answer, style), "", *_memory(answer)]
    lines += ["", *run_lines(answer), *reliability_lines(answer, style)] if answer.run else []
    return "\n".join([*lines, "", *_next(answer)])


def described(inputs: Mapping[str, Any]) -> str:
    """How the step is carried out, in a line."""
    from gnomon.planning.training.search import expert_words

    degrees = [f"{name.upper()} {inputs[name]}" for name in DEGREES if inputs[name] > 1]
    said = [*(degrees or ["1 chip"]), f"micro-batch {inputs['micro_batch']}"]
    said += [f"{inputs['recompute']} recompute"] if inputs["recompute"] != "none" else []
    said += [f"ZeRO-{inputs['zero']}"] if inputs["zero"] or inputs["dp"] > 1 else []
    said += seldom_words(inputs)
    said += [inputs["schedule"]] if inputs["pp"] > 1 else []
    said += [expert_words(int(inputs.get("expert_tp") or 0))] if inputs.get("expert_tp") else []
    said += [f"KV by {inputs['cp_comm']}"] if inputs["cp"] > 1 and "cp_comm" in inputs else []
    said += ["sequence parallel"] if inputs["sequence_parallel"] and inputs["tp"] > 1 else []
    said += packing_words(inputs)
    return ", ".join([*said, inputs["optimizer"], *inputs.get("techniques", ())])


def seldom_words(inputs: Mapping[str, Any]) -> list[str]:
    """Settings that most plans leave alone, where they are set."""
    said = {
        "dp_shard": f"states sharded over {inputs.get('dp_shard')} of {inputs['dp']} data-parallel ranks",
        "hpz": f"a second copy of the weights on every {inputs.get('hpz')} ranks",
        "tp_overlap": "tensor-parallel overlap",
        "dispatch": f"tokens by {inputs.get('dispatch')}",
        "capacity_factor": f"capacity factor {inputs.get('capacity_factor', 0):g}",
        "pad_to_capacity": "padded to capacity",
        "imbalance": f"experts {inputs.get('imbalance', 1):g}x the mean on the busiest rank",
        "ep_overlap": "expert-parallel overlap",
        "cuda_graphs": "CUDA graphs",
        "cp_a2a": f"a2a over {inputs.get('cp_a2a')} of {inputs['cp']} ranks",
        "fp8_param_gather": "weights gathered as they are multiplied",
        "bf16_layers": f"{inputs.get('bf16_layers')} first and last layers in bf16",
    }
    said["layers_per_stage"] = f"stages of {inputs.get('layers_per_stage')} layers"
    return [words for name, words in said.items() if inputs.get(name, SELDOM[name]) != SELDOM[name]]


def packing_words(inputs: Mapping[str, Any]) -> list[str]:
    """How batches are made of sequences that differ in length; nothing where all are equal."""
    if not inputs.get("packing"):
        return []
    plain = {"none": "padded to the longest", "max-length": "padded to --seq", "padding-free": "padding-free"}
    found = [plain.get(inputs["packing"], f"{inputs['packing']} packing")]
    found += ["document masking"] if inputs.get("document_masking") else []
    return found + ([inputs["sampling"]] if inputs["sampling"] != RANDOM else [])


def lengths_lines(answer: TrainingReport) -> list[str]:
    """The lengths of sequences as they were drawn, and tokens with padding and without."""
    found = answer.lengths
    if not found:
        return []
    parts = [f"{name} {format_count(found[f'{name}_tokens'])}" for name in ("p50", "p90", "p99")]
    spread = f"mean {format_count(found['mean_tokens'])} tokens, {', '.join(parts)}"
    longest = f"longest {format_count(found['longest_tokens'])}"
    rate = f"{digits(found['tokens_per_s'])} tokens/s"
    if found["padding_share"] >= LITTLE_PADDING:
        padded = f"{found['padding_share']:.1%} of all tokens is padding"
        rate += f", {digits(found['padded_tokens_per_s'])} with padding"
    else:
        padded = "no padding"
    lines = [f"sequences of {spread}, {longest}; {padded}: {rate}"]
    if found["slowest_cp_rank"] > 1 + LITTLE_PADDING:
        more = f"{found['slowest_cp_rank'] - 1:.1%} more attention than the mean one"
        lines.append(f"the busiest context-parallel rank has {more}: sequences are cut wherever documents end")
    return lines


def mfu_words(answer: TrainingReport) -> str:
    """The peak is that of the format trained in; it is named where it is not the usual one."""
    dtype = answer.inputs["dtype"]
    return f"{answer.mfu:.1%} MFU" + (f" of the {dtype} peak" if dtype not in HALVES else "")


def figures(answer: TrainingReport) -> list[Headline]:
    """The step's time first, then how well it uses the chips."""
    time = answer.step_time_s
    return [
        Headline("step time", format_duration(time.value), band(time)),
        Headline("MFU", mfu_words(answer)),
        Headline("HFU", f"{answer.hfu:.1%} HFU"),
        Headline("throughput", f"{digits(answer.tokens_per_s_per_gpu)} tokens/s/GPU"),
    ]


def _answer(answer: TrainingReport, style: Style) -> list[str]:
    time, *others = figures(answer)
    shown = [style.strong(f"{time.value} per step"), time.band, *(figure.value for figure in others)]
    spent = f"  {'      '.join(filter(None, shown))}"
    return [spent, f"  {_fits(answer, style)}"] if answer.fits else [*_does_not(answer, style), spent]


def _fits(answer: TrainingReport, style: Style) -> str:
    return f"{style.good('fits')}: {fit_words(answer)}"


def _does_not(answer: TrainingReport, style: Style) -> list[str]:
    """The verdict and what is short, before the figures that the step would have."""
    return [f"  {style.bad('does not fit')}: {fit_words(answer)}", f"  {IF_IT_FITTED}", ""]


def fit_words(answer: TrainingReport) -> str:
    """How much memory is left to spare, or what is short."""
    if answer.fits:
        left = answer.usable_memory_bytes - answer.peak_memory_bytes.value
        return f"{memory_range(answer)}, {gib(left)} GiB to spare"
    cause, parts, usable = answer.cause, answer.memory_parts, answer.usable_memory_bytes
    fullest = max(parts, key=lambda rank: sum(rank.values()))
    over = answer.peak_memory_bytes.value - usable
    why = [shortage_words(cause, answer.inputs, answer.resolved, fullest, usable)] if cause else []
    short = f"{memory_range(answer)}, short by {gib(over)} GiB" if over > 0 else memory_range(answer)
    return "; ".join([*why, short])


def memory_range(answer: TrainingReport) -> str:
    """`memory 61.0 to 68.2 of 75.3 GiB by rank`."""
    peaks = [rank["peak_memory_bytes"] for rank in answer.ranks]
    least, most = gib(min(peaks)), gib(max(peaks))
    spread, by = (most, "") if least == most else (f"{least} to {most}", " by rank")
    return f"memory {spread} of {gib(answer.usable_memory_bytes)} GiB usable{by}"


def spent_s(answer: TrainingReport) -> list[tuple[str, float]]:
    """Where the time of a step goes, in seconds."""
    step, parts = answer.step_time_s.value, answer.step_parts
    pipeline = parts["pipeline_s"]
    idle = pipeline * answer.bubble_fraction
    fill = min(idle, (pipeline - idle) * fill_share(answer))
    spent = {"forward and backward passes": pipeline - idle, "filling and draining the pipeline": fill}
    # One rank alone waits for nothing but copies.
    alone = answer.inputs["pp"] == 1
    spent |= {"waiting for copies" if alone else "waiting for sends and for the slowest stage": idle - fill}
    spent |= {name: parts.get(key, 0.0) for key, name in AFTER.items()}
    return [(name, seconds) for name, seconds in spent.items() if seconds > 1e-6 * step]


def _times(answer: TrainingReport, style: Style) -> list[str]:
    step = answer.step_time_s.value
    rows = [("where the time goes", "time", "share")]
    rows += [(name, format_duration(seconds), share(seconds, step)) for name, seconds in spent_s(answer)]
    return [*headed(rows, "<>>", style), f"  {exposed_words(answer)}"]


def fill_share(answer: TrainingReport) -> float:
    """What an even pipeline with free sends waits, over what it works: (p - 1) / (m v)."""
    inputs = answer.inputs
    return float((inputs["pp"] - 1) / (answer.micro_batches * inputs["vp"]))


def exposed_words(answer: TrainingReport) -> str:
    """Communication that is not overlapped."""
    step, seconds = answer.step_time_s.value, answer.exposed_communication_s
    if seconds <= 1e-6 * step:
        return "no exposed communication"
    return f"of this, exposed communication: {format_duration(seconds)}, {share(seconds, step)}"


def share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else ""


def _memory(answer: TrainingReport) -> list[str]:
    ranks = answer.memory_parts
    fullest = max(range(len(ranks)), key=lambda rank: sum(ranks[rank].values()))
    parts = ", ".join(f"{name} {gib(size)}" for name, size in ranks[fullest].items() if size)
    where = f"pipeline rank {fullest}, the fullest of {len(ranks)}" if len(ranks) > 1 else "every rank"
    beyond = (f"  and {words}" for words in host_words(answer))
    return [
        f"  memory on {where}, in GiB: {parts}",
        *beyond,
        *(f"  {line}" for line in technique_lines(answer.techniques)),
    ]


def host_words(answer: TrainingReport) -> Iterator[str]:
    """What ranks keep beyond their chips."""
    if answer.host_bytes:
        yield f"{gib(answer.host_bytes)} GiB in the memory of each host, assumed to serve no other job"
    if answer.nvme_bytes:
        yield f"{gib(answer.nvme_bytes)} GiB on the disks of each host"


def run_lines(answer: TrainingReport) -> list[str]:
    return [f"  {format_short_count(answer.inputs['tokens'])} tokens: {', '.join(run_figures(answer))}"]


def run_figures(answer: TrainingReport) -> Iterable[str]:
    """Steps, days, dollars and energy of the whole run."""
    run, time = answer.run, answer.step_time_s
    yield f"{format_count(run['steps'])} steps"
    days = run["days"]
    length, unit = (days, "days") if days >= 1 else (24 * days, "h")
    lasting = answer.reliability.days if answer.reliability else time
    scale = length / lasting.value
    edges = f" ({digits(lasting.low * scale)} to {digits(lasting.high * scale)})" if lasting.low < lasting.high else ""
    yield f"{digits(length)} {unit}{edges}"
    yield format_money(run["cost_usd"])
    yield scaled(1000 * run["energy_kwh"], "Wh")
    if "co2_kg" in run:
        tonnes = run["co2_kg"] / 1e3
        yield f"{digits(tonnes)} t CO2" if tonnes >= 1 else f"{digits(1e3 * tonnes)} kg CO2"


def count_word(count: float | None) -> str | None:
    """A count as a flag takes it: short where that loses nothing."""
    if count is None:
        return None
    short = format_short_count(count)
    return short if parse_count(short) == count else repr(count)


def same_job(inputs: Mapping[str, Any]) -> list[Any]:
    """The words that name the same model, load and engine again."""
    said: list[Any] = ["--seq", inputs["seq"], "--global-batch", inputs["global_batch"]]
    said += flag("--tokens", count_word(inputs.get("tokens")))
    said += flag("--optimizer", inputs["optimizer"], "adamw")
    said += flag("--power-limit", inputs.get("power_limit_w"))
    said += [word for name in BESIDE_TEXT for word in flag(_option(name), inputs.get(name) or None)]
    said += _lengths_flags(inputs)
    said += [word for name, option in RUN_FLAGS.items() for word in flag(option, _run_word(name, inputs))]
    said += [word for name in inputs.get("techniques", ()) for word in ("--with", name)]
    return said + ["--dtype", inputs["dtype"], "--engine", inputs["engine"]]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _lengths_flags(inputs: Mapping[str, Any]) -> list[Any]:
    """The words about lengths again."""
    if not inputs.get("lengths"):
        return []
    said = ["--lengths", inputs["lengths"], "--packing", inputs["packing"]]
    masking = inputs.get("document_masking")
    said += [] if masking is None else ["--document-masking" if masking else "--no-document-masking"]
    return [*said, *flag("--sampling", inputs["sampling"], RANDOM), *flag("--seed", inputs.get("seed"), 0)]


def _run_word(name: str, inputs: Mapping[str, Any]) -> Any:
    """What was asked about the run, as a flag takes it; durations are kept in seconds."""
    value = inputs.get(name)
    return f"{value:g}s" if name.endswith("_s") and value is not None else value


def planned_again(inputs: Mapping[str, Any], on: str) -> str:
    """A search for a plan of the same job."""
    precision = [
        word
        for name in PRECISION
        if (value := inputs.get(name, SELDOM[name])) != SELDOM[name]
        for word in ([_option(name)] if value is True else [_option(name), value])
    ]
    return words("gnomon", "plan", "train", inputs["model"], "--cluster", on, *precision, *same_job(inputs))


def simulated_again(inputs: Mapping[str, Any], on: str) -> str:
    """The same step, with what differs from the defaults of `gnomon simulate train`."""
    from gnomon.sim.training import usual_schedule

    usual: dict[str, Any] = {"tp": 1, "pp": 1, "vp": 1, "cp": 1, "ep": 1, "micro_batch": 1, "zero": 0, "expert_tp": 0}
    usual |= {"recompute": "none", "schedule": usual_schedule(inputs["vp"]).name}
    usual |= {"cp_comm": "p2p"} if inputs["cp"] > 1 else {}
    changed = {name: default for name, default in SELDOM.items() if inputs.get(name, default) != default}
    usual |= {name: default for name, default in changed.items() if default is not False}
    said: list[Any] = []
    for name, default in usual.items():
        said += flag(_option(name), inputs.get(name), default)
    said += [_option(name) for name, default in changed.items() if default is False]
    said += ["--no-sequence-parallel"] if inputs["tp"] > 1 and not inputs["sequence_parallel"] else []
    return words("gnomon", "simulate", "train", inputs["model"], "--on", on, *said, *same_job(inputs))


def exports(step: TrainingReport) -> list[str]:
    """Commands that write the launch files, for every target that can express the plan."""
    folder = folder_of("train", step.to_dict())
    folders = [(folder if not at else f"{folder}-{name}", name) for at, name in enumerate(step.targets)]
    return [words("gnomon", "export", "last", "--to", name, "--out", folder) for folder, name in folders]


def _next(answer: TrainingReport) -> list[str]:
    inputs = answer.inputs
    again = planned_again(inputs, inputs["on"])
    return next_steps("gnomon explain last", again, *(exports(answer)[:1] if answer.fits else []))
