"""Options and fields of files that have no effect on an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gnomon.cost.governor import governor_of
from gnomon.engines import Deployment, Engine
from gnomon.errors import GnomonError
from gnomon.spec import Cluster, Model, NotModelled, Pool, Recipe, Requests, ServingLoad, Strategy
from gnomon.spec.answers import Fit, Prediction
from gnomon.spec.drawing import draw
from gnomon.spec.questions.step import PredictQuestion
from gnomon.spec.workload import RequestTrace

Answer = TypeVar("Answer", Prediction, Fit)
WITHIN_A_POD = "no ranks communicate beyond a pod of nodes, or the network has full bandwidth there"
ECHO = ("title", "inputs", "not_modelled", "resolved")
"""Fields of an answer that repeat the question."""


def with_unmodelled(
    engine: Engine,
    deployment: Deployment,
    given: Mapping[str, Any],
    answer: Callable[[Deployment], Answer],
    without: Callable[[str], Deployment] | None = None,
) -> Answer:
    """The answer of a deployment, with the settings, techniques and file fields that do not change it.

    Each option is removed in turn, with those found idle before it: where the answer is bit-identical, it is listed.
    `without` gives the deployment without one of its techniques.
    """
    found = answer(deployment)
    full = figures(found)
    idle: tuple[str, ...] = tuple(_idle(engine, deployment, given, answer, full)) if given else ()
    listed = [*_listed(engine, deployment, given, idle)]
    if without is not None:
        listed += _idle_techniques(deployment.strategy.techniques, full, lambda name: figures(answer(without(name))))
    if isinstance(found, Prediction):
        listed += _idle_fabric(deployment, full, lambda one: figures(answer(one)))
    return replace(found, not_modelled=tuple(listed))


def _idle_techniques(
    names: Sequence[str], full: Mapping[str, Any], without: Callable[[str], Mapping[str, Any]]
) -> Iterator[NotModelled]:
    for name in names:
        try:
            if without(name) == full:
                yield NotModelled(option=f"--with {name}", why="every figure of this answer is the same without it")
        except GnomonError:
            continue  # without it there is no answer, so the answer depends on it


def _idle_fabric(
    deployment: Deployment, full: Mapping[str, Any], answer: Callable[[Deployment], Mapping[str, Any]]
) -> Iterator[NotModelled]:
    """Fields of a cluster file about the network beyond a pod, where no ranks communicate over it."""
    pool = deployment.pool
    if not pool.fabric_fields or pool.node is None:
        return
    plain = replace(pool, node=replace(pool.node, oversubscription=1.0, pod_nodes=1))
    if answer(replace(deployment, pool=plain)) == full:
        yield from _fabric(pool)


def idle_beyond(pool: Pool, ranks: int) -> tuple[NotModelled, ...]:
    """Fields of a cluster file about the network beyond a pod, where so many ranks have full bandwidth without it."""
    return _fabric(pool) if pool.across(ranks) == pool.scaleout or ranks <= pool.per_node else ()


def _fabric(pool: Pool) -> tuple[NotModelled, ...]:
    return tuple(NotModelled(option=field, why=WITHIN_A_POD) for field in pool.fabric_fields)


def _listed(
    engine: Engine, deployment: Deployment, given: Mapping[str, Any], idle: tuple[str, ...]
) -> tuple[NotModelled, ...]:
    return (
        *engine.not_modelled(given, deployment, idle),
        *assumed_by(deployment),
        *in_files(deployment.pool, deployment.model, disks=on_disks(engine, deployment)),
    )


def on_disks(engine: Engine, deployment: Deployment) -> bool:
    """Whether techniques keep something on the disks of a host."""
    return bool(deployment.techniques) and engine.memory(deployment).nvme_bytes > 0


def assumed_by(deployment: Deployment) -> tuple[NotModelled, ...]:
    """What techniques assume that no input states."""
    found = deployment.techniques.assumed(deployment).items()
    return tuple(NotModelled(option=f"--with {name}", why=text) for name, text in found)


def in_files(pool: Pool, model: Model, *, disks: bool = False) -> tuple[NotModelled, ...]:
    """Fields of the cluster's and the model's files that no figure depends on; those of the host's disks are read where
    something is kept there."""
    said = (one for one in pool.not_modelled if not (disks and one.option.rpartition(".")[2].startswith("nvme")))
    return (*said, *model.not_modelled)


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
    kept = dict(given)
    for name in given:
        fewer = {key: value for key, value in kept.items() if key != name}
        try:
            settings = engine.settings(fewer | others, model, pool)
            if settings == deployment.settings and _as_said(engine, deployment, name, given[name]):
                continue  # it repeats a default of the engine
            same = settings == deployment.settings or figures(answer(replace(deployment, settings=settings))) == full
        except GnomonError:
            continue  # without it there is no answer, so the answer depends on it
        if same:
            kept = fewer
            yield name


def _as_said(engine: Engine, deployment: Deployment, name: str, value: Any) -> bool:
    """Whether a setting is in force as given, and not overridden by another one."""
    alone, usual = (engine.settings(said, deployment.model, deployment.pool) for said in ({name: value}, {}))
    return all(deployment.settings[key] == alone[key] for key in alone if alone[key] != usual[key])


def set_aside(engine: Engine, deployment: Deployment, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings that another one overrides."""

    def idle(name: str) -> bool:
        fewer = {key: value for key, value in given.items() if key != name}
        whole, less = (engine.settings(said, deployment.model, deployment.pool) for said in (given, fewer))
        return whole == less and not _as_said(engine, deployment, name, given[name])

    found = []
    for name in given:
        try:
            found += [name] if idle(name) else []
        except GnomonError:  # without it there is no such deployment
            continue
    return tuple(found)


