"""Plans as small readable YAML, and back. Reading is strict: a field that is not known is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gnomon import catalog
from gnomon.errors import InputError, unknown_name
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.load.chips import chip as find_chip
from gnomon.load.fields import Fields
from gnomon.load.files import as_path, read_yaml
from gnomon.load.goals import duration_text, goal, seconds_goal
from gnomon.load.recipe import read_recipe
from gnomon.load.sequences import read_sequences
from gnomon.spec import Chip, EngineChoice, Goal, Plan, Pool, ServingLoad, Strategy, TrainingLoad
from gnomon.spec.formats import MULTIPLIED, NARROW, OF_TECHNIQUES, PLAIN_BITS
from gnomon.spec.loads.arrivals import arrivals_of
from gnomon.spec.loads.check import MAX_REQUESTS
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.popularity import Adapters, SharedPrefix, priorities_of
from gnomon.spec.loads.sessions import MOST_THINK_S, MOST_TURNS
from gnomon.spec.plan import BOTH, DECODE, DEFAULT_ENGINE, KV_TRANSFERS, PREFILL, ROLES, ROUTERS, WHOLE, PlanPool
from gnomon.spec.plan_dict import DEGREES, SCHEMA, plan_to_dict
from gnomon.spec.workload import MAX_TOKENS
from gnomon.units import check_rate, parse_count

MAX_DEGREE = 1_000_000
MAX_NODE = 10_000
"""Chips of a node; the largest that ships is a pod of 9,216."""
MAX_WATTS = 20_000
"""Of one chip, as chips' files have it."""
MAX_BATCH = 1_000_000
"""Sequences of a training step."""
FORMATS = tuple(dict.fromkeys((*PLAIN_BITS, *MULTIPLIED, *NARROW, *OF_TECHNIQUES, *GEMM_RECIPES)))
Part = TypeVar("Part")
ENGINES_OWN = "auto"
"""vLLM's word for a cache in the format the engine chooses; the same as leaving it out."""


LONGEST_ID = 200
"""Letters; it stands in the header of every script."""
LONGEST_NAME = 4096
"""Letters of a path."""
SERVING_FIELDS = {
    "router": "a plan for training assigns no requests to replicas",
    "kv_dtype": "a plan for training keeps no cache",
    "checkpoint": "a plan for training serves no checkpoint",
    "pools": "a plan for training has one pool, whose fields stand beside it",
    "kv_transfer": "a plan for training keeps no cache",
}
"""Fields that only plans of serving have, and why."""


def plan_from_dict(data: Mapping[str, Any], where: str = "plan", *, seconds: bool = True) -> Plan:
    """The plan that `plan_to_dict` wrote; `where` names its file in errors.

    With `seconds`, as Gnomon itself writes JSON, goals may be numbers of seconds; else they need a unit.
    """
    fields = Fields(data, where)
    fields.check_schema(SCHEMA)
    loaded = fields.inner("load")
    trains = loaded.has("seq") or loaded.has("global_batch")
    for name, why in SERVING_FIELDS.items() if trains else ():
        if fields.has(name):
            raise InputError(why, where=fields.spot(name), hint="Leave it out.")
    pools = _pools(fields) if fields.has("pools") else ()
    flat = not pools or fields.has("chip")
    own = _pool(fields, trains) if flat else pools[0]
    if pools and flat and pools != (own,):
        hint = "Leave chip, replicas, strategy, dtype and engine out, or pools."
        raise InputError("do not agree with the fields beside them", where=fields.spot("pools"), hint=hint)
    plan = Plan.of_pools(
        pools or (own,),
        id=fields.text("id", "", longest=LONGEST_ID),
        model=fields.text("model", longest=LONGEST_NAME),
        router=_one_of(fields, "router", ROUTERS),
        kv_transfer=_one_of(fields, "kv_transfer", KV_TRANSFERS),
        checkpoint=fields.text("checkpoint", "", longest=LONGEST_NAME),
        load=_load(loaded, trains) if fields.has("load") else None,
        goals=_goals(fields.inner("goals"), seconds),
        predicted=fields.inner("predicted").items(),
    )
    fields.done()
    _check_transfer(plan, fields)
    named = fields.inner("strategy").items() if flat else {}
    return replace(plan, given=frozenset(name for name in (*DEGREES, "vp") if named.get(name) is not None))


def _pool(fields: Fields, trains: bool = False, role: str = BOTH, weight: float = 1.0) -> PlanPool:
    """Chips, replicas, degrees, format and engine, of a plan or of one of its pools."""
    return PlanPool(
        role=role,
        weight=weight,
        chip=fields.text("chip", longest=LONGEST_NAME),
        per_node=fields.whole("per_node", 0, most=MAX_NODE),
        power_limit_w=fields.number("power_limit_w", 0.0, most=MAX_WATTS),
        replicas=fields.whole("replicas", most=MAX_DEGREE),
        strategy=_strategy(fields.inner("strategy"), trains),
        dtype=_format(fields, "dtype"),
        kv_dtype=_format(fields, "kv_dtype", ENGINES_OWN),
        engine=_engine(fields.inner("engine"), trains),
    )


