"""A serving plan as a tree of nodes: why it was chosen, and its own figures with their intervals and sources."""

from __future__ import annotations

import math
from typing import Any

from gnomon.report.explain import BY
from gnomon.report.figures import interval
from gnomon.report.plan import beside_best
from gnomon.report.text import deployed, digits, flag, known, plural, words
from gnomon.spec.answers import AnswerNode, PlanReport, PlanScore, Resolved
from gnomon.spec.loads.lengths import mean_of
from gnomon.spec.plan import PREFILL
from gnomon.spec.workload import ServingLoad
from gnomon.units import format_count, format_duration, format_money

TIMES = {
    "TTFT": ("ttft_s", "queueing + prefill steps + delivery"),
    "TPOT": ("tpot_s", "decode steps, lengthened by prefills in the same step"),
    "end to end": ("e2e_s", "TTFT + TPOT of every further token"),
}
APART = {
    "TTFT": "queueing + prefill steps of a prefill replica + KV transfer + queueing + first step of a decode replica, "
    "which computes the last prompt token again, + delivery",
    "TPOT": "decode steps of the decode replicas, which compute of each prompt the last token alone",
}
"""What times are made of where prompts have replicas of their own."""
MOST_SEQUENCES = 1_000_000
"""A made-up answer may claim any number; no step has more."""


def planned(answer: PlanReport) -> tuple[AnswerNode, ...]:
    best, drawn = answer.best, answer.best.predicted
    made, usd = f"{format_count(best.output_tokens_per_s)} output tokens/s", f"{format_money(best.usd_h)}/h"
    cost, energy = known(best.usd_per_mtok), known(best.wh_per_mtok)
    price = AnswerNode(name="price", shown=usd, source=answer.resolved.sources.get("price_usd_h", ""))
    spent = "-" if energy is None else f"{digits(energy)} Wh/Mtok {interval(drawn.get('wh_per_mtok'), digits)}".rstrip()
    shown = "-" if cost is None else f"{format_money(cost)}/Mtok"
    return (
        _choice(answer),
        *(_time(answer, name) for name in TIMES),
        AnswerNode.metric("throughput", made, "of all replicas", drawn.get("output_tokens_per_s")),
        AnswerNode.metric("energy", spent, f"{digits(best.power_w)} W at this load", drawn.get("wh_per_mtok")),
        AnswerNode.metric("cost", shown, f"{usd} over {made}", drawn.get("usd_per_mtok"), (price,)),
    )


def _time(answer: PlanReport, name: str) -> AnswerNode:
    """A metric by its statistics, each with its interval."""
    best, (key, formula) = answer.best, TIMES[name]
    formula = APART.get(name, formula) if best.plan.disaggregated else formula
    times = {"ttft_s": best.ttft_s, "tpot_s": best.tpot_s, "e2e_s": best.e2e_s}[key]
    drawn = best.predicted.get(key, {})
    shown = {
        statistic: " ".join(filter(None, [format_duration(value), interval(drawn.get(statistic), format_duration)]))
        for statistic, value in times.items()
        if value is not None and known(value) is not None
    }
    parts = [AnswerNode(name=statistic, shown=text) for statistic, text in shown.items()]
    parts += [_step(best, answer.resolved)] if name == "TPOT" else []
    headline = ", ".join(f"{name} {shown[name].partition(' (')[0]}" for name in ("mean", "p90") if name in shown)
    return AnswerNode.metric(name, headline or "-", formula, drawn.get("mean"), tuple(parts))


def _step(best: PlanScore, resolved: Resolved) -> AnswerNode:
    """What opens one of the steps behind a token: as many sequences as are in flight on a replica at a time, of the
    first pool that decodes."""
    load = best.plan.load
    pools = [pool for pool in best.plan.each_pool if pool.role != PREFILL] or list(best.plan.each_pool)
    plan = best.plan.of_pool(pools[0])
    share = pools[0].weight / sum(pool.weight * pool.replicas for pool in pools)
    in_flight = share * best.output_tokens_per_s * (known(best.tpot_s.get("mean")) or 0.0)
    batch = max(1, round(min(in_flight, MOST_SEQUENCES)))
    replica = "decode replica" if best.plan.disaggregated else "replica"
    shown, context = f"{plural(batch, 'sequence')} in flight on a {replica}", None
    means = _means(load) if isinstance(load, ServingLoad) else None
    if means is not None:
        context = means[0] + means[1] // 2
        shown += f", half of their output generated: context {context:,}"
    inputs: dict[str, Any] = {"on": f"{plan.chip}:{plan.ranks}", "settings": plan.engine.settings}
    inputs |= {name: getattr(plan, name) for name in ("model", "dtype", "kv_dtype")}
    inputs |= {name: getattr(plan.strategy, name) for name in ("tp", "ep", "techniques")}
    named = deployed(inputs, resolved)
    step = ("--engine", plan.engine.label, "--phase", "decode", "--batch", batch, *flag("--context", context))
    return AnswerNode(name="one step", shown=shown, formula=BY + words("gnomon", "predict", *named, *step))


def _means(load: ServingLoad) -> tuple[int, int] | None:
    """Tokens of a prompt and of an output; none where they are a trace's, or those of sessions."""
    if load.input_tokens is None or load.output_tokens is None or load.turns > 1:
        return None
    prompt, output = (mean_of(given) for given in (load.input_tokens, load.output_tokens))
    if not math.isfinite(prompt + output):  # a file that is not open here
        return None
    return round(prompt) + (load.prefix.tokens if load.prefix else 0), round(output)


def _choice(answer: PlanReport) -> AnswerNode:
    spare = ((name, known(margin)) for name, margin in answer.best.margin.items())
    parts = [
        AnswerNode(name=name, shown=f"{margin:.0%} of the goal to spare")
        for name, margin in spare
        if margin is not None
    ]
    for name, other in [*beside_best(answer), ("next cheaper", answer.next_cheaper)]:
        if other.get("why"):
            parts.append(AnswerNode(name=name, shown=other.get("label") or "none", formula=other["why"]))
    parts += [
        AnswerNode(name="not chosen", shown=plural(count, "plan"), formula=reason)
        for reason, count in answer.rejected.items()
    ]
    formula = f"best of {format_count(answer.plans_considered)}; binding: {answer.binding or 'nothing'}"
    return AnswerNode.metric("plan", answer.best.label, formula, parts=tuple(parts))
