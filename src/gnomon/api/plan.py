"""`plan_serving`: the best way to serve a load on a fleet within goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.api.plan_infeasible import no_plan
from gnomon.errors import InputError, named_as, unknown_name
from gnomon.graph.dtypes import width
from gnomon.load import model as load_model
from gnomon.load import parse_fleet
from gnomon.load.goals import goals_of
from gnomon.load.hf import YAML
from gnomon.planning.deploy import Binding
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.replicas import CONTEXT, Replicas, Setup
from gnomon.planning.serving.report import Question, report
from gnomon.planning.steps.network_words import refuse_beside
from gnomon.search import Level, PlanFamily, SearchJob, families, search
from gnomon.search import objective as named_objective
from gnomon.search.arrivals import Arrivals
from gnomon.search.best_first import Progress
from gnomon.spec import Cluster, EngineChoice, Goal, Model, Pool, ServingLoad, Strategy
from gnomon.spec.answers import PlanReport
from gnomon.spec.plan import ROUTERS
from gnomon.techniques import WHERE, DeploymentDraft, asked, served
from gnomon.units import parse_rate, parse_whole

SEARCH_REQUESTS = 2_000
TRACE_REQUESTS = 4_000
"""Requests of a sample; those of a trace differ more among each other."""
FULL_REQUESTS = 5_000
"""Requests of a full load, which is also the first of ever longer runs that a winner is judged by; a whole trace up to
`MOST_TRACE` of them."""
MOST_TRACE = 20_000
LEAST_REQUESTS = 400
"""Fewer tell nothing of a steady state."""
SEQUENCES, TOKENS = "max_num_seqs", "max_num_batched_tokens"
BUDGETS = {SEQUENCES: (64, 128, 256, 512, 1024), TOKENS: (2048, 4096, 8192, 16384)}
"""Step budgets to try where the settings do not fix them; the engine's default is tried first."""
NO_DEGREE = "the model cannot be cut over its chips"
Goals = str | Sequence[Goal] | Mapping[str, str]


def plan_serving(
    model: str | Model,
    *,
    fleet: str | Cluster,
    trace: str | Path | None = None,
    rate: float | str | None = None,
    input: int | None = None,
    output: int | None = None,
    requests: int | None = None,
    seed: int = 0,
    slo: Goals | None = "",
    objective: str | None = None,
    router: str = "random",
    engine: str | EngineChoice = "vllm",
    dtypes: Sequence[str] | None = None,
    kv_dtype: str = "bf16",
    settings: Mapping[str, Any] | None = None,
    techniques: Sequence[str] = (),
    progress: Progress | None = None,
) -> PlanReport:
    """The best plan of a fleet for a load within goals, and what it was weighed against.

    A plan is a chip, a tensor parallel degree, a number of equal replicas, a number format and two step budgets
    of the engine; the pools of a fleet are alternatives. Requests are assigned to replicas at random, as a Kubernetes
    Service does it, or by `router`: `round-robin`, `least-requests`. By cost (the default) the cheapest plan that
    meets the goals wins, which may leave chips unused; at equal price one that uses at most 90% of every limit, then
    the earlier of `dtypes`, then the most headroom, then the faster. `throughput` is the highest rate
    held within the goals on a whole pool, `latency` the least mean time of a request (to a percent, and cheapest),
    `energy` the fewest watt-hours per token. A load without a rate of its own (no `rate`, and no `trace` with times)
    is always planned for throughput.

    The winner is judged on at least `requests` requests of a replica (5,000, or a whole trace up to 20,000), the
    search on 2,000, or 4,000 of a trace from its calm and its busy stretches; a run goes on until it has settled, a
    trace that is too short for that with blocks of itself, and only the steady part counts. A goal is met where it is
    with 95% confidence, for which a winner's run is doubled, up to 80,000 requests. Money and energy are for a million
    output tokens. `techniques`, named as in a plan, go into every plan. `progress` is called with the plans decided and
    the plans there are.
    """
    ideas = asked(techniques)
    aim = named_objective(objective or "cost")
    if router not in ROUTERS:
        raise unknown_name("router", router, ROUTERS, where="--router")
    goals, chosen = goals_of(slo), _engine(engine, settings)
    cluster = fleet if isinstance(fleet, Cluster) else parse_fleet(fleet)
    network = model if isinstance(model, Model) else load_model(model)
    refuse_beside(network, ideas)
    fixed = _fixed_format(ideas, network, cluster, dtypes, kv_dtype)
    arrivals = Arrivals(_load(trace, rate, input, output, requests, seed), router)
    _check_asked(arrivals, goals, objective)
    _check_longest(arrivals, network, chosen)
    question = Question(
        model=network,
        reference=_reference(model, network),
        fleet=cluster,
        kv_dtype=kv_dtype,
        load=arrivals.load,
        router=router,
        job=SearchJob(
            goals=goals, rate_per_s=arrivals.rate_per_s, output_tokens=float(arrivals.whole.output_tokens.mean())
        ),
        objective=aim if arrivals.rate_per_s else named_objective("throughput"),
        techniques=ideas,
        settings=chosen.settings,
        requests=requests,
    )
    setup = Setup(
        model=network,
        bindings={each.pool.chip.name: each for each in Binding.each(cluster.pools, chosen.label)},
        engine=chosen,
        kv_dtype=kv_dtype,
        techniques=ideas,
    )
    tried = (fixed,) if fixed else _formats(setup.model) if dtypes is None else _checked(dtypes)
    space = _space(setup, cluster, tried)
    evaluator = ServingEvaluator(
        Replicas(setup, space, arrivals.longest), arrivals, goals, _counts(arrivals.load, requests)
    )
    found = search(space, evaluator, question.objective, question.job, progress=progress)
    if found.best is None:
        raise no_plan(question, found, evaluator)
    answer = report(question, found, evaluator)
    return replace(answer, left_out=_left_out(setup, cluster, tried, {family.chip for family in space}))


