"""The contract of an export target: a plan in, files out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gnomon.engines import operated_engines, operations_of, planned_training_engine, training_targets
from gnomon.engines.base import ServingCase
from gnomon.engines.operations import Operations
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.job import not_trained_on
from gnomon.errors import InputError
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.load.plan import plan_pool, refuse_serving_fields
from gnomon.load.training import case_of, job_of
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import SERVING, TRAINING, applied, beyond_config
from gnomon.techniques.plans import unchanged

KUBERNETES, DYNAMO = "kubernetes", "dynamo"
SAID = ("strategy", "dtype", "kv_dtype", "settings")
"""Of a replica, what its files say."""
WARNING, LEFT_OUT = "WARNING: ", "not in these files: "
"""How lines of a file's header begin: what keeps it from running, and what it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Files by name, the command that starts one replica or the training, and what the target cannot say."""

    files: Mapping[str, str]
    command: str
    engine: str
    version: str
    not_expressed: tuple[str, ...]


def serving_targets() -> tuple[str, ...]:
    """What serving plans are exported to: the script of an engine that can be started, by its name, or a manifest."""
    return (*operated_engines(), KUBERNETES, DYNAMO)


class Target(Protocol):
    """A module of this package, or the script of an engine."""

    @property
    def NAME(self) -> str: ...

    def render(self, plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
        """The plan's files, with warnings and what the target cannot say in their header. Raises InputError where the
        plan's load or engine is not the target's."""

    def words(self, plan: Plan) -> list[str]:
        """The command that starts one replica, or the training on one node."""

    def check(self, plan: Plan) -> None:
        """Raise InputError where the files would not be the plan, or would not run on its chips."""


def header(warnings: Sequence[str], not_expressed: Sequence[str]) -> list[str]:
    """Lines that stand as comments at the head of what is written."""
    return [*(f"{WARNING}{line}" for line in warnings), *(f"{LEFT_OUT}{line}" for line in not_expressed)]


def check_trained_on(job: TrainingJob, engine: str) -> None:
    """Raise InputError where a training engine does not run on the job's chips."""
    if why := not_trained_on(job.pool.chip, engine):
        raise InputError(why, where="chip", hint="Plan it for a chip of NVIDIA or AMD.")


def operated(plan: Plan, engine: str = "") -> Operations:
    """What starts the engine of a serving plan. Raises InputError where nothing here does, where a target is of another
    `engine`, and for degrees that the model cannot be cut into."""
    found = operations_of(plan.engine.name)
    if found is None or engine not in ("", found.NAME):
        wanted = engine or " or ".join(operated_engines())
        raise InputError(f"the plan is for the engine '{plan.engine.name}', not for {wanted}", where="engine.name")
    model = load_model(plan.model)
    if not unpriced(model):
        check_degrees(model, plan.strategy)
    return found


def in_other_words(plan: Plan, job: TrainingJob | None = None) -> Plan:
    """The plan without the techniques that its format, degrees and settings say already; `job` is that of training."""
    names = plan.strategy.techniques
    beyond = beyond_config(names)
    if len(beyond) < len(names):
        case = None if job is None else case_of(plan, job)
        said = (text for text in names if text not in beyond)
        kept = {text for text in said if (_trained_so(case, text) if case else _served_so(plan, text))}
        beyond = tuple(text for text in names if text not in kept)
    return replace(plan, strategy=replace(plan.strategy, techniques=beyond))


def _trained_so(case: TrainingCase, text: str) -> bool:
    """Whether the job has the degrees and the recipe already that a technique asks for."""
    return bool(unchanged(applied(TRAINING, [text]), case).all())


def _served_so(plan: Plan, text: str) -> bool:
    """Whether all replicas of the plan have the formats, degrees and settings already that a technique asks for."""
    chosen = applied(SERVING, [text])
    pairs = [(draft, chosen.rewrite(draft)) for draft in _drafts(plan)]
    return all(getattr(one, name) == getattr(other, name) for one, other in pairs for name in SAID)


def training_job(plan: Plan, target: str, job: TrainingJob | None) -> TrainingJob:
    """The job of a plan that a training target takes, resolved where nobody has done it."""
    if job is not None:
        return job
    require_load(plan, target)
    return job_of(plan)


def require_techniques(plan: Plan) -> None:
    """Refuse what the plan's work does not know, or what does not go with its format, as whoever prices it does."""
    names = plan.strategy.techniques
    if not names:
        return
    if plan.trains:
        applied(TRAINING, names)
        return
    for draft in _drafts(plan):
        applied(SERVING, names).rewrite(draft)


def _drafts(plan: Plan) -> Iterator[ServingCase]:
    """A replica of each pool, as techniques see it."""
    for each in map(plan.of_pool, plan.each_pool):
        yield ServingCase(
            model=load_model(each.model),
            pool=plan_pool(each),
            strategy=each.strategy,
            dtype=each.dtype or None,
            kv_dtype=each.kv_dtype or None,
            settings=each.engine.settings,
        )


def require_load(plan: Plan, target: str) -> None:
    """Serving targets take plans that serve, training targets plans that train, with an engine that does."""
    fitting = tuple(training_targets()) if plan.trains else serving_targets()
    if target not in fitting:
        kind = "training" if plan.trains else "serving"
        hint = f"Targets for {kind}: {', '.join(fitting)}."
        raise InputError(f"a plan for {kind} cannot be exported to '{target}'", where="load", hint=hint)
    if plan.trains:
        planned_training_engine(plan.engine)
        refuse_serving_fields(plan)
    require_techniques(plan)
