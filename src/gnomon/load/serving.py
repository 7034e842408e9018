"""Questions about loads made into objects: requests, goals, and the replicas or the fleet that serve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.graph.dtypes import width
from gnomon.load.deployments import POWER_LIMIT, bind, bind_each, found_model, limited, replica_of
from gnomon.load.fleet import parse_fleet
from gnomon.load.goals import duration_text, goals_of
from gnomon.load.hf import YAML
from gnomon.load.plan import plan_pool
from gnomon.load.pools import planned_pools, pools_of, refuse_pool_flags
from gnomon.load.trace_images import refuse_images, refuse_images_beside, with_images_of
from gnomon.load.traces import located_lengths, trace_of, with_lengths
from gnomon.planning.serving.pools import PoolsInput
from gnomon.planning.serving.results import ResultOptions
from gnomon.planning.serving.searched import FULL_REQUESTS
from gnomon.planning.serving.simulate import SimulationInput
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.steps.network_words import refuse_beside
from gnomon.search import objective
from gnomon.search.arrivals import Arrivals
from gnomon.spec import Cluster, EngineChoice, Model, Plan, ServingLoad
from gnomon.spec.loads.arrivals import arrivals_of
from gnomon.spec.loads.check import check_load
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.popularity import Adapters, SharedPrefix, priorities_of
from gnomon.spec.plan import KV_TRANSFERS, POOL_KINDS, ROUTERS
from gnomon.spec.questions.serving import DrawnLoadQuestion, PlanServingQuestion, SimulateServingQuestion
from gnomon.techniques import asked

AUTO_TECHNIQUES = "auto"
"""In the place of a technique: those that help."""
SIMULATED = 1000
"""Requests of a load that does not say how many."""
DESCRIBED = ("arrivals", "prefix", "turns", "adapters", "priorities", "images", "concurrency")
"""Fields of a question that an answer repeats where they are given."""


def simulation_of(question: SimulateServingQuestion) -> SimulationInput | PoolsInput:
    """The replica or the pools, and the load, of `simulate serve`."""
    if question.pools:
        pools = pools_of(question)
        if question.images:
            raise InputError("is for one replica, not for pools", where="--images", hint="Leave it out.")
        load, asked = _simulated_load(question)
        trace = trace_of(load)
        refuse_images(trace, "requests with images are served by one replica, not by pools")
        return PoolsInput(
            pools=pools, router=question.router, kv_transfer=question.kv_transfer, load=load, trace=trace,
            asked=asked, concurrency=question.concurrency, options=_options(question),
        )  # fmt: skip
    refuse_pool_flags(question)
    replica = replica_of(question, question.engine, power_limit_w=question.power_limit_w)
    load, asked = _simulated_load(question)
    trace = trace_of(load)
    refuse_images_beside(trace, concurrency=question.concurrency)
    return SimulationInput(
        replica=replica,
        load=with_images_of(load, trace, replica.model),
        trace=trace,
        asked=asked,
        concurrency=question.concurrency,
        options=_options(question),
    )


def _options(question: SimulateServingQuestion) -> ResultOptions:
    return ResultOptions(goals=goals_of(question.slo), series=question.series)


def _simulated_load(question: SimulateServingQuestion) -> tuple[ServingLoad, dict[str, Any]]:
    """The load, and what of it an answer repeats."""
    load = load_of(question, str(question.trace or ""), SIMULATED)
    if question.concurrency is not None:
        _check_closed(load)
    asked = {name: getattr(question, name) for name in ("trace", "rate", "input", "output", "requests", "seed")}
    asked |= {name: getattr(question, name) for name in DESCRIBED if getattr(question, name) is not None}
    if question.think is not None:
        asked["think_s"] = question.think
    goals = goals_of(question.slo)
    if goals:
        asked["slo"] = ",".join(f"{goal.name}={duration_text(goal.limit_s)}" for goal in goals)
    return load, asked


def load_of(question: DrawnLoadQuestion, trace: str, requests: int) -> ServingLoad:
    """Without a number of requests, all of a trace or so many drawn ones."""
    assert question.rate is None or isinstance(question.rate, float)
    assert question.think is None or isinstance(question.think, (int, float))
    load = ServingLoad(
        trace=trace,
        rate_per_s=question.rate,
        input_tokens=None if question.input is None else lengths_of(question.input, "--input"),
        output_tokens=None if question.output is None else lengths_of(question.output, "--output"),
        requests=(0 if trace else requests) if question.requests is None else question.requests,
        seed=question.seed or 0,
        arrivals=None if question.arrivals is None else arrivals_of(question.arrivals),
        prefix=None if question.prefix is None else SharedPrefix.read(question.prefix, "--prefix"),
        turns=question.turns or 1,
        think_s=question.think or 0.0,
        adapters=None if question.adapters is None else Adapters.read(str(question.adapters), "--adapters"),
        priorities=() if question.priorities is None else priorities_of(question.priorities),
        images=None if question.images is None else RequestImages.read(str(question.images)),
    )
    check_load(load)
    return with_lengths(load)


def _check_closed(load: ServingLoad) -> None:
    """Refuse a rate beside clients who wait for their answers."""
    for flag, given in {"--rate": load.rate_per_s, "--arrivals": load.arrivals}.items():
        if given is not None:
            hint = f"Leave {flag} out, or --concurrency."
            raise InputError("clients of a closed loop send when they have an answer", where=flag, hint=hint)


def plan_of(question: PlanServingQuestion) -> PlanTask:
    """The load, the goals and the fleet of `plan serve`."""
    given = asked(question.techniques)
    techniques = tuple(name for name in given if name != AUTO_TECHNIQUES)
    objective(question.objective or "cost")
    if question.router not in ROUTERS:
        raise unknown_name("router", question.router, ROUTERS, where="--router")
    if question.pools not in POOL_KINDS:
        raise unknown_name("kind of pools", question.pools, POOL_KINDS, where="--pools")
    if question.kv_transfer not in KV_TRANSFERS:
        raise unknown_name("KV transfer", question.kv_transfer, KV_TRANSFERS, where="--kv-transfer")
    goals, engine = goals_of(question.slo), _engine(question)
    fleet = parse_fleet(question.fleet)
    fleet = replace(fleet, pools=tuple(limited(pool, question.power_limit_w) for pool in fleet.pools))
    model = found_model(question.model)
    refuse_beside(model, techniques)
    if question.images is not None and question.pools != "aggregated":
        raise InputError("images are simulated on equal replicas alone", where="--images", hint="Leave --pools out.")
    dtypes = None if question.dtypes is None else _checked(question.dtypes)
    if not question.trace and (question.input is None or question.output is None):
        hint = "Describe the load by --rate, --input and --output, or by --trace."
        raise InputError("the load has no lengths", where="--input, --output", hint=hint)
    load = located_lengths(load_of(question, absolute(question.trace) if question.trace else "", FULL_REQUESTS))
    trace = trace_of(load)
    if question.pools != "aggregated":
        refuse_images(trace, "images are simulated on equal replicas alone")
    refuse_images_beside(trace, router=question.router)
    load = with_images_of(load, trace, model)
    return PlanTask(
        model=model,
        reference=_reference(question.model, model),
        fleet=fleet,
        bindings={each.pool.chip.name: each for each in bind_each(fleet.pools, engine.label, limit=POWER_LIMIT)},
        engine=engine,
        load=Arrivals(load, question.router, trace),
        goals=goals,
        asked_objective=question.objective,
        dtypes=dtypes,
        kv_dtype=question.kv_dtype,
        techniques=techniques,
        requests=question.requests,
        pools=question.pools,
        kv_transfer=question.kv_transfer,
        by_rate=question.by_rate,
        weigh=len(techniques) < len(given),
        sensitivity=question.sensitivity,
        asked=_asked(question),
    )


def _asked(question: PlanServingQuestion) -> dict[str, Any]:
    """What was given, where all of it can be written on a command line again."""
    given = {one.name: getattr(question, one.name) for one in fields(question)}
    usual = {one.name: one.default for one in fields(question)}
    given = {name: value for name, value in given.items() if value is not None and value != usual[name]}
    written = all(isinstance(value, (str, int, float, Path, tuple, list, dict)) for value in given.values())
    return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()} if written else {}


def _engine(question: PlanServingQuestion) -> EngineChoice:
    given, settings = question.engine, dict(question.settings or {})
    if isinstance(given, EngineChoice):
        return EngineChoice(name=given.name, version=given.version, settings=dict(given.settings) | settings)
    name, _, version = given.partition("@")
    return EngineChoice(name=name, version=version, settings=settings)


def _checked(dtypes: Sequence[str]) -> tuple[str, ...]:
    for dtype in [dtypes] if isinstance(dtypes, str) else dtypes:
        width(dtype)
    named = (dtypes,) if isinstance(dtypes, str) else tuple(dict.fromkeys(dtypes))
    if not named:
        raise InputError("there is no number format to plan with", where="dtypes", hint="Name one, such as bf16.")
    return named


def task_of(plan: Plan) -> PlanTask:
    """The load and the goals of a plan, on its own chips."""
    assert isinstance(plan.load, ServingLoad)
    pool = plan_pool(plan)
    return PlanTask(
        model=found_model(plan.model),
        reference=plan.model,
        fleet=Cluster(pools=(pool,)),
        bindings={pool.chip.name: bind(pool, plan.engine.label)},
        engine=plan.engine,
        load=Arrivals(with_lengths(plan.load), plan.router, trace_of(plan.load)),
        goals=plan.goals,
        asked_objective=None,
        dtypes=(plan.dtype,),
        kv_dtype=plan.kv_dtype,
        techniques=plan.strategy.techniques,
        requests=None,
    )


def pools_task(plan: Plan) -> PoolsInput:
    """The load of a plan on its own pools."""
    load = plan.load
    assert isinstance(load, ServingLoad)
    asked = {
        "trace": load.trace or None, "rate": load.rate_per_s, "input": load.input_tokens, "output": load.output_tokens,
        "requests": load.requests, "seed": load.seed,
    }  # fmt: skip
    return PoolsInput(
        pools=planned_pools(plan),
        router=plan.router,
        kv_transfer=plan.kv_transfer,
        load=with_lengths(load),
        trace=trace_of(load),
        asked=asked,
    )


def absolute(trace: str | Path) -> str:
    """A file's whole path, so that the plan finds it from anywhere; the name of a known trace stays."""
    return str(Path(trace).resolve()) if Path(trace).is_file() else str(trace)


def _reference(given: str | Path | Model, model: Model) -> str:
    """A known model by its own name, any other by where its config stands."""
    if model.hub_id or not model.source:
        return model.name
    source = Path(model.source)
    return str(given) if not isinstance(given, Model) else str(source if source.suffix in YAML else source.parent)
