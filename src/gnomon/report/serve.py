"""The text of `gnomon simulate serve`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines import engine_info
from gnomon.report.figures import Headline
from gnomon.report.text import Style, chip_count, digits, flag, fleet, headed, known, next_steps, plural, words
from gnomon.spec.answers import ServingReport
from gnomon.spec.answers.serving import GoalResult
from gnomon.spec.plan import DEFAULT_ENGINE, ROUTERS, WHOLE
from gnomon.units import format_count, format_duration, format_money

METRICS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "end to end", "queue_s": "waiting"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
RARE = "p99.9"
"""Shown where there are enough requests for it."""
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 50
SERIES = {
    "running": "sequences", "waiting": "waiting", "kv_blocks": "KV blocks", "cache_hit_rate": "prefix cache hits",
    "output_tokens_per_s": "output tokens/s", "power_w": "power, W",
}  # fmt: skip
"""Series of a run that are shown, by their names in the answer."""
LIFETIMES = 6
"""Lifetimes of a request that a run lasts for at least before it shows a steady state."""
LONGER = 20
"""So many are proposed: lifetimes grow while the engine fills."""
LEAST_REQUESTS = 100
HEADROOM = 0.7
"""Share of its saturation that a replica of a proposed fleet is loaded to."""
MOST_CHIPS = 4096
"""A fleet of more is not proposed."""
DESCRIBED = ("input", "output", "arrivals", "prefix", "turns", "adapters", "priorities", "images")
"""Flags of a load beside its trace and its rate, which `plan serve` has too."""
WAITED = 0.05
"""Share of the mean TTFT from which on waiting for a slot is told."""
SHOWN_SLOWDOWN = 1.01
"""From here on a report says that the power limit lowers the clock."""


def render(answer: ServingReport, style: Style) -> str:
    return "\n".join(
        [style.strong(answer.title), "", *_overload(answer, style), *_answer(answer, style)]
        + [*_filling(answer, style), ""]
        + [*_times(answer, style), ""]
        + _spaced(_goals(answer, style))
        + _spaced(_series(answer, style))
        + [*pool_lines(answer, style), *(f"  {line}" for line in why_lines(answer)), "", *_next(answer)]
    )


def _overload(answer: ServingReport, style: Style) -> list[str]:
    what, which = overload_words(answer)
    return [f"  {style.bad(what)}; {which}", ""] if what else []


def overload_words(answer: ServingReport) -> tuple[str, str]:
    """The warning of an overloaded engine, whose latencies depend on the length of the load."""
    if not answer.overloaded:
        return "", ""
    most = digits(answer.saturation_rps)
    grows = "the queue, and every time below, grows with the length of the load"
    return (
        f"overloaded: the {'pools sustain' if answer.pools else 'replica sustains'} {most} requests/s, and more arrive",
        grows,
    )


def _filling(answer: ServingReport, style: Style) -> list[str]:
    text = filling_words(answer)
    return [style.bad(f"  {text}")] if text else []


def filling_words(answer: ServingReport) -> str:
    """The warning of a run too short to reach a steady state, whose latencies are too low."""
    if answer.settled is not False or answer.overloaded:
        return ""
    requests, life_s = answer.requests, known(answer.e2e_s.get("p90"))
    if not life_s:
        return ""
    span_s = max(answer.makespan_s - life_s, 0.0)
    rate = answer.inputs.get("rate") or requests / answer.makespan_s
    inside = rate * life_s
    wanted = math.ceil(max(LONGER * inside, LEAST_REQUESTS + 4 * inside))
    wanted = wanted if wanted > requests else 2 * requests
    if span_s < LIFETIMES * life_s:
        why = f"still filling: {plural(requests, 'request')} are {digits(span_s / life_s, 2)} lifetimes of a request"
        why += f", and a steady state takes {LIFETIMES}"
    else:
        why = f"{plural(requests, 'request')} are too few for a steady state"
    return f"{why}; give --requests {_upwards(wanted)}"


def _upwards(count: int) -> int:
    """The next number of two digits and zeros."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def _answer(answer: ServingReport, style: Style) -> list[str]:
    output, ttft, tpot, cost = figures(answer)
    shown = [style.strong(output.value), f"{ttft.name} {ttft}", f"{tpot.name} {tpot}", cost.value]
    return [f"  {'      '.join(shown)}", f"  {ran_words(answer)}"]


