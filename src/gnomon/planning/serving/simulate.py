"""A load on one replica, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.planning.deploy import ReplicaSpec, set_flags, title_of
from gnomon.planning.serving.bands import bands
from gnomon.planning.serving.evaluator import is_full
from gnomon.planning.serving.goals import with_bands
from gnomon.planning.serving.images import with_images
from gnomon.planning.serving.results import ResultOptions, results
from gnomon.planning.serving.slots import slots_of_run
from gnomon.planning.serving.unread import idle_settings, unread_columns, unused_times
from gnomon.planning.steps.energy import energy_j
from gnomon.planning.unmodelled import assumed_by, idle_beyond, idle_rate, idle_seed, in_files, on_disks, set_aside
from gnomon.search.judge import is_settled, overloaded, sustained_rps
from gnomon.sim.serving import Recorder, RunLog, ServingRun, saturation_rps, simulate
from gnomon.sim.serving.closed import simulate_closed
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.answers import ServingReport
from gnomon.spec.drawing import draw
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Ints, RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationInput:
    """A replica and the load that it gets."""

    replica: ReplicaSpec
    load: ServingLoad
    trace: RequestTrace | None
    """What the load's trace says, where it has one."""
    asked: Mapping[str, Any]
    """The load as it was asked for, for the answer's inputs."""
    concurrency: int | None = None
    """Clients of a closed loop, where it is one."""
    options: ResultOptions = field(default_factory=ResultOptions)


def simulate_replica(
    given: SimulationInput, record: Recorder | None = None, progress: Callable[[int], None] | None = None
) -> ServingReport:
    """Serve the load and report the latencies that clients see."""
    replica, load = given.replica, given.load
    engine, deployment = replica.engine, with_images(replica.engine, replica.deploy(), load.images)
    closed = given.concurrency is not None
    drawn = draw(load, given.trace, closed=closed)
    stream = deployment.techniques.requests(drawn, deployment)
    cost, limits = engine.step_cost(deployment, stream.longest), engine.limits(deployment)
    check_lengths(stream, load.trace, given.trace if stream is drawn else None, replica, limits.max_context)
    log = RunLog()
    opened = given.concurrency is None and stream.follows is None
    if opened:
        run = simulate(stream, cost, limits, record=record, progress=progress, log=log)
    else:
        _refuse_record(record, given.concurrency)
        run = simulate_closed(stream, given.concurrency, cost, limits, log)

    def within(other: ServingLimits) -> ServingRun:
        return simulate(stream, cost, other) if opened else simulate_closed(stream, given.concurrency, cost, other)

    idle = (
        *set_aside(engine, deployment, replica.settings),
        *idle_settings(engine, deployment, replica.settings, stream, preempted=run.preemptions > 0),
    )
    unmodelled = (
        *engine.not_modelled(replica.settings, deployment, idle, under_load=True),
        *idle_beyond(deployment.pool, deployment.strategy.ranks),
        *in_files(deployment.pool, deployment.model, disks=on_disks(engine, deployment)),
        *idle_seed(load, given.trace, drawn, closed),
        *assumed_by(deployment),
        *idle_rate(load, stream),
        *unread_columns(stream, load, given.trace, [limits]),
        *unused_times(given.trace, given.concurrency),
    )
    inputs = replica.inputs(deployment) | dict(given.asked) | {"requests": len(stream)}
    if load.images is not None and stream.images is None:
        inputs |= {"images": load.images.text}
    times = run.requests.arrival_s, run.first_token_s, run.finish_s
    sustained = sustained_rps(*times, saturation_rps(stream, cost, limits), full=is_full(run, limits))
    found = results(run, log, deployment, given.options)
    found |= {"slots": slots_of_run(run, limits, stream.adapters, within)}
    answer = _report(engine, deployment, run, inputs, stream=stream, sustained=sustained, found=found)
    return replace(answer, resolved=replica.resolved, not_modelled=unmodelled, sessions=_sessions(stream.sessions, run))


