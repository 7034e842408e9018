"""A load on one replica, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.load import draw
from gnomon.load import model as load_model
from gnomon.load.traces import line_of
from gnomon.planning.deploy import deploy_named, title_of, whole
from gnomon.planning.serving.bands import bands
from gnomon.planning.steps.energy import energy_j
from gnomon.planning.steps.network_words import refuse_beside
from gnomon.planning.unmodelled import idle_beyond, idle_rate, idle_seed, in_files, set_aside
from gnomon.search.judge import is_settled, overloaded
from gnomon.sim.serving import Recorder, ServingRun, saturation_rps, simulate
from gnomon.spec import Model, NotModelled, Requests, ServingLoad
from gnomon.spec.answers import Resolved, ServingReport
from gnomon.techniques import asked
from gnomon.units import parse_rate


def simulate_serving(
    model: str | Path | Model,
    *,
    on: str,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str = "vllm",
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    dp: int = 1,
    trace: str | None = None,
    rate: float | None = None,
    input: int | None = None,
    output: int | None = None,
    requests: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    techniques: Sequence[str] = (),
    record: Recorder | None = None,
    progress: Callable[[int], None] | None = None,
) -> ServingReport:
    """Serve a trace, or requests drawn at a rate, and give the times the clients see.

    Degrees whose steps are not those of one scheduler, one after another (pipelines, data parallelism), are refused.
    `techniques` are named as in a plan: `int4-weights`.
    """
    ideas = asked(techniques)
    found = model if isinstance(model, Model) else load_model(model)
    refuse_beside(found, ideas)
    chosen, deployment, words = deploy_named(
        found, on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp, settings=settings,
        techniques=ideas,
    )  # fmt: skip
    words |= {"model": found.name if isinstance(model, Model) else str(model)}
    load = ServingLoad(
        trace=trace or "",
        rate_per_s=None if rate is None else parse_rate(rate, "--rate"),
        input_tokens=None if input is None else whole(input, "--input"),
        output_tokens=None if output is None else whole(output, "--output"),
        requests=whole(requests, "--requests") if requests is not None else (0 if trace else 1000),
        seed=whole(seed, "--seed"),
    )
    stream = draw(load)
    cost, limits = chosen.step_cost(deployment), chosen.limits(deployment)
    _check_lengths(stream, load, limits.max_context, found.max_context)
    run = simulate(stream, cost, limits, record=record, progress=progress)
    load_words = {
        "trace": trace,
        "rate": load.rate_per_s,
        "input": input,
        "output": output,
        "requests": len(stream),
        "seed": seed,
    }
    unmodelled = (
        *chosen.not_modelled(words["settings"], deployment.pool.chip, set_aside(chosen, deployment, words["settings"])),
        *idle_beyond(deployment.pool, deployment.strategy.ranks),
        *in_files(deployment.pool, deployment.model),
        *idle_seed(load, stream),
        *idle_rate(load, stream),
    )
    answer = _report(
        chosen,
        deployment,
        run,
        words | load_words,
        sustained=saturation_rps(stream, cost, limits),
        unmodelled=unmodelled,
    )
    return replace(answer, resolved=Resolved.of(found, deployment.pool))


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
    made, joules = int(run.requests.output_tokens.sum()), energy_j(engine, deployment, run)
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
        bands=bands(engine, deployment, run),
        run=run,
    )


def _settled(run: ServingRun) -> bool | None:
    if run.requests.rate_per_s == float("inf"):
        return None
    return is_settled(run.requests.arrival_s, run.finish_s)


def _check_lengths(stream: Requests, load: ServingLoad, longest: int, most: int) -> None:
    """Refuse the first request that is longer than sequences may be here (`longest`), or for the model (`most`)."""
    total = stream.input_tokens + stream.output_tokens
    if int(total.max()) <= longest:
        return
    place = int(np.argmax(total > longest))
    tokens = int(total[place])
    where = f"{load.trace} line {line_of(load.trace, place)}" if load.trace else "--input, --output"
    hint = f"Shorten it to at most {longest:,}"
    if tokens <= most:
        hint += f", or allow longer sequences: --set max_model_len={tokens}"
    message = f"prompt and output are {tokens:,} tokens, more than the context of {longest:,}"
    raise InputError(message, where=where, hint=f"{hint}.")


def _stream(requests: Requests, asked: float | None) -> str:
    if len(requests) == 1:
        return "1 request"
    rate = requests.rate_per_s if asked is None else asked
    pace = "all at once" if rate == float("inf") else f"at {rate:.3g} a second"
    return f"{len(requests):,} requests {pace}"