def _check_asked(arrivals: Arrivals, goals: tuple[Goal, ...], objective: str | None) -> None:
    if any(goal.metric == "tpot" for goal in goals) and not (arrivals.whole.output_tokens > 1).any():
        raise InputError("requests of one token have no time between tokens", where="--slo", hint="Drop the tpot goal.")
    if objective not in ("", "cost", "throughput", None) and not arrivals.rate_per_s:
        raise InputError(
            "a load without a rate is planned for throughput", where="--objective", hint="Give --rate, or leave it out."
        )


def _check_longest(arrivals: Arrivals, model: Model, engine: EngineChoice) -> None:
    """Every request has room in the context: the model's, or what the settings leave of it."""
    told = engine.settings.get(CONTEXT)
    most = min(model.max_context, told) if isinstance(told, int) else model.max_context
    if arrivals.longest > most:
        limit = f"{CONTEXT} {told:,}" if most == told else f"the {most:,} tokens {model.name} was made for"
        where = arrivals.load.trace or "--input, --output"
        raise InputError(f"a request of {arrivals.longest:,} tokens is longer than {limit}", where=where)


def _fixed_format(
    techniques: Sequence[str], model: Model, fleet: Cluster, dtypes: Sequence[str] | None, kv_dtype: str
) -> str | None:
    """The number format that techniques choose, where they do. Raises where one applies to no plan."""
    with named_as(WHERE, "--with"):
        ideas = served(techniques)
        ideas.check_simulated()
        named = () if dtypes is None else _checked(dtypes)
        told = named[0] if len(named) == 1 else None
        each = [
            DeploymentDraft(model=model, pool=pool, strategy=Strategy(), dtype=told, kv_dtype=kv_dtype)
            for pool in fleet.pools
        ]
        found = {ideas.settled(draft).dtype for draft in each} - {told}
    if found and dtypes is not None:
        message = f"the techniques choose weights in {', '.join(sorted(map(str, found)))}"
        raise InputError(message, where="--dtype", hint="Leave it out.")
    return found.pop() if len(found) == 1 else None


def _counts(load: ServingLoad, requests: int | None) -> dict[Level, int]:
    full = MOST_TRACE if load.trace else FULL_REQUESTS
    if requests is not None:
        full = max(LEAST_REQUESTS, min(requests, MOST_REQUESTS))
    sample = min(TRACE_REQUESTS if load.trace else SEARCH_REQUESTS, full)
    return {Level.SEARCH: sample, Level.TO_THE_END: full, Level.FULL: full, Level.SURE: full}


def _absolute(trace: str | Path) -> str:
    """A file's whole path, so that the plan finds it from anywhere; the name of a known trace stays."""
    return str(Path(trace).resolve()) if Path(trace).is_file() else str(trace)


def _load(
    trace: str | Path | None,
    rate: float | str | None,
    input: int | None,
    output: int | None,
    requests: int | None,
    seed: int,
) -> ServingLoad:
    if not trace and (input is None or output is None):
        hint = "Describe the load by --rate, --input and --output, or by --trace."
        raise InputError("the load has no lengths", where="--input, --output", hint=hint)
    return ServingLoad(
        trace=_absolute(trace) if trace else "",
        rate_per_s=None if rate is None else parse_rate(rate, "--rate"),
        input_tokens=None if input is None else parse_whole(input, "--input"),
        output_tokens=None if output is None else parse_whole(output, "--output"),
        requests=(0 if trace else FULL_REQUESTS) if requests is None else parse_whole(requests, "--requests"),
        seed=parse_whole(seed, "--seed", least=0),
    )


