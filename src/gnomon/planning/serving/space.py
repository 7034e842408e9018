"""The plans of a serving search: families of chip, degrees and number format, and the budgets to try of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnomon.engines import Deployment, Engine
from gnomon.engines.base import Knob
from gnomon.errors import InputError
from gnomon.planning.serving.replicas import Setup
from gnomon.search import PlanFamily, families
from gnomon.search.base import Shape
from gnomon.spec import Cluster, Pool

DEGREES = (1, 2, 4, 8)
"""On so many chips a replica is tried for its default settings."""
NO_DEGREE = "the model cannot be cut over its chips"


def plan_space(setup: Setup, fleet: Cluster, dtypes: tuple[str, ...]) -> list[PlanFamily]:
    """Every family that the engine takes; raises where there is none."""
    engine = setup.bound_engine

    def allowed(settings: Mapping[str, int]) -> bool:
        return engine.goes_together(settings)

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
    """Families whose degrees the engine takes, and whose loads are simulated: blocks of a quantised model may not be
    cut into as many parts. Pipelines take part where the model does not fit without. Raises where there is none."""
    refused: list[InputError] = []
    whole: set[tuple[str, str]] = set()
    """Chips and formats in which the model fits without a pipeline."""

    def runs(family: PlanFamily) -> bool:
        try:
            engine, deployment = setup.deploy_family(family, setup.engine.settings)
            engine.check_simulated(deployment)
            if family.pp == 1 and engine.memory(deployment).kv_blocks > 0:
                whole.add((family.chip, family.dtype))
        except InputError as error:
            refused.append(error)
            return False
        return True

    known: dict[Shape, bool] = {}
    for family in space:
        if family.shape not in known:
            known[family.shape] = runs(family)
    if known and not any(known.values()):
        raise refused[0]
    return [one for one in space if known[one.shape] and (one.pp == 1 or (one.chip, one.dtype) not in whole)]


def left_out(setup: Setup, fleet: Cluster, dtypes: tuple[str, ...], planned: set[str]) -> dict[str, str]:
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
    """The values to try of each knob that the settings do not fix, from large to small; the engine's default before
    them, but for slots of adapters, of which it has one."""
    usable = [own for own in (runs_in(pool, dtype) for dtype in dtypes) if own]
    if not usable:
        return {}
    engine, deployment = _deployed(setup, pool, usable[0])
    found: dict[str, tuple[int, ...]] = {}
    for knob in engine.knobs:
        values = knob.tried(deployment.settings, setup.adapters)
        if not values:
            continue
        default = int(deployment.settings[knob.name])
        taken = _taken(engine, deployment, setup.engine.settings, knob)
        fixed = setup.engine.settings.get(knob.name) is not None or not taken - {default}
        values = tuple(value for value in values if value in taken) if knob.needs else values
        first = () if knob.of_adapters else (default,)
        tried = tuple(dict.fromkeys([*first, *sorted({*values, default}, reverse=True)]))
        found[knob.name] = (default,) if fixed else tried
    return found


def _deployed(setup: Setup, pool: Pool, dtype: str) -> tuple[Engine, Deployment]:
    """A replica on as few chips as the engine takes it on; raises what it says of one."""
    refused: list[InputError] = []
    for tp in DEGREES:
        try:
            return setup.deploy(pool.chip.name, tp, dtype, setup.engine.settings)
        except InputError as error:
            refused.append(error)
    raise refused[0]


def _taken(engine: Engine, deployment: Deployment, given: Mapping[str, Any], knob: Knob) -> set[int]:
    """Values of a knob that the engine takes beside settings; where these say it by another name that the engine has
    for it, no other value than theirs."""
    found = set()
    for value in knob.values:
        try:
            engine.settings({**given, knob.name: value}, deployment.model, deployment.pool)
        except InputError:
            continue
        found.add(value)
    return found
