"""A served load run for real on one replica: measured against predicted, part by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.engines.operations import Operations
from gnomon.errors import InputError
from gnomon.execution.parts import part as row
from gnomon.export.base import operated, require_techniques
from gnomon.load import config_of, draw
from gnomon.load import model as load_model
from gnomon.load.deployments import deploy
from gnomon.load.fleet import parse_pool
from gnomon.load.measured import Measured, MeasuredLoad, times_of
from gnomon.planning.deploy import title_of
from gnomon.planning.serving.bands import bands
from gnomon.sim.serving import simulate
from gnomon.spec import Batch, Plan, Requests, ServingLoad
from gnomon.spec.answers import Verified
from gnomon.techniques import beyond_config

LEAST_REQUESTS = 500
"""Fewer requests leave too few for a median that repeats."""


def measure(
    plan: Plan,
    *,
    rates: Sequence[float] | None = None,
    probe: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Measured:
    """Run the plan's load for real on one replica."""
    from gnomon.calibrate.engine import parts as measure_parts

    tell = progress or (lambda text: None)
    engine = _runnable(plan)
    streams = list(_streams(plan, rates))
    config = config_of(plan.model)
    if not config:
        hint = "Give a folder with the config.json of such a network."
        raise InputError("holds shapes only, and an engine needs a config.json", where=plan.model, hint=hint)
    tell(f"starting {plan.engine.name} with dummy weights")
    with engine.runner(plan, config) as runner:
        tell("warming up")
        runner.replay(_warm_up(streams[0]))
        probes = measure_parts(runner, plan.model) if probe else []
        loads = []
        for rate, stream in streams:
            tell(f"{len(stream):,} requests at {rate:g} requests/s")
            run = runner.replay(stream)
            loads.append(
                MeasuredLoad(
                    rate_per_s=rate,
                    requests=stream,
                    scheduled_s=run.scheduled_s,
                    first_token_s=run.first_token_s,
                    finish_s=run.finish_s,
                )
            )
        return Measured(
            plan=plan,
            date=time.strftime("%Y-%m-%d"),
            versions=engine.versions(),
            settings=runner.settings(),
            loads=tuple(loads),
            probes=tuple(probes),
        )


def _runnable(plan: Plan) -> Operations:
    """What runs the plan. Raises for what the engine would run otherwise than the plan says: the measurement would be
    of something else."""
    engine = operated(plan)
    beyond = beyond_config(plan.strategy.techniques)
    if beyond:
        message = f"{engine.TITLE} does not know the technique {beyond[0]}"
        raise InputError(
            message, where="strategy.techniques", hint="Only plans that it runs as they are can be checked."
        )
    require_techniques(plan)
    for name in ("pp", "dp"):
        if getattr(plan.strategy, name) > 1:
            message = f"a load on a replica of {name} {getattr(plan.strategy, name)} is not simulated"
            raise InputError(message, where=f"strategy.{name}", hint="Verify a plan with tensor parallelism alone.")
    engine.check_measured(plan)
    return engine


def _streams(plan: Plan, rates: Sequence[float] | None) -> Iterator[tuple[float, Requests]]:
    if not isinstance(plan.load, ServingLoad):
        raise InputError("the plan has no load to replay", where="load", hint="Make it with `gnomon plan serve`.")
    asked: Sequence[float | None] = rates or [plan.load.rate_per_s]
    for rate in asked:
        share = None if rate is None else rate / plan.replicas
        stream = draw(replace(plan.load, rate_per_s=share, requests=max(plan.load.requests, LEAST_REQUESTS)))
        yield stream.rate_per_s if share is None else share, stream


def _warm_up(first: tuple[float, Requests]) -> Requests:
    """The first requests of the load, all at once and cut short: shapes the engine has not met are compiled now."""
    stream = first[1]
    few = min(32, len(stream))
    return Requests(np.zeros(few), stream.input_tokens[:few], np.minimum(stream.output_tokens[:few], 16))


def compare(measured: Measured) -> Verified:
    """Today's prediction beside a measurement, new or old."""
    engine, deployment = _deployed(measured)
    parts = [_memory_part(engine, deployment, measured), *_load_parts(engine, deployment, measured)]
    parts += _probe_parts(engine, deployment, measured)
    return Verified(
        title=f"{title_of(engine, deployment)}: measured {measured.date} against predicted",
        parts=tuple(parts),
        conditions={"date": measured.date, **measured.versions},
        measured={"settings": dict(measured.settings), "loads": [load.rate_per_s for load in measured.loads]},
        plan=measured.plan,
    )


def _deployed(measured: Measured) -> tuple[Engine, Deployment]:
    plan = measured.plan
    return deploy(
        load_model(plan.model),
        parse_pool(f"{plan.chip}:{plan.ranks}"),
        strategy=plan.strategy,
        dtype=plan.dtype,
        kv_dtype=plan.kv_dtype,
        engine=replace(plan.engine, settings=operated(plan).as_measured(plan.engine.settings)),
    )


def _memory_part(engine: Engine, deployment: Deployment, measured: Measured) -> dict[str, Any]:
    ours = float(engine.memory(deployment).kv_blocks + 1)
    return row("memory", "KV blocks", float(measured.settings["kv_blocks"]), ours, "blocks")


def _load_parts(engine: Engine, deployment: Deployment, measured: Measured) -> Iterator[dict[str, Any]]:
    cost, limits = engine.step_cost(deployment), engine.limits(deployment)
    names = {"queue": "waiting", "prefill": "prompt to first token", "ttft": "TTFT", "decode": "TPOT"}
    banded = {"ttft": "ttft_s", "decode": "tpot_s"}
    for load in measured.loads:
        run = simulate(load.requests, cost, limits)
        ours = times_of(load.requests, run.scheduled_s, run.first_token_s, run.finish_s)
        edges = bands(engine, deployment, run)
        for part, label in names.items():
            for statistic, level in (("p50", 0.5), ("p90", 0.9)):
                if part == "decode" and (load.requests.output_tokens < 2).all():
                    continue
                theirs, mine = (float(np.nanquantile(side[part], level)) for side in (load.times, ours))
                band = edges[banded[part]][statistic] if part in banded else None
                yield row(part, f"{label} {statistic}", theirs, mine, "s", rate=load.rate_per_s, band=band)


def _probe_parts(engine: Engine, deployment: Deployment, measured: Measured) -> Iterator[dict[str, Any]]:
    cost, limits = engine.step_cost(deployment), engine.limits(deployment)
    model = engine.step_model(deployment)
    for probe in measured.probes:
        if probe["kind"] == "prompt":
            alone = Requests(np.zeros(1), np.array([probe["tokens"]]), np.ones(1, np.int64))
            ours = float(simulate(alone, cost, limits).ttft_s[0])
            yield row("prompt alone", f"{probe['tokens']:,} tokens", probe["time_s"], ours, "s")
        elif probe["kind"] == "decode" and probe["sequences"] <= limits.max_sequences:
            step = model.price(Batch.decode(probe["sequences"], probe["context"])).time_s
            what = f"{probe['sequences']:,} sequences at context {probe['context']:,.0f}"
            yield row("decode alone", what, probe["time_s"], step.value, "s", band=(step.low, step.high))