def ran_words(answer: ServingReport) -> str:
    """How much was simulated, and what the replica sustains at most."""
    requests, span = answer.requests, answer.makespan_s
    ran = f"{plural(requests, 'request')} in {format_duration(span)}"
    if answer.slots.get("slot_wait_s"):
        ran += "; slots for adapters bind before the chip does"
    elif answer.saturation_rps and not answer.overloaded:
        low, high = map(known, answer.bands.get("saturation_rps", {}).get("mean") or (None, None))
        ran += f"; saturation at {digits(answer.saturation_rps)} requests/s"
        ran += f" ({digits(low)} to {digits(high)}, 90%)" if low is not None and high is not None else ""
    return ran


def figures(answer: ServingReport) -> list[Headline]:
    """Throughput, the times that users wait, and what a million tokens cost."""
    return [
        Headline("throughput", f"{digits(answer.output_tokens_per_s)} output tokens/s"),
        Headline("TTFT p90", seconds_word(answer.ttft_s.get("p90")), time_band(answer, "ttft_s", "p90")),
        Headline("TPOT p90", seconds_word(answer.tpot_s.get("p90")), time_band(answer, "tpot_s", "p90")),
        Headline("cost", f"{format_money(answer.usd_per_mtok)}/Mtok"),
    ]


def time_band(answer: ServingReport, metric: str, statistic: str) -> str:
    """`(52 ms to 71 ms)`, or nothing where no interval is known."""
    low, high = answer.bands.get(metric, {}).get(statistic) or (None, None)
    return f"({seconds_word(low)} to {seconds_word(high)})" if known(low) is not None else ""


def times_of(answer: ServingReport) -> dict[str, Mapping[str, float | None]]:
    """What is measured of requests, by the name of its field."""
    found = {name: getattr(answer, name) for name in METRICS}
    return {name: times for name, times in found.items() if times}  # an older answer has no ITL


def statistics_of(answer: ServingReport) -> tuple[str, ...]:
    """The statistics that are shown of it."""
    return (*STATISTICS, RARE) if RARE in answer.ttft_s else STATISTICS


def _times(answer: ServingReport, style: Style) -> list[str]:
    shown = statistics_of(answer)
    rows: list[tuple[str, ...]] = [("", *shown)]
    for key, times in times_of(answer).items():
        rows.append((METRICS[key], *(seconds_word(times.get(statistic)) for statistic in shown)))
    return headed(rows, "<" + ">" * len(shown), style)


def goal_rows(answer: ServingReport) -> list[tuple[str, str, str, str]]:
    """Each goal: its name, its limit, the run's figure, and whether that meets it."""
    return [
        (
            goal_name(one["goal"]),
            format_duration(one["limit_s"]),
            seconds_word(one["value_s"]),
            "met" if one["met"] else "missed",
        )
        for one in answer.goals
    ]


def crossing_lines(goals: Sequence[GoalResult]) -> list[str]:
    """Each goal that lies inside the interval of its figure: whether it is met is not sure."""
    return [
        f"{goal_name(one['goal'])} {seconds_word(one['value_s'])} ({seconds_word(one['low_s'])} to "
        f"{seconds_word(one['high_s'])}, 90%), goal {format_duration(one['limit_s'])}: "
        f"{'inside' if one['met'] else 'beyond'} the goal at the central estimate, its interval crosses it"
        for one in goals
        if one.get("crosses")
    ]


def goal_name(name: str) -> str:
    """`TPOT p90` of `tpot_p90`."""
    return name.replace("_", " ").replace("ttft", "TTFT").replace("tpot", "TPOT").replace("e2e", "end to end")


def goodput_words(answer: ServingReport) -> str:
    """The requests that stay within all limits, where goals were given."""
    rate, share = answer.goodput_rps, answer.goodput_share
    if rate is None or share is None:
        return ""
    return f"goodput {digits(rate)} requests/s: {share:.1%} of the requests stay within all limits"


def _goals(answer: ServingReport, style: Style) -> list[str]:
    if not answer.goals:
        return []
    return [
        *headed([("goal", "limit", "predicted", ""), *goal_rows(answer)], "<>><", style),
        *(f"  {line}" for line in crossing_lines(answer.goals)),
        f"  {goodput_words(answer)}",
    ]