def idle_in_training(
    settings: Mapping[str, Any], strategy: Strategy, model: Model, written: Callable[[str, Any], str] | None = None
) -> tuple[NotModelled, ...]:
    """Options of a training step that only matter with degrees above 1; `written` formats one, by default as a flag."""
    from gnomon.engines.training.job import idle_settings

    usual = dataclasses.asdict(Recipe())
    given = {name: value for name, value in settings.items() if value is not None and value != usual[name]}
    return tuple(
        NotModelled(option=(written or _flag)(name, given[name]), why=why)
        for name, why in idle_settings(strategy, model, settings.get("expert_tp") or 0).items()
        if name in given
    )


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if not isinstance(value, bool) else flag if value else flag.replace("--", "--no-", 1)


def idle_seed(
    load: ServingLoad, trace: RequestTrace | None, drawn: Requests, closed: bool = False
) -> tuple[NotModelled, ...]:
    """A seed without effect: arrivals are all at once, or from a trace."""
    if not load.seed or not drawn.same(draw(replace(load, seed=0), trace, closed=closed)):
        return ()
    return (NotModelled(option=f"--seed {load.seed}", why="no arrivals are drawn: the load fixes them"),)


def idle_rate(load: ServingLoad, drawn: Requests) -> tuple[NotModelled, ...]:
    """A rate without effect: there is a single request."""
    if load.rate_per_s is None or len(drawn) > 1:
        return ()
    why = "there is a single request; --requests N repeats it at this rate"
    return (NotModelled(option=f"--rate {load.rate_per_s:g}", why=why),)


def idle_in_plans(fleet: Cluster, model: Model) -> tuple[NotModelled, ...]:
    """Fields of the cluster's and the model's files that no serving plan depends on."""
    said = [one for pool in fleet.pools for one in pool.not_modelled] + list(model.not_modelled)
    why = "serving plans have no carbon figure yet; `gnomon simulate serve` gives one"
    grids = dict.fromkeys(pool.grid.name for pool in fleet.pools if pool.grid)
    return (*said, *(NotModelled(option=f"field grid, {name}", why=why) for name in grids))


def figures(answer: Prediction | Fit) -> dict[str, Any]:
    """An answer without what repeats the question."""
    return {name: value for name, value in answer.to_dict().items() if name not in ECHO}


def idle_clock(question: PredictQuestion, deployment: Deployment) -> Iterator[NotModelled]:
    """`--sustained`, where the clock under the power limit is not known."""
    if question.sustained and not governor_of(deployment.profile.power, deployment.pool.chip).acts:
        name = deployment.pool.chip.name
        why = f"the clock of {name} under its power limit is not measured; it is priced at full clock"
        yield NotModelled(option="--sustained", why=why)