def _pools(fields: Fields) -> tuple[PlanPool, ...]:
    """The pools of a plan, whose roles go together."""
    found = []
    for each in fields.inners("pools"):
        role, weight = _one_of(each, "role", ROLES), each.number("weight", 1.0)
        found.append(_pool(each, role=role, weight=weight))
        each.done()
    if not found:
        raise InputError("there is no pool", where=fields.spot("pools"), hint="Leave it out, or name one.")
    check_roles([pool.role for pool in found], fields.spot("pools"))
    return tuple(found)


def check_roles(roles: Sequence[str], where: str) -> None:
    """Raise InputError where pools of these roles serve nobody, or where some compute prompts for others that need
    none."""
    if set(roles) not in ({BOTH}, {PREFILL, DECODE}):
        given = ", ".join(dict.fromkeys(roles))
        hint = "Give prefill and decode pools, or pools that do both."
        raise InputError(f"pools of the role {given} do not serve together", where=where, hint=hint)


def _check_transfer(plan: Plan, fields: Fields) -> None:
    if plan.kv_transfer != WHOLE and not plan.disaggregated:
        message = "no KV cache is sent where there are no prefill and decode pools"
        raise InputError(message, where=fields.spot("kv_transfer"), hint="Leave it out.")


def plan_from_file(data: Mapping[str, Any], where: str) -> Plan:
    """A plan of a file: goals need their unit, but where the file carries figures that Gnomon wrote into it."""
    return plan_from_dict(data, where, seconds=bool(data.get("predicted")))


def read_plan(path: str | Path) -> Plan:
    file = as_path(path)
    return plan_from_file(read_yaml(file), str(file))


def refuse_serving_fields(plan: Plan) -> None:
    """Raise InputError where a plan for training has what only those of serving have."""
    usual: Mapping[str, Any] = {"router": ROUTERS[0], "kv_transfer": WHOLE, "pools": ()}
    for name, why in SERVING_FIELDS.items():
        if getattr(plan, name) != usual.get(name, ""):
            raise InputError(why, where=name, hint="Leave it out.")


def plan_pool(plan: Plan, count: int | None = None) -> Pool:
    """All chips of a plan of one pool, or so many of them, in nodes as the plan names them."""
    if plan.pools:
        hint = "`gnomon simulate serve --pool` takes several."
        raise InputError(f"the plan has {len(plan.pools)} pools, and one is wanted here", where="pools", hint=hint)
    pool = planned_pool(find_chip(plan.chip, "chip"), plan.per_node, plan.chips if count is None else count)
    if plan.power_limit_w > pool.chip.tdp_w:
        message = f"{plan.power_limit_w:g} W is above the {pool.chip.tdp_w:g} W of {pool.chip.name}"
        raise InputError(message, where="power_limit_w")
    return replace(pool, power_limit_w=plan.power_limit_w)


def planned_pool(chip: Chip, per_node: int, count: int) -> Pool:
    """So many chips in nodes as a plan names them: the chip's usual one, or one of `per_node`."""
    node = catalog.node_of(chip)
    if per_node:
        host = node.host.one if node.host else None
        node = replace(node, chips=per_node, host=host)
    return Pool.of(chip, count, node)


def write_plan(plan: Plan, path: str | Path) -> None:
    file = as_path(path)
    try:
        file.write_text(plan_to_yaml(plan), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(file)) from None