def _series(answer: ServingReport, style: Style) -> list[str]:
    """Where asked for: each series as a line of small bars, from zero to its largest mean over a bin."""
    rows = [("over time", "", "mean", "most")]
    for name, title in SERIES.items():
        values = [0.0 if value is None else value for value in answer.series.get(name, ())]
        if any(values):
            rows.append((title, _sparks(values), digits(sum(values) / len(values)), digits(max(values))))
    return headed(rows, "<<>>", style) if len(rows) > 1 else []


def _sparks(values: Sequence[float]) -> str:
    each = max(math.ceil(len(values) / SPARK_COLUMNS), 1)
    most = max(values)
    means = [sum(some) / len(some) for some in (values[at : at + each] for at in range(0, len(values), each))]
    return "".join(SPARKS[min(int(mean / most * len(SPARKS)), len(SPARKS) - 1)] for mean in means)


def _spaced(lines: list[str]) -> list[str]:
    return [*lines, ""] if lines else []


def pool_rows(answer: ServingReport) -> list[tuple[str, ...]]:
    """What each pool did, drew and cost, by the head of its column."""
    if not answer.pools:
        return []
    rows: list[tuple[str, ...]] = [("pool", "", "busy", "KV in use", "sustains", "power", "energy", "cost")]
    for pool in answer.pools:
        rows.append(
            (
                pool["role"] if pool["role"] != "both" else "",
                pool["label"],
                f"{pool['busy_fraction']:.0%}",
                f"{pool['peak_kv_share']:.0%}",
                f"{digits(pool['saturation_rps'])} req/s",
                f"{digits(pool['power_w'])} W",
                f"{pool['energy_j'] / 3600:,.1f} Wh",
                format_money(pool["cost_usd"]),
            )
        )
    return rows


def pool_lines(answer: ServingReport, style: Style) -> list[str]:
    rows = pool_rows(answer)
    return [*headed(rows, "<<>>>>>>", style), ""] if rows else []


def seconds_word(value: float | None) -> str:
    """A time, or a dash where there is none."""
    found = known(value)
    return "-" if found is None else format_duration(found)


def why_lines(answer: ServingReport) -> list[str]:
    """Utilisation, KV cache, energy and cost."""
    if answer.pools:
        return _pooled_lines(answer)
    busy = f"busy {answer.busy_fraction:.0%} of the time over {format_count(answer.steps)} steps"
    if answer.step_shares:
        busy += f"; steps with prompts {answer.step_shares['prefill']:.0%} of the time"
    blocks, peak = answer.kv_blocks, answer.peak_kv_blocks
    share = f"{peak / blocks:.0%}" if blocks else "none"
    cache = f"at most {share} of the KV cache in use ({peak:,} of {blocks:,} blocks)"
    found, lost = answer.cache_hit_rate, answer.preemptions
    energy = f"{answer.energy_j / 3600:,.1f} Wh, {format_money(answer.cost_usd)}"
    lower = answer.clock_slowdown >= SHOWN_SLOWDOWN
    held = f", the clock at {1 / answer.clock_slowdown:.0%} of the highest by the power limit" if lower else ""
    return [
        busy,
        cache + (f"; {plural(lost, 'preemption')}" if lost else ""),
        *([f"{found:.0%} of the prompt tokens from the prefix cache"] if found else []),
        *slot_lines(answer.slots, answer.ttft_s),
        f"{energy} in all, {digits(answer.power_w)} W on average{held}",
    ]


def slot_lines(limits: Mapping[str, float], ttft_s: Mapping[str, float | None]) -> list[str]:
    """Slots for LoRA adapters, where waiting for one is a part of TTFT that is worth telling."""
    waited, mean = limits.get("slot_wait_s", 0.0), known(ttft_s.get("mean"))
    if not mean or waited < WAITED * mean:
        return []
    slots, adapters = limits["adapter_slots"], limits["adapters"]
    shorter = f"TTFT would be {format_duration(waited)} shorter on average with one for each"
    return [f"adapter slots: {slots:,.0f} for {adapters:,.0f} adapters; {shorter}"]


