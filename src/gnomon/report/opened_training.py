"""Training answers as trees of nodes: the parts of a step, the memory of its ranks, and what binds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from gnomon.errors import InputError
from gnomon.report.objectives import goal_lines
from gnomon.report.run import checkpoint_words, failure_words, goodput_words, lost_rows
from gnomon.report.text import digits, gib, plural, scaled, technique_lines
from gnomon.report.train import AFTER, described, fill_share, memory_range, run_figures, share
from gnomon.spec.answers import AnswerNode, TrainingPlanReport, TrainingReport
from gnomon.techniques import AnyTechnique, technique
from gnomon.units import format_count, format_duration, format_money

REMEDIES = {
    "communication": "less tensor parallelism, larger micro-batches or faster links would shorten it",
    "copies": "a smaller share on the host, larger micro-batches or a faster link would shorten them",
    "the bubble": "more micro-batches, fewer pipeline ranks or more model chunks per rank (vp) would shorten it",
    "the optimizer": "sharding it over data-parallel ranks (zero 1) would shorten it",
    "imbalance": "packing, balanced sampling, or context parallelism in the place of data parallelism would shorten it",
    "waiting": "rarer checkpoints, a faster link or storage, or fewer barriers would shorten it",
    "kernels": "they run below the data sheet's rate, or no faster than the host launches them: see "
    "`gnomon predict --phase train` for each of them",
}
"""Where a step loses time, and what would help."""
WORTH_TELLING = 0.02
"""The share of the step from which a loss is worth a remedy."""
NOTHING = 1e-6


def trained(answer: TrainingReport) -> tuple[AnswerNode, ...]:
    """A simulated step."""
    memory = (_memory(answer), *_host(answer))
    return _step(answer), _utilisation(answer), *memory, _binding(answer), *_spent(answer)


def trained_plan(answer: TrainingPlanReport) -> tuple[AnswerNode, ...]:
    """A chosen plan, then its step."""
    second = answer.runner_up
    parts = [AnswerNode(name="runner-up", shown=second["label"], formula=second["why"])] if second else []
    parts += [
        AnswerNode(name="not chosen", shown=plural(count, "plan"), formula=reason)
        for reason, count in answer.rejected.items()
        if count
    ]
    least = f"every plan that was not timed takes at least {format_duration(answer.bound_s)}"
    goal = next((text for name, text in goal_lines(answer) if name == "objective"), "the shortest step")
    formula = f"{goal}, of {format_count(answer.plans_considered)} plans; {least}"
    if goal == "the shortest step":
        formula = f"{goal} of {format_count(answer.plans_considered)} plans; {least}"
    return AnswerNode.metric("plan", answer.label, formula, parts=tuple(parts)), *trained(answer.best)


def _step(answer: TrainingReport) -> AnswerNode:
    time, parts = answer.step_time_s, answer.step_parts
    pipeline, step = parts["pipeline_s"], time.value
    inner = [_pipeline(answer, pipeline, step)]
    for key, name in AFTER.items():
        seconds = parts.get(key, 0.0)
        if seconds > NOTHING * step:
            shown = f"{format_duration(seconds)}, {share(seconds, step)}"
            inner.append(AnswerNode(name=name, shown=shown, formula=_follows(answer, key)))
    return AnswerNode.metric("step time", format_duration(step), "sum of its parts", time, tuple(inner))


def _follows(answer: TrainingReport, part: str) -> str:
    """The techniques that a part of the step is due to, and how."""
    if part == "imbalance_s":
        return (
            f"the mean of {answer.lengths['steps_drawn']} drawn steps, each as long as its slowest rank, less a step "
            "of equal micro-batches"
        )
    return "; ".join(f"{text}: {one.follows[part]}" for text, one in _techniques(answer) if part in one.follows)


def _techniques(answer: TrainingReport) -> Iterator[tuple[str, AnyTechnique]]:
    """As they were asked for; an answer of a file may name one that is not here."""
    for text in map(str, answer.inputs.get("techniques", ())):
        with suppress(InputError):
            yield text, technique(text.partition(":")[0].strip())


def _pipeline(answer: TrainingReport, pipeline: float, step: float) -> AnswerNode:
    inputs, idle = answer.inputs, pipeline * answer.bubble_fraction
    passes = f"{format_count(answer.micro_batches)} micro-batches of {inputs['micro_batch']} forward and backward"
    parts = [AnswerNode(name="passes", shown=format_duration(pipeline - idle), formula=f"{passes}, a rank's mean")]
    if idle > NOTHING * step and inputs["pp"] == 1:
        formula = "copies to the host and back that last longer than the passes beside them"
        parts.append(AnswerNode(name="waiting for copies", shown=format_duration(idle), formula=formula))
    elif idle > NOTHING * step:
        formula = f"mean wait of a rank for the others; even stages would wait {fill_share(answer):.1%} of the passes"
        parts.append(AnswerNode(name="the bubble", shown=format_duration(idle), formula=formula))
    shown = f"{format_duration(pipeline)}, {share(pipeline, step)}"
    return AnswerNode(name="pipeline", shown=shown, formula=described(inputs), parts=tuple(parts))


def _utilisation(answer: TrainingReport) -> AnswerNode:
    dtype, step, chips = answer.inputs["dtype"], answer.step_time_s.value, len(answer.ranks)
    rate = answer.resolved.rates_flops.get(dtype, 0.0)
    work = scaled(answer.mfu * step * chips * rate, "FLOP")
    return AnswerNode(
        name="MFU",
        level="metric",
        shown=f"{answer.mfu:.1%}, {answer.hfu:.1%} with recomputation",
        formula=f"{work} of the model in {format_duration(step)}, of {chips:,} x {scaled(rate, 'FLOP/s')}"
        if rate
        else "",
        provenance="formula",
        source=answer.resolved.sources.get(f"rates_flops.{dtype}", ""),
    )


def _memory(answer: TrainingReport) -> AnswerNode:
    usable = answer.usable_memory_bytes
    ranks = tuple(_rank(rank, parts, usable) for rank, parts in enumerate(answer.memory_parts))
    formula = "on each rank the sum of its parts at the fullest moment"
    return AnswerNode.metric(
        "memory", memory_range(answer).removeprefix("memory "), formula, answer.peak_memory_bytes, ranks
    )


def _host(answer: TrainingReport) -> Iterator[AnswerNode]:
    """What techniques keep beyond the chips, and their own figures."""
    for name, part, where in (("host memory", "host_bytes", "in the memory"), ("NVMe", "nvme_bytes", "on the disks")):
        if size := getattr(answer, part):
            shown = f"{gib(size)} GiB {where} of each host"
            yield AnswerNode.metric(name, shown, formula=_follows(answer, part))
    for line in technique_lines(answer.techniques):
        name, _, figures = line.partition(": ")
        yield AnswerNode.metric(name, figures)


def _rank(rank: int, parts: Mapping[str, float], usable: float) -> AnswerNode:
    total = sum(size for size in parts.values())
    left = usable - total
    verdict = f"{gib(left)} to spare" if left >= 0 else f"short by {gib(-left)}"
    formula = " + ".join(f"{name} {gib(size)}" for name, size in parts.items() if size)
    return AnswerNode(name=f"pipeline rank {rank}", shown=f"{gib(total)} GiB, {verdict}", formula=formula)


def _binding(answer: TrainingReport) -> AnswerNode:
    """Shares of the step. Waiting for a send counts as communication and as part of the bubble; a rank without a
    pipeline waits for copies alone, which are exposed communication too."""
    step, parts = answer.step_time_s.value, answer.step_parts
    idle = parts["pipeline_s"] * answer.bubble_fraction
    copies = idle if answer.inputs["pp"] == 1 else 0.0
    lost = {
        "communication": max(answer.exposed_communication_s - copies, 0.0) / step,
        "copies": copies / step,
        "the bubble": (idle - copies) / step,
        "the optimizer": parts["optimizer_s"] / step,
        "imbalance": parts.get("imbalance_s", 0.0) / step,
        "waiting": parts.get("waits_s", 0.0) / step,
    }
    lost["kernels"] = max(1 - answer.hfu - sum(lost.values()), 0.0)
    worst = max(lost, key=lambda name: lost[name])
    remedies = REMEDIES | {name: text for _, one in _techniques(answer) for name, text in one.remedies.items()}
    remedy = (
        f"{worst}: {remedies[worst]}" if lost[worst] >= WORTH_TELLING else "the forward and backward passes themselves"
    )
    arithmetic = AnswerNode(
        name="arithmetic",
        shown=f"{answer.hfu:.1%}",
        formula="what its passes would take of the step at the data sheet's rate",
    )
    losses = (AnswerNode(name=name, shown=f"{share:.1%}") for name, share in lost.items() if share > NOTHING)
    first = "" if answer.fits else "memory, which is short; then "
    return AnswerNode.metric("what binds", first + remedy, parts=(arithmetic, *losses))


def _spent(answer: TrainingReport) -> tuple[AnswerNode, ...]:
    step, chips = answer.step_time_s.value, len(answer.ranks)
    joules, usd = answer.energy_j, answer.cost_usd
    watts = f"{digits(joules / step / chips)} W per chip on {plural(chips, 'chip')}" if step else ""
    nodes = [
        AnswerNode.metric("energy", scaled(joules / 3600, "Wh"), formula=watts),
        AnswerNode.metric("cost", format_money(usd), f"{format_money(usd / step * 3600)}/h" if step else ""),
    ]
    if answer.run:
        nodes.append(AnswerNode.metric("the full run", ", ".join(run_figures(answer)), parts=_goodput(answer)))
    return tuple(nodes)


def _goodput(answer: TrainingReport) -> tuple[AnswerNode, ...]:
    """The share of the run that counts, and where the rest goes."""
    run = answer.reliability
    if run is None:
        return ()
    failures = run.failures
    formula = f"{failures['per_gpu_hour']:.3g} failures per GPU and hour on {len(answer.ranks):,} GPUs"
    lost = tuple(AnswerNode(name=name, shown=f"{share}, {time}") for name, share, time in lost_rows(run))
    good = AnswerNode(
        name="goodput",
        shown=goodput_words(run).removeprefix("goodput "),
        formula="interval x rate x exp(-rate (lag + restart)) / (exp(rate x cycle) - 1), less waits for repairs",
        provenance="formula",
        source="Daly 2006, with saves in the background",
        parts=lost,
    )
    rate = AnswerNode(name="failures", shown=failure_words(run), formula=formula, source=str(failures["source"]))
    return good, rate, *(AnswerNode(name="checkpoints", shown=text) for text in checkpoint_words(run))
