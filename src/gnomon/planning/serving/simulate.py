"""A load on one replica, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.planning.deploy import ReplicaSpec, set_flags, title_of
from gnomon.planning.serving.bands import bands
from gnomon.planning.steps.energy import energy_j
from gnomon.planning.unmodelled import idle_beyond, idle_rate, idle_seed, in_files, set_aside
from gnomon.search.judge import is_settled, overloaded
from gnomon.sim.serving import Recorder, ServingRun, saturation_rps, simulate
from gnomon.spec import NotModelled, Requests, ServingLoad
from gnomon.spec.answers import ServingReport
from gnomon.spec.drawing import draw
from gnomon.spec.workload import RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationInput:
    """A replica and the load that it gets."""

    replica: ReplicaSpec
    load: ServingLoad
    trace: RequestTrace | None
    """What the load's trace says, where it has one."""
    asked: Mapping[str, Any]
    """The load as it was asked for, for the answer's inputs."""


def simulate_replica(
    given: SimulationInput, record: Recorder | None = None, progress: Callable[[int], None] | None = None
) -> ServingReport:
    """Serve the load and report the latencies that clients see."""
    replica, load = given.replica, given.load
    engine, deployment = replica.engine, replica.deploy()
    stream = draw(load, given.trace)
    cost, limits = engine.step_cost(deployment, stream.longest), engine.limits(deployment)
    _check_lengths(stream, given, limits.max_context)
    run = simulate(stream, cost, limits, record=record, progress=progress)
    unmodelled = (
        *engine.not_modelled(replica.settings, replica.pool.chip, set_aside(engine, deployment, replica.settings)),
        *idle_beyond(deployment.pool, deployment.strategy.ranks),
        *in_files(deployment.pool, deployment.model),
        *idle_seed(load, given.trace, stream),
        *idle_rate(load, stream),
    )
    inputs = replica.inputs(deployment) | dict(given.asked) | {"requests": len(stream)}
    sustained = saturation_rps(stream, cost, limits)
    answer = _report(engine, deployment, run, inputs, sustained=sustained, unmodelled=unmodelled)
    return replace(answer, resolved=replica.resolved)


def _report(
    engine: Engine,
    deployment: Deployment,
    run: ServingRun,
    inputs: Mapping[str, Any],
    *,
    sustained: float,
    unmodelled: tuple[NotModelled, ...],
) -> ServingReport:
    chip, ranks, grid = deployment.pool.chip, deployment.strategy.ranks, deployment.pool.grid
    cost = run.makespan_s / 3600 * ranks * chip.price_usd_h
    made, joules = int(run.requests.output_tokens.sum()), energy_j(deployment, run)
    return ServingReport(
        title=f"{title_of(engine, deployment)}: {_stream(run.requests, inputs.get('rate'))}",
        not_modelled=unmodelled,
        saturation_rps=sustained,
        overloaded=overloaded(
            run.requests.arrival_s,
            run.first_token_s,
            run.finish_s,
            (run.requests.rate_per_s, sustained),
            endless=inputs.get("rate") is not None,
        ),
        settled=_settled(run),
        requests=len(run.requests),
        makespan_s=run.makespan_s,
        ttft_s=run.statistics("ttft"),
        tpot_s=run.statistics("tpot"),
        e2e_s=run.statistics("e2e"),
        queue_s=run.statistics("queue"),
        output_tokens_per_s=run.output_tokens_per_s,
        total_tokens_per_s=(made + int(run.requests.input_tokens.sum())) / run.makespan_s,
        energy_j=joules,
        power_w=joules / run.makespan_s,
        clock_slowdown=run.clock_slowdown,
        co2_g=grid.co2_g(joules) if grid else None,
        grid=grid.told if grid else {},
        cost_usd=cost,
        usd_per_mtok=cost / made * 1e6,
        preemptions=run.preemptions,
        steps=run.steps,
        busy_fraction=min(run.busy_s / run.makespan_s, 1.0),
        kv_blocks=engine.limits(deployment).kv_blocks,
        peak_kv_blocks=run.peak_kv_blocks,
        inputs=inputs,
        bands=bands(engine, deployment, run, sustained),
        run=run,
    )


def _settled(run: ServingRun) -> bool | None:
    if run.requests.rate_per_s == float("inf"):
        return None
    return is_settled(run.requests.arrival_s, run.finish_s)


def _check_lengths(stream: Requests, given: SimulationInput, longest: int) -> None:
    """Refuse the first request that is longer than the context (`longest`)."""
    total = stream.input_tokens + stream.output_tokens
    if int(total.max()) <= longest:
        return
    place = int(np.argmax(total > longest))
    tokens = int(total[place])
    trace = given.trace
    where = "--input, --output" if trace is None else f"{given.load.trace} line {trace.line_of(place)}"
    hint = f"Shorten it to at most {longest:,}"
    if tokens <= given.replica.model.max_context:
        hint += f", or allow longer sequences: {set_flags(given.replica.engine.settings_for(context=tokens))}"
    message = f"prompt and output are {tokens:,} tokens, more than the context of {longest:,}"
    raise InputError(message, where=where, hint=f"{hint}.")


def _stream(requests: Requests, asked: float | None) -> str:
    if len(requests) == 1:
        return "1 request"
    rate = requests.rate_per_s if asked is None else asked
    pattern = "all at once" if rate == float("inf") else f"at {rate:.3g} requests/s"
    return f"{len(requests):,} requests {pattern}"
