"""Pools as they are written on a command line: `prefill=H100:4,tp=2`, each with its own format and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.engines import Engine
from gnomon.errors import InputError, unknown_name
from gnomon.load.deployments import POWER_LIMIT, bind, bind_each, found_model, limited
from gnomon.load.fleet import parse_pool
from gnomon.load.goals import parse_settings
from gnomon.load.plan import check_format, check_roles, plan_pool
from gnomon.planning.deploy import NO_DEGREES, ReplicaSpec
from gnomon.planning.serving.one_plan import UNSIMULATED
from gnomon.planning.serving.pools import PoolSpec
from gnomon.planning.steps.network_words import refuse_beside
from gnomon.spec import Model, Plan, Pool, Strategy
from gnomon.spec.plan import BOTH, KV_TRANSFERS, MOST_SERVERS, ROLES, ROUTERS
from gnomon.spec.questions.serving import SimulateServingQuestion
from gnomon.techniques import asked
from gnomon.units import parse_whole

FLAG = "--pool"
EXAMPLE = "Write it as prefill=H100:4,tp=2."
DEGREES = ("tp", "pp", "ep", "dp")
OWN = (*DEGREES, "replicas", "dtype", "weight")
"""What is said of a pool beside its role and chips; other names are settings of the engine."""
ELSEWHERE = (*DEGREES, "cp")
"""Flags of one replica, which pools say themselves or do not have."""
NO_PART = {
    "cp": "replicas with a context-parallel degree are not simulated under a load",
    "kv_dtype": "all pools keep the KV cache in one format, which --kv-dtype says",
}
"""What a pool does not say, and why."""
MOST_WEIGHT = 1e9


@dataclass(frozen=True, slots=True)
class WrittenPool:
    """The text of one pool, taken apart."""

    text: str
    role: str
    pool: Pool
    own: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def whole(self, name: str) -> int | None:
        return parse_whole(self.own[name], f"{FLAG} {self.text}") if name in self.own else None


def written_pool(text: str) -> WrittenPool:
    """`prefill=H100:4,tp=2,dtype=fp8`, with settings behind it; without a role the pool does both."""
    head, *rest = (part.strip() for part in text.split(","))
    role, equals, chips = (part.strip() for part in head.partition("="))
    if not equals:
        role, chips = BOTH, head
    elif role not in ROLES:
        raise unknown_name("role", role, ROLES, where=f"{FLAG} {text}", hint=EXAMPLE)
    own: dict[str, str] = {}
    settings = []
    for part in rest:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"'{part}' is not NAME=VALUE", where=f"{FLAG} {text}", hint=EXAMPLE)
        if name in own:
            raise InputError(f"{name} is given twice", where=f"{FLAG} {text}")
        if name.replace("-", "_") in NO_PART:
            raise InputError(NO_PART[name.replace("-", "_")], where=f"{FLAG} {text}", hint=f"Leave {name} out.")
        if name in OWN:
            own[name] = value
        else:
            settings.append(part)
    return WrittenPool(text, role, parse_pool(chips, FLAG), own, parse_settings(settings, FLAG))


def pools_of(question: SimulateServingQuestion) -> tuple[PoolSpec, ...]:
    """The pools of `simulate serve`, bound to their chips and the engine."""
    _check_beside(question)
    techniques = asked(question.techniques)
    model = found_model(question.model)
    refuse_beside(model, techniques)
    written = [written_pool(text) for text in question.pools]
    check_roles([each.role for each in written], FLAG)
    chips = [limited(each.pool, question.power_limit_w) for each in written]
    bindings = bind_each(chips, question.engine, limit=POWER_LIMIT)
    reference = model.name if isinstance(question.model, Model) else str(question.model)
    found = []
    shapes = [_shape(each, binding.engine) for each, binding in zip(written, bindings, strict=True)]
    check_replicas([replicas for _, _, replicas in shapes], FLAG)
    for each, binding, (degrees, ranks, replicas) in zip(written, bindings, shapes, strict=True):
        spec = ReplicaSpec(
            model=model,
            reference=reference,
            on=f"{each.pool.words.rpartition(':')[0]}:{ranks}",
            binding=replace(binding, pool=binding.pool.resized(ranks)),
            degrees=dict(NO_DEGREES) | degrees,
            dtype=_dtype(each) or question.dtype or None,
            kv_dtype=question.kv_dtype or None,
            settings=dict(question.settings or {}) | dict(each.settings),
            techniques=techniques,
        )
        found.append(PoolSpec(role=each.role, replicas=replicas, weight=_weight(each), replica=spec))
    return tuple(found)


def planned_pools(plan: Plan) -> tuple[PoolSpec, ...]:
    """The pools of a plan, bound to their chips and engines."""
    model = found_model(plan.model)
    check_replicas([each.replicas for each in plan.each_pool], "pools")
    found = []
    for place, each in enumerate(plan.each_pool):
        one = plan.of_pool(each)
        for name in UNSIMULATED:
            if getattr(each.strategy, name) > 1:
                message = f"replicas with {name} {getattr(each.strategy, name)} are not simulated under a load"
                hint = "`gnomon predict` prices their steps."
                raise InputError(message, where=f"pools[{place}].strategy.{name}", hint=hint)
        chips = plan_pool(one, each.ranks)
        spec = ReplicaSpec(
            model=model,
            reference=plan.model,
            on=f"{each.chip}:{each.ranks}",
            binding=bind(chips, each.engine.label),
            degrees=dict(NO_DEGREES) | {name: getattr(each.strategy, name) for name in DEGREES},
            dtype=each.dtype or None,
            kv_dtype=each.kv_dtype or None,
            settings=dict(each.engine.settings),
            techniques=each.strategy.techniques,
        )
        found.append(PoolSpec(role=each.role, replicas=each.replicas, weight=each.weight, replica=spec))
    return tuple(found)


def _check_beside(question: SimulateServingQuestion) -> None:
    """Refuse what pools say themselves, and names that are not known."""
    if question.on is not None:
        raise InputError("the pools name the chips", where="--on", hint=f"Leave it out, or {FLAG}.")
    for name in ELSEWHERE:
        if getattr(question, name) not in (None, 1):
            message = "each pool has its own degrees" if name in DEGREES else "pools of such replicas are not simulated"
            raise InputError(message, where=f"--{name}", hint=EXAMPLE if name in DEGREES else "Leave it out.")
    if question.router not in ROUTERS:
        raise unknown_name("router", question.router, ROUTERS, where="--router")
    if question.kv_transfer not in KV_TRANSFERS:
        raise unknown_name("KV transfer", question.kv_transfer, KV_TRANSFERS, where="--kv-transfer")


def refuse_pool_flags(question: SimulateServingQuestion) -> None:
    """Refuse what only pools have, where there are none."""
    usual = {"--router": (question.router, ROUTERS[0]), "--kv-transfer": (question.kv_transfer, KV_TRANSFERS[0])}
    for flag, (given, default) in usual.items():
        if given != default:
            raise InputError("one replica gets all requests", where=flag, hint=f"Leave it out, or give {FLAG}.")
    if question.on is None:
        raise InputError("is missing", where="--on", hint=f"Name the chips, as in --on H100, or pools by {FLAG}.")


def check_replicas(counts: Sequence[int], where: str) -> None:
    """Raise InputError for more replicas than are simulated."""
    if sum(counts) > MOST_SERVERS:
        hint = "Simulate a part of them, with its share of the load."
        message = f"{sum(counts):,} replicas are more than the {MOST_SERVERS:,} that are simulated at once"
        raise InputError(message, where=where, hint=hint)


def _shape(each: WrittenPool, engine: Engine) -> tuple[dict[str, int], int, int]:
    """The degrees of a replica, its chips and the number of replicas; the tensor-parallel degree or the number may
    follow from the chips of the pool."""
    where, chips = f"{FLAG} {each.text}", each.pool.count
    given = {name: each.whole(name) for name in (*DEGREES, "replicas")}
    others = {name: given[name] or 1 for name in DEGREES if name != "tp"}
    beside = _ranks(engine, {**others, "tp": 1})
    tp = given["tp"] or max(chips // (given["replicas"] or 1) // beside, 1)
    ranks = _ranks(engine, {**others, "tp": tp})
    replicas = given["replicas"] or max(chips // ranks, 1)
    if ranks * replicas != chips:
        shape = " ".join(f"{name.upper()} {degree}" for name, degree in {"tp": tp, **others}.items() if degree > 1)
        pool = f"{each.pool.chip.reference}:{ranks * replicas}"
        message = f"{replicas} replicas of {shape or 'TP 1'} do not take {chips} chips"
        raise InputError(message, where=where, hint=f"CHIP:N are all chips of the pool: {pool}.")
    return {**others, "tp": tp}, ranks, replicas


def _ranks(engine: Engine, degrees: Mapping[str, int]) -> int:
    """Chips of a replica as the engine lays its degrees out."""
    given: dict[str, Any] = dict(degrees)
    strategy, _ = engine.arranged(Strategy(**given), {})
    return strategy.ranks


def _dtype(each: WrittenPool) -> str | None:
    if "dtype" in each.own:
        check_format(each.own["dtype"], f"{FLAG} {each.text}")
    return each.own.get("dtype")


def _weight(each: WrittenPool) -> float | None:
    if "weight" not in each.own:
        return None
    try:
        weight = float(each.own["weight"])
    except ValueError:
        weight = 0.0
    if not 0 < weight < MOST_WEIGHT:
        message = f"'{each.own['weight']}' is not a number above zero and below {MOST_WEIGHT:,.0f}"
        raise InputError(message, where=f"{FLAG} {each.text}", hint="Weights count beside each other: 3 and 1.")
    return weight
