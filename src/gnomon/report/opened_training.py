"""Training answers as trees of nodes: the parts of a step, the memory of its ranks, and what binds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.nodes import AnswerNode, metric
from gnomon.report.text import digits, gib, known_chip, plural, scaled
from gnomon.report.train import AFTER, fill_share, in_words, memory_range, run_figures, share
from gnomon.techniques import canonical
from gnomon.units import format_count, format_duration, format_money

Payload = Mapping[str, Any]
REMEDIES = {
    "communication": "less tensor parallelism, larger micro-batches or faster links would shorten it",
    "the bubble": "more micro-batches, fewer pipeline ranks or more parts a rank (vp) would shorten it",
    "the optimizer": "data-parallel ranks that share it out (zero 1) would shorten it",
    "waiting": "rarer checkpoints, a faster link or storage, or fewer barriers would shorten it",
    "kernels": "they run below the data sheet's rate: see `gnomon predict --phase train` for each of them",
}
"""What a step loses beside its passes, and what would help."""
ON_HOST = "a stride, a smaller share, or a host with a faster update and link would shorten it"
"""The same of an optimizer that runs on the host."""
FOLLOWS = {
    "optimizer_s": {
        "offload-optimizer": "on the host: the longest of what its processors, its memory, the link each way and the "
        "chip's own part take, then the last weights' way back",
        "vocabulary-parallel": "every stage updates its part of the vocabulary",
    },
    "waits_s": {
        "async-checkpointing": "a mean step's share of copies to the host and writes to storage that no pass hides",
        "vocabulary-parallel": "one more turn of a stage at each barrier",
    },
    "host_bytes": {
        "offload-optimizer": "states and gradients of all chips of a host",
        "async-checkpointing": "a checkpoint of all chips of a host, until it is written",
    },
}
"""What techniques make of a part of a step, and what it follows from."""
WORTH_TELLING = 0.02
"""The share of the step from which a loss is worth a remedy."""
NOTHING = 1e-6


def trained(payload: Payload) -> tuple[AnswerNode, ...]:
    """A simulated step."""
    memory = (_memory(payload), *_host(payload))
    return _step(payload), _utilisation(payload), *memory, _binding(payload), *_spent(payload)


def trained_plan(payload: Payload) -> tuple[AnswerNode, ...]:
    """A chosen plan, then its step."""
    second = payload.get("runner_up")
    parts = [AnswerNode(name="runner-up", level="part", shown=second["label"], formula=second["why"])] if second else []
    parts += [
        AnswerNode(name="not chosen", level="part", shown=plural(count, "plan"), formula=reason)
        for reason, count in payload["rejected"].items()
    ]
    plan = AnswerNode(
        name="plan",
        level="metric",
        shown=payload["label"],
        formula=f"the shortest step of {format_count(payload['plans_considered'])} plans; every plan that was not "
        f"timed takes at least {format_duration(payload['bound_s'])}",
        parts=tuple(parts),
    )
    return plan, *trained(payload["best"])


def _step(payload: Payload) -> AnswerNode:
    time, parts = payload["step_time_s"], payload["step_parts"]
    pipeline, step = float(parts["pipeline_s"]), float(time["value"])
    inner = [_pipeline(payload, pipeline, step)]
    for key, name in AFTER.items():
        seconds = float(parts.get(key, 0.0))
        if seconds > NOTHING * step:
            shown = f"{format_duration(seconds)}, {share(seconds, step)}"
            inner.append(AnswerNode(name=name, level="part", shown=shown, formula=_follows(payload, key)))
    return metric("step time", format_duration(step), "sum of its parts", time, tuple(inner))


def _follows(payload: Payload, part: str) -> str:
    """The techniques that a part of the step is due to, and how."""
    known = FOLLOWS.get(part, {})
    names = payload["inputs"].get("techniques", ())
    found = ((text, known.get(canonical(str(text)))) for text in names)
    return "; ".join(f"{text}: {how}" for text, how in found if how)


def _pipeline(payload: Payload, pipeline: float, step: float) -> AnswerNode:
    inputs, idle = payload["inputs"], pipeline * float(payload["bubble_fraction"])
    passes = f"{format_count(payload['micro_batches'])} micro-batches of {inputs['micro_batch']} forward and backward"
    parts = [
        AnswerNode(
            name="passes", level="part", shown=format_duration(pipeline - idle), formula=f"{passes}, a rank's mean"
        )
    ]
    if idle > NOTHING * step:
        formula = (
            f"what the average rank waits for the others; even stages would wait {fill_share(payload):.1%} of passes"
        )
        parts.append(AnswerNode(name="the bubble", level="part", shown=format_duration(idle), formula=formula))
    shown = f"{format_duration(pipeline)}, {share(pipeline, step)}"
    return AnswerNode(name="pipeline", level="part", shown=shown, formula=in_words(inputs), parts=tuple(parts))


def _utilisation(payload: Payload) -> AnswerNode:
    inputs, step = payload["inputs"], float(payload["step_time_s"]["value"])
    chips, rate, source = len(payload["ranks"]), 0.0, ""
    chip = known_chip(str(inputs["on"]))
    if chip is not None:
        rate, source = (
            chip.rates_flops.get(inputs["dtype"], 0.0),
            chip.sources.get(f"rates_flops.{inputs['dtype']}", ""),
        )
    work = scaled(float(payload["mfu"]) * step * chips * rate, "FLOP")
    over = f"{work} of the model in {format_duration(step)}, of {chips:,} x {scaled(rate, 'FLOP/s')}" if rate else ""
    hardware = f"{float(payload['hfu']):.1%} with recomputation"
    return AnswerNode(
        name="MFU", level="metric", shown=f"{float(payload['mfu']):.1%}, {hardware}", formula=over,
        provenance="formula", source=source,
    )  # fmt: skip


def _memory(payload: Payload) -> AnswerNode:
    usable = float(payload["usable_memory_bytes"])
    ranks = tuple(_rank(rank, parts, usable) for rank, parts in enumerate(payload["memory_parts"]))
    formula = "on each rank the sum of its parts at the fullest moment"
    return metric("memory", memory_range(payload).removeprefix("memory "), formula, payload["peak_memory_bytes"], ranks)


def _host(payload: Payload) -> tuple[AnswerNode, ...]:
    size = float(payload.get("host_bytes") or 0.0)
    if not size:
        return ()
    shown = f"{gib(size)} GiB in the memory of each host"
    return (AnswerNode(name="host memory", level="metric", shown=shown, formula=_follows(payload, "host_bytes")),)


def _rank(rank: int, parts: Payload, usable: float) -> AnswerNode:
    total = sum(float(size) for size in parts.values())
    left = usable - total
    verdict = f"{gib(left)} to spare" if left >= 0 else f"short by {gib(-left)}"
    formula = " + ".join(f"{name} {gib(float(size))}" for name, size in parts.items() if size)
    return AnswerNode(name=f"pipeline rank {rank}", level="part", shown=f"{gib(total)} GiB, {verdict}", formula=formula)


def _binding(payload: Payload) -> AnswerNode:
    """Shares of the step. Waiting for a send counts as communication and as part of the bubble."""
    step, parts = float(payload["step_time_s"]["value"]), payload["step_parts"]
    lost = {
        "communication": float(payload["exposed_communication_s"]) / step,
        "the bubble": float(parts["pipeline_s"]) * float(payload["bubble_fraction"]) / step,
        "the optimizer": float(parts["optimizer_s"]) / step,
        "waiting": float(parts.get("waits_s", 0.0)) / step,
    }
    lost["kernels"] = max(1 - float(payload["hfu"]) - sum(lost.values()), 0.0)
    worst = max(lost, key=lambda name: lost[name])
    offloaded = worst == "the optimizer" and "offload-optimizer" in _follows(payload, "optimizer_s")
    remedy = (
        f"{worst}: {ON_HOST if offloaded else REMEDIES[worst]}"
        if lost[worst] >= WORTH_TELLING
        else "nothing but the passes themselves"
    )
    arithmetic = AnswerNode(
        name="arithmetic",
        level="part",
        shown=f"{float(payload['hfu']):.1%}",
        formula="what its passes would take of the step at the data sheet's rate",
    )
    losses = (
        AnswerNode(name=name, level="part", shown=f"{share:.1%}") for name, share in lost.items() if share > NOTHING
    )
    first = "" if payload["fits"] else "memory, which is short; then "
    return AnswerNode(name="what binds", level="metric", shown=first + remedy, parts=(arithmetic, *losses))


def _spent(payload: Payload) -> tuple[AnswerNode, ...]:
    step, chips = float(payload["step_time_s"]["value"]), len(payload["ranks"])
    joules, usd = float(payload["energy_j"]), float(payload["cost_usd"])
    watts = f"{digits(joules / step / chips)} W a chip on {chips:,} chips" if step else ""
    nodes = [
        AnswerNode(name="energy", level="metric", shown=scaled(joules / 3600, "Wh"), formula=watts),
        AnswerNode(
            name="cost",
            level="metric",
            shown=format_money(usd),
            formula=f"{format_money(usd / step * 3600)}/h" if step else "",
        ),
    ]
    if payload["run"]:
        nodes.append(AnswerNode(name="the full run", level="metric", shown=", ".join(run_figures(payload))))
    return tuple(nodes)