def plan_to_yaml(plan: Plan) -> str:
    import yaml

    fields = plan_to_dict(plan, flat=True)
    if plan.goals:
        fields["goals"] = {entry.name: duration_text(entry.limit_s) for entry in plan.goals}
    text: str = yaml.safe_dump(fields, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return text


def _one_of(fields: Fields, key: str, known: Sequence[str]) -> str:
    """One of some names, the first of them where none is given."""
    name = fields.text(key, known[0])
    if name not in known:
        raise unknown_name(key, name, known, where=fields.spot(key))
    return name


def _format(fields: Fields, key: str, default: str | None = None) -> str:
    """The name of a number format; nothing where it is left to the engine."""
    name = fields.text(key) if default is None else fields.text(key, default)
    if name == default:
        return ""
    check_format(name, fields.spot(key))
    return name


def check_format(name: str, where: str) -> None:
    if name not in FORMATS:
        raise unknown_name("number format", name, FORMATS, where=where)


def _strategy(fields: Fields, trains: bool) -> Strategy:
    names = (*DEGREES, "vp") if trains else DEGREES
    degrees = {name: fields.whole(name, 1, most=MAX_DEGREE) for name in names}
    techniques = fields.list("techniques")
    if not all(isinstance(name, str) for name in techniques):
        raise InputError(f"{techniques} is not a list of names", where=fields.spot("techniques"))
    fields.done()
    return Strategy(**degrees, techniques=tuple(techniques))


def _engine(fields: Fields, trains: bool) -> EngineChoice:
    """A training plan names its engine, and its settings are a recipe; a serving engine knows its own settings."""
    if trains:
        read_recipe(fields.inner("settings"))
    choice = EngineChoice(
        name=fields.text("name") if trains else fields.text("name", DEFAULT_ENGINE),
        version=fields.text("version", ""),
        settings=fields.inner("settings").items(),
    )
    fields.done()
    return choice


def _load(fields: Fields, trains: bool) -> ServingLoad | TrainingLoad:
    load = _training_load(fields) if trains else _serving_load(fields)
    fields.done()
    if isinstance(load, ServingLoad):
        _check_lengths(load, fields)
    return load


MAX_IMAGES, MAX_MTP = 100_000, 64


def _training_load(fields: Fields) -> TrainingLoad:
    return TrainingLoad(
        seq=fields.whole("seq", most=MAX_TOKENS),
        global_batch=fields.whole("global_batch", most=MAX_BATCH),
        tokens=_tokens(fields.raw("tokens", None), fields.spot("tokens")),
        sequences=read_sequences(fields) if fields.has("lengths") else None,
        images=fields.whole("images", 0, least=0, most=MAX_IMAGES),
        image=fields.text("image", ""),
        source=fields.whole("source", 0, least=0, most=MAX_TOKENS),
        freeze=fields.text("freeze", ""),
        mtp_layers=fields.whole("mtp_layers", 0, least=0, most=MAX_MTP),
    )


def _tokens(given: Any, where: str) -> float | None:
    """YAML reads 300e9, as it does 300B, as a text; both are understood."""
    if given is None:
        return None
    tokens = parse_count(given, where)
    if tokens <= 0:
        raise InputError(f"{tokens:g} is not a number above zero", where=where)
    return tokens


def _serving_load(fields: Fields) -> ServingLoad:
    trace = fields.text("trace", "")
    return ServingLoad(
        trace=trace,
        rate_per_s=_rate(fields),
        input_tokens=_lengths(fields, "input_tokens"),
        output_tokens=_lengths(fields, "output_tokens"),
        requests=fields.whole("requests", 1000, least=0 if trace else 1, most=MAX_REQUESTS),
        seed=fields.whole("seed", 0, least=0, most=2**63),
        arrivals=_described(fields, "arrivals", arrivals_of),
        prefix=_described(fields, "prefix", SharedPrefix.read),
        turns=fields.whole("turns", 1, most=MOST_TURNS),
        think_s=fields.number("think_s", 0.0, most=MOST_THINK_S),
        adapters=_described(fields, "adapters", Adapters.read),
        priorities=_described(fields, "priorities", priorities_of) or (),
        images=_described(fields, "images", RequestImages.read),
    )


def _lengths(fields: Fields, key: str) -> int | Lengths | None:
    """A number of tokens, or the description of a distribution."""
    given = fields.raw(key, None)
    if isinstance(given, str) and given.strip()[:1].isalpha():
        return lengths_of(given, fields.spot(key))
    return None if given is None else fields.whole(key, most=MAX_TOKENS)


def _described(fields: Fields, key: str, read: Callable[[str, str], Part]) -> Part | None:
    given = fields.raw(key, None)
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    return None if given is None else read(fields.text(key) if not isinstance(given, str) else given, fields.spot(key))


def _rate(fields: Fields) -> float | None:
    if fields.raw("rate_per_s", None) is None:
        return None
    return check_rate(fields.number("rate_per_s"), fields.spot("rate_per_s"))


def _check_lengths(load: ServingLoad, fields: Fields) -> None:
    """A load is a trace, or equal requests of some lengths; never both."""
    for name in ("input_tokens", "output_tokens"):
        given = getattr(load, name) is not None
        if load.trace and given:
            hint = "Leave one of them out."
            raise InputError("a trace already gives the lengths", where=fields.spot(name), hint=hint)
        if not load.trace and not given:
            raise InputError("is missing, and there is no trace", where=fields.spot(name), hint="Give one of them.")


def _goals(fields: Fields, seconds: bool) -> tuple[Goal, ...]:
    read = seconds_goal if seconds else goal
    return tuple(read(name, limit, fields.spot("")) for name, limit in fields.items().items())
