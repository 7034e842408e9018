"""What was given and has no effect on an answer: settings that leave every figure as it is, fields of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gnomon.api.results import Fit, Prediction
from gnomon.engines import Deployment, Engine
from gnomon.engines.training.job import idle_settings
from gnomon.errors import GnomonError
from gnomon.load import draw
from gnomon.spec import Cluster, Model, NotModelled, Pool, Recipe, Requests, ServingLoad, Strategy

Answer = TypeVar("Answer", Prediction, Fit)
ECHO = ("title", "inputs", "not_modelled")
"""Parts of an answer that repeat what was asked."""


def told(
    engine: Engine, deployment: Deployment, given: Mapping[str, Any], answer: Callable[[Deployment], Answer]
) -> Answer:
    """The answer of a deployment, with the settings that do not move it, and what the chips' file says in vain.

    Each setting is left out once: where the answer stays the same to the last digit, it is listed.
    """
    found = answer(deployment)
    idle: tuple[str, ...] = tuple(_idle(engine, deployment, given, answer, figures(found))) if given else ()
    return replace(found, not_modelled=_listed(engine, deployment, given, idle))


def _listed(
    engine: Engine, deployment: Deployment, given: Mapping[str, Any], idle: tuple[str, ...]
) -> tuple[NotModelled, ...]:
    pool = deployment.pool
    return (*engine.not_modelled(given, pool.chip, idle), *in_files(pool, deployment.model))


def in_files(pool: Pool, model: Model) -> tuple[NotModelled, ...]:
    """What the files of a cluster and of a model say, and no figure depends on."""
    return (*pool.not_modelled, *model.not_modelled)


def _idle(
    engine: Engine,
    deployment: Deployment,
    given: Mapping[str, Any],
    answer: Callable[[Deployment], Answer],
    full: Mapping[str, Any],
) -> Iterator[str]:
    model, pool = deployment.model, deployment.pool
    plain = engine.settings(given, model, pool)
    # Degrees and techniques may have become settings, too.
    others = {name: value for name, value in deployment.settings.items() if plain[name] != value}
    for name in given:
        try:
            settings = engine.settings({key: given[key] for key in given if key != name} | others, model, pool)
            if settings == deployment.settings:
                continue  # it only says again what the engine does by itself
            if figures(answer(replace(deployment, settings=settings))) == full:
                yield name
        except GnomonError:
            continue  # without it the question cannot be asked, so the answer depends on it


def idle_in_training(settings: Mapping[str, Any], strategy: Strategy, model: Model) -> tuple[NotModelled, ...]:
    """Ways of a training step that only matter between ranks which are not there; `settings` as they were asked for."""
    usual = dataclasses.asdict(Recipe())
    given = {name: value for name, value in settings.items() if value is not None and value != usual[name]}
    return tuple(
        NotModelled(option=_flag(name, given[name]), why=why)
        for name, why in idle_settings(strategy, model).items()
        if name in given
    )


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if not isinstance(value, bool) else flag if value else flag.replace("--", "--no-", 1)


def idle_seed(load: ServingLoad, drawn: Requests) -> tuple[NotModelled, ...]:
    """A seed by which nothing is drawn: requests come at once, or when a trace says."""
    if not load.seed or not np.array_equal(draw(replace(load, seed=0)).arrival_s, drawn.arrival_s):
        return ()
    return (NotModelled(option=f"--seed {load.seed}", why="no arrivals are drawn: the load says when requests come"),)


def idle_in_plans(fleet: Cluster, model: Model) -> tuple[NotModelled, ...]:
    """What the files of a cluster and of a model say, and no plan of serving depends on."""
    said = [one for pool in fleet.pools for one in pool.not_modelled] + list(model.not_modelled)
    why = "plans of serving have no carbon yet; `gnomon simulate serve` gives that of one"
    grids = dict.fromkeys(pool.grid.name for pool in fleet.pools if pool.grid)
    return (*said, *(NotModelled(option=f"field grid, {name}", why=why) for name in grids))


def figures(answer: Prediction | Fit) -> dict[str, Any]:
    """An answer without what repeats the question."""
    return {name: value for name, value in answer.to_dict().items() if name not in ECHO}