def _engine(engine: str | EngineChoice, settings: Mapping[str, Any] | None) -> EngineChoice:
    if isinstance(engine, EngineChoice):
        return EngineChoice(
            name=engine.name, version=engine.version, settings=dict(engine.settings) | dict(settings or {})
        )
    name, _, version = engine.partition("@")
    return EngineChoice(name=name, version=version, settings=dict(settings or {}))


def _formats(model: Model) -> tuple[str, ...]:
    """A narrow checkpoint runs as it is stored; of a wide one eight bits are tried too."""
    return (model.dtype,) if width(model.dtype) < width("bf16") else ("bf16", "fp8")


def _checked(dtypes: Sequence[str]) -> tuple[str, ...]:
    for dtype in [dtypes] if isinstance(dtypes, str) else dtypes:
        width(dtype)
    named = (dtypes,) if isinstance(dtypes, str) else tuple(dict.fromkeys(dtypes))
    if not named:
        raise InputError("there is no number format to plan with", where="dtypes", hint="Name one, such as bf16.")
    return named


def _reference(given: str | Model, model: Model) -> str:
    """A known model by its own name, any other by where its config stands."""
    if model.hub_id or not model.source:
        return model.name
    source = Path(model.source)
    return given if isinstance(given, str) else str(source if source.suffix in YAML else source.parent)


def _space(setup: Setup, fleet: Cluster, dtypes: tuple[str, ...]) -> list[PlanFamily]:
    def allowed(settings: Mapping[str, int]) -> bool:
        return settings.get(SEQUENCES, 1) <= settings.get(TOKENS, math.inf)

    def runs_in(pool: Pool, dtype: str) -> str | None:
        return formats.setdefault((pool.chip.name, dtype), _run_in(setup, pool, dtype))

    formats: dict[tuple[str, str], str | None] = {}
    space = families(setup.model, fleet, dtypes, lambda pool: _budgets(setup, pool, runs_in, dtypes), allowed, runs_in)
    space = _cut(setup, space)
    if not space:
        known = sorted({dtype for pool in fleet.pools for dtype in pool.chip.rates_flops})
        hint = f"They have {', '.join(known)}."
        raise InputError(f"no chip of the fleet runs weights in {' or '.join(dtypes)}", where="--dtype", hint=hint)
    return space


def _cut(setup: Setup, space: list[PlanFamily]) -> list[PlanFamily]:
    """Families whose degrees the engine takes: blocks of a quantised model may not be cut into as many parts. Raises
    where it takes none."""
    refused: list[InputError] = []

    def runs(family: PlanFamily) -> bool:
        try:
            setup.deploy(family.chip, family.tp, family.dtype, setup.engine.settings, family.ep)
        except InputError as error:
            refused.append(error)
            return False
        return True

    known: dict[tuple[str, int, int, str], bool] = {}
    for family in space:
        place = family.chip, family.tp, family.ep, family.dtype
        if place not in known:
            known[place] = runs(family)
    if known and not any(known.values()):
        raise refused[0]
    return [family for family in space if known[family.chip, family.tp, family.ep, family.dtype]]


def _left_out(setup: Setup, fleet: Cluster, dtypes: tuple[str, ...], planned: set[str]) -> dict[str, str]:
    """Chips of the fleet that no plan is made for, each with the reason against the first of the formats."""
    return {
        pool.chip.name: _why_not(setup, pool, pool.chip.instead_of(dtypes[0]) or dtypes[0]) or NO_DEGREE
        for pool in fleet.pools
        if pool.chip.name not in planned
    }


def _why_not(setup: Setup, pool: Pool, dtype: str) -> str:
    """Why one chip of a pool does not run the model in a format; empty where it does."""
    try:
        setup.deploy(pool.chip.name, 1, dtype, setup.engine.settings)
    except InputError as error:
        return error.message
    return ""


def _run_in(setup: Setup, pool: Pool, dtype: str) -> str | None:
    """The format a chip runs a model of some format in: one it has a rate for, or narrow weights that it widens."""
    own = pool.chip.instead_of(dtype)
    if own is not None:
        return own
    return None if _why_not(setup, pool, dtype) else dtype


def _budgets(
    setup: Setup, pool: Pool, runs_in: Callable[[Pool, str], str | None], dtypes: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """The values to try of each budget, the engine's default first, then from large to small."""
    usable = [own for own in (runs_in(pool, dtype) for dtype in dtypes) if own]
    if not usable:
        return {}
    _, deployment = setup.deploy(pool.chip.name, 1, usable[0], setup.engine.settings)
    found: dict[str, tuple[int, ...]] = {}
    for name, values in BUDGETS.items():
        default = int(deployment.settings[name])
        fixed = setup.engine.settings.get(name) is not None
        found[name] = (default,) if fixed else tuple(dict.fromkeys([default, *sorted(values, reverse=True)]))
    return found
