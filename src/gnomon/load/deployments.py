"""Questions about replicas made into objects: the model, the chips with their profile, the engine with its overheads.

Names end here: what is bound is not looked up again below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.engines import Deployment, Engine, TrainingEngine, engine_info, module_engine, training_engine
from gnomon.engines import engine as engine_of
from gnomon.engines.base import ServingCase
from gnomon.load.cards import host_of, own_cards
from gnomon.load.fleet import parse_pool
from gnomon.load.hf import model as load_model
from gnomon.load.objects import checked_model
from gnomon.load.overheads import own_overheads
from gnomon.load.profiles import profile_on
from gnomon.planning.deploy import Binding, ReplicaSpec
from gnomon.planning.power_limit import under_limit
from gnomon.planning.steps.network_words import PHASES, refuse_beside
from gnomon.spec import EngineChoice, Model, Pool, Strategy
from gnomon.spec.plan import DEFAULT_ENGINE
from gnomon.spec.questions.parts import ServedQuestion
from gnomon.techniques import asked

POWER_LIMIT = "--power-limit"
TOWERS = "transformers"
"""Whose host figures the kernels of a tower or of an encoder are launched by, under any engine."""


def limited(pool: Pool, power_limit_w: float | None) -> Pool:
    """Chips with a question's power limit, where it has one."""
    return pool if power_limit_w is None else replace(pool, power_limit_w=power_limit_w)


def found_model(model: str | Path | Model) -> Model:
    """A model by whatever names it; an object is checked as a file's shapes are."""
    return checked_model(model) if isinstance(model, Model) else load_model(model)


def bind(pool: Pool, engine: str | Engine, *hosts: str, limit: str = "power_limit_w") -> Binding:
    """An engine on these chips, by its name or as it was found, with the user's own profile and overheads first;
    `hosts` are other engines whose overheads it needs, `limit` is what an error calls the power limit."""
    (found,) = bind_each([pool], engine, *hosts, limit=limit)
    return found


def bind_each(pools: Sequence[Pool], engine: str | Engine, *hosts: str, limit: str = "power_limit_w") -> list[Binding]:
    """An engine on chips of several kinds; `hosts` are other engines whose overheads it needs."""
    chosen = engine_of(engine) if isinstance(engine, str) else engine
    own, cards = own_overheads(chosen.name, *hosts), own_cards(*(pool.chip.name for pool in pools))
    info = engine_info(chosen.name)
    framework = info.framework if info else ""
    found = []
    for asked_pool in pools:
        card = cards.get(asked_pool.chip.name)
        pool, profile = under_limit(asked_pool, profile_on(asked_pool.chip, card, framework), limit)
        found.append(Binding(pool=pool, profile=profile, engine=chosen, overheads=own | host_of(card)))
    return found


def replica_of(
    question: ServedQuestion, engine: str | None, *, priced: bool = True, power_limit_w: float | None = None
) -> ReplicaSpec:
    """One replica from a question; without an engine, the one that runs the model."""
    techniques = asked(question.techniques)
    model = found_model(question.model)
    refuse_beside(model, techniques)
    pool = limited(parse_pool(question.on), power_limit_w)
    network = model.kind in PHASES
    serving, other = engines_for(engine, model)
    return ReplicaSpec(
        model=model,
        reference=model.name if isinstance(question.model, Model) else str(question.model),
        on=str(question.on),
        binding=bind(pool, serving, *([TOWERS] if network else []), limit=POWER_LIMIT),
        torch=other,
        degrees={
            "tp": question.tp, "pp": question.pp, "ep": question.ep, "cp": question.cp,
            "dp": 1 if question.dp is None else question.dp,
        },
        dtype=question.dtype or None,
        kv_dtype=question.kv_dtype or None,
        settings=dict(question.settings or {}),
        techniques=techniques,
        priced=priced,
    )  # fmt: skip


def engines_for(label: str | None, model: Model) -> tuple[Engine, TrainingEngine | None]:
    """The serving engine of a question, and what runs a network in its place: where no engine is named, a network that
    the default one does not serve."""
    if model.kind not in PHASES:
        return engine_of(label or DEFAULT_ENGINE), None
    if label is None:
        from gnomon.planning.steps.network import not_served

        usual = engine_of(DEFAULT_ENGINE)
        return usual, training_engine(module_engine()) if not_served(usual, model) else None
    info = engine_info(label.partition("@")[0])
    if info is None or not info.runs_modules:
        return engine_of(label), None
    return engine_of(DEFAULT_ENGINE), training_engine(label)


def deploy(
    model: Model,
    pool: Pool,
    *,
    strategy: Strategy | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | EngineChoice = DEFAULT_ENGINE,
    settings: Mapping[str, Any] | None = None,
    priced: bool = True,
) -> tuple[Engine, Deployment]:
    """One replica of a model that was read, with the engine's defaults filled in. Nothing is checked against memory."""
    binding = bind(pool, engine if isinstance(engine, str) else engine.label)
    given = ({} if isinstance(engine, str) else dict(engine.settings)) | dict(settings or {})
    draft = ServingCase(
        model=model, pool=pool, strategy=strategy or Strategy(), dtype=dtype or None, kv_dtype=kv_dtype or None,
        settings=given,
    )  # fmt: skip
    return binding.engine, binding.deploy(draft, priced=priced)