def _pooled_lines(answer: ServingReport) -> list[str]:
    """Of all pools together; each has its own line."""
    found, lost = answer.cache_hit_rate, answer.preemptions
    return [
        *([plural(lost, "preemption")] if lost else []),
        *([f"{found:.0%} of the prompt tokens from the prefix cache"] if found else []),
        f"{answer.energy_j / 3600:,.1f} Wh, {format_money(answer.cost_usd)} in all, "
        f"{digits(answer.power_w)} W on average",
    ]


def _next(answer: ServingReport) -> list[str]:
    inputs = answer.inputs
    load: list[Any] = [*flag("--trace", inputs.get("trace")), *flag("--rate", inputs.get("rate"))]
    load += [one for name in DESCRIBED for one in flag(f"--{name}", inputs.get(name))]
    if inputs.get("think_s"):
        load += ["--think", f"{inputs['think_s']:g}s"]
    load += flag("--seed", inputs.get("seed"), 0)
    if inputs.get("concurrency") is not None or not (inputs.get("rate") or inputs.get("trace")):
        return next_steps("gnomon explain last")  # a plan is for a rate
    goals = ("--slo", inputs.get("slo") or "ttft_p90=1s,tpot_p90=50ms", *_served_with(answer))
    if answer.pools:
        on = ",".join(dict.fromkeys(one.partition(":")[0] + ":8" for one in inputs["on"].split("+")))
        kinds = ("--pools", "auto")
        plan = words("gnomon", "plan", "serve", inputs["model"], "--fleet", on, *load, *goals, *kinds)
        return next_steps("gnomon explain last", plan)
    chips = _chips(answer)
    on = fleet(inputs["on"], answer.resolved, max(chips, 8))
    if not 0 < chips <= min(chip_count(on, answer.resolved), MOST_CHIPS):
        return next_steps("gnomon explain last")
    plan = words("gnomon", "plan", "serve", inputs["model"], "--fleet", on, *load, *goals)
    return next_steps("gnomon explain last", plan)


def _served_with(answer: ServingReport) -> list[Any]:
    """The flags of the engine, its settings, number formats and techniques; of several pools, those that all have."""
    each = [_one_served(pool) for pool in answer.inputs.get("pools") or ()] or [dict(answer.inputs)]
    first, *others = each

    def common(name: str) -> Any:
        return first.get(name) if all(other.get(name) == first.get(name) for other in others) else None

    settings = {
        name: value
        for name, value in (first.get("settings") or {}).items()
        if all((other.get("settings") or {}).get(name) == value for other in others)
    }
    said = [*flag("--engine", _engine(str(common("engine") or answer.inputs.get("engine") or "")), "")]
    said += flag("--dtype", common("dtype"), answer.resolved.model_dtype)
    said += flag("--kv-dtype", common("kv_dtype"), "bf16")
    said += flag("--power-limit", common("power_limit_w"))
    said += flag("--router", answer.inputs.get("router"), ROUTERS[0])
    said += flag("--kv-transfer", answer.inputs.get("kv_transfer"), WHOLE)
    for name, value in settings.items():
        said += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    for name in common("techniques") or ():
        said += ["--with", name]
    return said


def _one_served(pool: Mapping[str, Any]) -> dict[str, Any]:
    """A pool of an answer's inputs by the names that those of one replica have."""
    engine, strategy = pool.get("engine") or {}, pool.get("strategy") or {}
    label = "@".join(str(engine[name]) for name in ("name", "version") if engine.get(name))
    return {
        **pool, "engine": label, "settings": engine.get("settings"), "techniques": strategy.get("techniques"),
    }  # fmt: skip


def _engine(label: str) -> str:
    """An engine as a flag names it; nothing for the one that is meant where none is named."""
    info = engine_info(DEFAULT_ENGINE)
    usual = (DEFAULT_ENGINE, f"{DEFAULT_ENGINE}@{info.default or info.versions[-1]}") if info else ()
    return "" if label in usual else label


def _chips(answer: ServingReport) -> int:
    """Chips that take the load with some headroom: one replica's where it is not overloaded, 0 where it is unknown."""
    inputs, most = answer.inputs, answer.saturation_rps
    ranks = math.prod(int(inputs.get(name) or 1) for name in ("tp", "pp", "dp"))
    if not answer.overloaded:
        return ranks
    return math.ceil(float(inputs.get("rate") or 0.0) / (HEADROOM * most)) * ranks if most else 0
