"""The report of a load on pools of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gnomon import catalog
from gnomon.errors import InputError
from gnomon.planning.serving.arriving import sent
from gnomon.planning.serving.bands import DRAWN, PART, Band, band_of
from gnomon.planning.serving.goals import with_bands
from gnomon.planning.serving.pools import (
    UNSENT,
    BoundPool,
    PooledSystem,
    PoolsInput,
    bound_pools,
    drawn_costs,
    pool_energy_j,
)
from gnomon.planning.serving.results import pool_results
from gnomon.planning.serving.simulate import check_lengths, settled_run, stream_words
from gnomon.planning.serving.unread import idle_settings, unread_columns, unused_times
from gnomon.planning.unmodelled import assumed_by, idle_rate, idle_seed
from gnomon.search.judge import overloaded, sustained_rps
from gnomon.sim.serving import RunLog, ServingRun
from gnomon.sim.serving.run import StepTotals
from gnomon.sim.serving.system import SystemRun
from gnomon.spec import NotModelled, Requests
from gnomon.spec.answers import ServingReport
from gnomon.spec.drawing import draw
from gnomon.spec.plan import BOTH, LOAD_AWARE, ROUTERS
from gnomon.spec.plan_dict import pool_to_dict
from gnomon.spec.workload import METRICS


def simulate_pools(given: PoolsInput, progress: Callable[[int], None] | None = None) -> ServingReport:
    """Serve the load on the pools and report the latencies that clients see."""
    closed = given.concurrency is not None
    drawn = draw(given.load, given.trace, closed=closed)
    stream = sent(drawn, given.techniques, given.case)
    system = bound_pools(given, stream)
    for pool in system.pools:
        trace = given.trace if stream is drawn else None
        check_lengths(stream, given.load.trace, trace, pool.spec.replica, pool.limits.max_context)
    logged = bool(given.options.goals or given.options.series)
    logs = {place: [RunLog() for _ in range(pool.spec.replicas)] for place, pool in enumerate(system.pools)}
    run = system.run(stream, given.concurrency, logs=logs if logged else None)
    if progress:
        progress(len(stream))
    found = as_run(system, run)
    more = pool_results(found, list(system.replicas_of(run, logs)), given.options) if logged else {}
    answer = replace(pools_report(given, system, run, found, stream), **more)
    return replace(answer, goals=with_bands(answer.goals, answer.bands))


def as_run(system: PooledSystem, run: SystemRun) -> ServingRun:
    """What the clients of all pools see as one run; sums over all replicas."""
    runs = [one for stage in run.stages for one in stage]
    busy_s = sum(one.busy_s for one in runs)
    peaks = [max((one.peak_kv_blocks for one in each), default=0) for _, each in system.runs_of(run)]
    return ServingRun(
        requests=run.requests,
        first_token_s=run.first_token_s,
        finish_s=run.finish_s,
        scheduled_s=run.scheduled_s,
        cached_tokens=run.cached_tokens,
        preemptions=sum(one.preemptions for one in runs),
        steps=sum(one.steps for one in runs),
        busy_s=busy_s,
        peak_kv_blocks=max(peaks),
        peak_sequences=max(one.peak_sequences for one in runs),
        peak_step_tokens=max(one.peak_step_tokens for one in runs),
        totals=StepTotals.sum([one.totals for one in runs]),
        dynamic_j=sum(one.dynamic_j for one in runs),
        clock_slowdown=sum(one.clock_slowdown * one.busy_s for one in runs) / busy_s if busy_s else 1.0,
    )


def pools_report(
    given: PoolsInput, system: PooledSystem, run: SystemRun, found: ServingRun, stream: Requests
) -> ServingReport:
    """What a run of the pools came to."""
    pools = tuple(_pool_use(system, run, found.makespan_s))
    joules, cost = (sum(pool[name] for pool in pools) for name in ("energy_j", "cost_usd"))
    made, span = int(stream.output_tokens.sum()), found.makespan_s
    inputs = _inputs(given, system, len(stream))
    late = found.requests.arrival_s, found.first_token_s, found.finish_s
    sustained = sustained_rps(*late, system.sustained, full=True)
    rates = (stream.rate_per_s, sustained)
    return ServingReport(
        title=f"{_title(system)}: {stream_words(found.requests, inputs)}",
        not_modelled=tuple(_unmodelled(given, system, stream, found.preemptions > 0)),
        saturation_rps=sustained,
        overloaded=given.concurrency is None and overloaded(*late, rates, endless=inputs.get("rate") is not None),
        settled=settled_run(found),
        requests=len(stream),
        makespan_s=span,
        ttft_s=found.statistics("ttft"),
        tpot_s=found.statistics("tpot"),
        e2e_s=found.statistics("e2e"),
        queue_s=found.statistics("queue"),
        output_tokens_per_s=found.output_tokens_per_s,
        total_tokens_per_s=(made + int(stream.input_tokens.sum())) / span,
        energy_j=joules,
        power_w=joules / span,
        clock_slowdown=found.clock_slowdown,
        cost_usd=cost,
        usd_per_mtok=cost / made * 1e6,
        preemptions=found.preemptions,
        steps=found.steps,
        busy_fraction=sum(pool["busy_fraction"] * pool["chips"] for pool in pools) / system.chips,
        kv_blocks=max(pool.limits.kv_blocks for pool in system.pools),
        peak_kv_blocks=found.peak_kv_blocks,
        cache_hit_rate=found.cache_hit_rate,
        inputs=inputs,
        resolved=given.pools[0].replica.resolved,
        bands=_bands(system, found, stream, joules, given.concurrency),
        pools=pools,
        run=found,
    )


def _pool_use(system: PooledSystem, run: SystemRun, span: float) -> Iterator[dict[str, Any]]:
    """What each pool did, drew and cost."""
    whole = sum(pool.usd_h for pool in system.pools)
    for pool, runs in system.runs_of(run):
        joules = pool_energy_j(pool, runs, span)
        blocks = pool.limits.kv_blocks
        yield {
            "role": pool.role,
            "label": pool.label,
            "replicas": pool.spec.replicas,
            "chips": pool.chips,
            "requests": sum(len(one.requests) for one in runs),
            "busy_fraction": sum(min(one.busy_s / span, 1.0) for one in runs) / pool.spec.replicas,
            "peak_kv_share": max((one.peak_kv_blocks for one in runs), default=0) / blocks,
            "preemptions": sum(one.preemptions for one in runs),
            "saturation_rps": pool.spec.replicas * pool.sustained,
            "energy_j": joules,
            "power_w": joules / span,
            "cost_usd": span / 3600 * pool.usd_h,
            "cost_share": pool.usd_h / whole if whole else 0.0,
        }


def _title(system: PooledSystem) -> str:
    first = system.pools[0]
    name = catalog.model_title(first.deployment.model.name)
    version = ".".join(first.engine.version.split(".")[:2])
    joined = " + ".join(f"{_role(pool)}{pool.label}" for pool in system.pools)
    return f"{name}, {joined}, {first.engine.title} {version}"


def _role(pool: BoundPool) -> str:
    return "" if pool.role == BOTH else f"{pool.role} "


def _inputs(given: PoolsInput, system: PooledSystem, requests: int) -> dict[str, Any]:
    first = system.pools[0]
    pools = [pool_to_dict(pool.planned) for pool in system.pools]
    return {
        "model": first.spec.replica.reference,
        "on": "+".join(f"{pool.deployment.pool.chip.reference}:{pool.chips}" for pool in system.pools),
        "engine": f"{first.engine.name}@{first.engine.version}",
        "pools": pools,
        "router": given.router,
        **({"kv_transfer": given.kv_transfer} if system.transfer else {}),
        **dict(given.asked),
        "requests": requests,
    }


def _unmodelled(given: PoolsInput, system: PooledSystem, stream: Requests, preempted: bool) -> Iterator[NotModelled]:
    listed: dict[tuple[str, str], NotModelled] = {}
    for pool in system.pools:
        spec = pool.spec.replica
        idle = idle_settings(pool.engine, pool.deployment, spec.settings, stream, preempted)
        for one in pool.engine.not_modelled(spec.settings, pool.deployment, idle, under_load=True):
            listed[one.option, one.why] = one
        listed |= {(one.option, one.why): one for one in assumed_by(pool.deployment)}
    yield from listed.values()
    if system.transfer:
        yield from UNSENT
    elif given.kv_transfer != "whole":
        yield NotModelled(option=f"--kv-transfer {given.kv_transfer}", why="no KV cache is sent between these pools")
    several = [stage for stage in system.stages if sum(pool.spec.replicas for pool in stage) > 1]
    if given.router != ROUTERS[0] and not several:
        yield NotModelled(option=f"--router {given.router}", why="every role has one replica, which gets all requests")
    elif given.router not in (*LOAD_AWARE, "weighted") and any(pool.spec.weight is not None for pool in system.pools):
        yield NotModelled(option="weight", why=f"the router {given.router} does not go by weights")
    yield from idle_seed(given.load, given.trace, stream, given.concurrency is not None)
    yield from idle_rate(given.load, stream)
    yield from unread_columns(stream, given.load, given.trace, [pool.limits for pool in system.pools])
    yield from unused_times(given.trace, given.concurrency)


def _bands(
    system: PooledSystem, found: ServingRun, stream: Requests, joules: float, clients: int | None
) -> dict[str, dict[str, Band]]:
    """Low and high, 90%, of every statistic: a part of the load again under draws that all pools share."""
    part = stream.first_sessions(PART)

    def figures(costs: Any) -> Mapping[str, Mapping[str, float]]:
        run = system.run(part, clients, costs)
        again = as_run(system, run)
        spent = sum(pool_energy_j(pool, runs, again.makespan_s) for pool, runs in system.runs_of(run))
        return _figures(system, again, spent)

    center, *draws = (figures(costs) for costs in drawn_costs(system, DRAWN, part.longest))
    return {
        metric: {
            name: band_of(value, center[metric][name], [d[metric][name] for d in draws]) for name, value in by.items()
        }
        for metric, by in _figures(system, found, joules).items()
    }


def _figures(system: PooledSystem, run: ServingRun, joules: float) -> dict[str, dict[str, float]]:
    """By the names of a `ServingReport`."""
    tokens, span = float(run.requests.output_tokens.sum()), run.makespan_s
    cost = span / 3600 * sum(pool.usd_h for pool in system.pools)
    means = {
        "output_tokens_per_s": run.output_tokens_per_s,
        "total_tokens_per_s": (tokens + float(run.requests.input_tokens.sum())) / span,
        "makespan_s": span,
        "energy_j": joules,
        "power_w": joules / span,
        "cost_usd": cost,
        "usd_per_mtok": cost / tokens * 1e6,
    }
    times = {f"{metric}_s": run.statistics(metric) for metric in METRICS}
    return times | {name: {"mean": value} for name, value in means.items()}


def refuse_steps(record: object | None) -> None:
    """Refuse to keep the steps of pools."""
    if record is not None:
        raise InputError("pools keep no steps", where="--trace-out", hint="Leave it out, or give --on.")