def check_calls(record: object, progress: object) -> None:
    """Raise InputError for what keeps no steps, or cannot be called with the requests done."""
    if record is not None and not isinstance(record, Recorder):
        hint = "Give gnomon.sim.serving.Recorder(), or leave it out."
        raise InputError(f"{type(record).__name__} is no Recorder of steps", where="record", hint=hint)
    if progress is not None and not callable(progress):
        hint = "Give one that takes the number of requests done, or leave it out."
        raise InputError(f"{type(progress).__name__} is no function", where="progress", hint=hint)


def _sessions(of: Ints | None, run: ServingRun) -> Ints | None:
    """In the order of the run."""
    return of if of is None or run.order is None else of[run.order]


def _refuse_record(record: Recorder | None, clients: int | None) -> None:
    if record is not None:
        what, hint = ("sessions keep", "") if clients is None else ("a closed loop keeps", ", or give a --rate")
        raise InputError(f"{what} no steps", where="--trace-out", hint=f"Leave it out{hint}.")


def _report(
    engine: Engine,
    deployment: Deployment,
    run: ServingRun,
    inputs: Mapping[str, Any],
    *,
    stream: Requests,
    sustained: float,
    found: Mapping[str, Any],
) -> ServingReport:
    chip, ranks, grid = deployment.pool.chip, deployment.strategy.ranks, deployment.pool.grid
    cost = run.makespan_s / 3600 * ranks * chip.price_usd_h
    clients = inputs.get("concurrency")
    made, joules = int(run.requests.output_tokens.sum()), energy_j(deployment, run)
    drawn = bands(engine, deployment, run, stream, sustained=sustained, clients=clients)
    return ServingReport(
        title=f"{title_of(engine, deployment)}: {stream_words(run.requests, inputs)}{_image_words(inputs, stream)}",
        saturation_rps=sustained,
        overloaded=clients is None
        and overloaded(
            run.requests.arrival_s,
            run.first_token_s,
            run.finish_s,
            (run.requests.rate_per_s, sustained),
            endless=inputs.get("rate") is not None,
        ),
        settled=settled_run(run),
        requests=len(run.requests),
        makespan_s=run.makespan_s,
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
        cache_hit_rate=run.cache_hit_rate,
        inputs=inputs,
        bands=drawn,
        run=run,
        **{**found, "goals": with_bands(found.get("goals", ()), drawn)},
    )


def settled_run(run: ServingRun) -> bool | None:
    """Whether a run shows a steady state; None where all requests arrive at one moment."""
    if run.requests.rate_per_s == float("inf"):
        return None
    return is_settled(run.requests.arrival_s, run.finish_s)


def check_lengths(stream: Requests, file: str, trace: RequestTrace | None, replica: ReplicaSpec, longest: int) -> None:
    """Refuse the first request, of a trace's `file` where it is one, that is longer than the context (`longest`)."""
    if stream.longest <= longest:
        return
    named = stream if trace is None else trace.requests  # in the order of the file, which says where it stands
    total = named.input_tokens + named.output_tokens
    place = int(np.argmax(total > longest))
    tokens = int(total[place])
    where = "--input, --output" if trace is None else f"{file} {trace.spot_of(place)}"
    hint = f"Shorten it to at most {longest:,}"
    if tokens <= replica.model.max_context:
        hint += f", or allow longer sequences: {set_flags(replica.engine.settings_for(context=tokens))}"
    message = f"prompt and output are {tokens:,} tokens, more than the context of {longest:,}"
    raise InputError(message, where=where, hint=f"{hint}.")


def _image_words(inputs: Mapping[str, Any], stream: Requests) -> str:
    if stream.images is not None:
        return f", {int(stream.images.sum()):,} images in all"
    images = inputs.get("images")
    return f", {RequestImages.read(images).words}" if images else ""


def stream_words(requests: Requests, inputs: Mapping[str, Any]) -> str:
    """The load in a title."""
    if len(requests) == 1:
        return "1 request"
    asked, clients = inputs.get("rate"), inputs.get("concurrency")
    if clients is not None:
        return f"{len(requests):,} requests of {clients:,} client{'s' * (clients != 1)} in a closed loop"
    rate = requests.rate_per_s if asked is None else asked
    pattern = "all at once" if rate == float("inf") else f"at {rate:.3g} requests/s"
    return f"{len(requests):,} requests {pattern}"
