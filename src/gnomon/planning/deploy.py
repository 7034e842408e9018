"""One replica of a model under an engine: the requested options, bound to chips, with defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gnomon.cost.profile import Profile
from gnomon.engines import Deployment, Engine, TrainingEngine
from gnomon.engines.base import ServingCase
from gnomon.engines.own import MeasuredHosts
from gnomon.errors import GnomonError, InputError, named_as, named_by
from gnomon.graph.dtypes import width
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import check_priced
from gnomon.planning.proposals import mend_degrees
from gnomon.spec import Model, Pool, Strategy
from gnomon.spec.answers import Resolved
from gnomon.spec.narrowed import in_format
from gnomon.spec.questions.base import whole
from gnomon.techniques import SERVING, WHERE, applied

FLAGS = {name: f"--{name}" for name in ("tp", "pp", "ep", "cp", "dp", "dtype")} | {"kv_dtype": "--kv-dtype"}
"""Flags by the field of a plan that errors name."""
NO_DEGREES: Mapping[str, int | None] = {"tp": None, "pp": 1, "ep": 1, "cp": 1, "dp": 1}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Chips with their profile, under an engine with its overheads: what names were resolved to."""

    pool: Pool
    profile: Profile
    engine: Engine
    overheads: MeasuredHosts

    def deploy(self, draft: ServingCase, *, priced: bool = True) -> Deployment:
        """One replica, with the engine's defaults filled in; memory is not checked yet. A replica that is not `priced`
        is only sized: Gnomon need not know a cost for all of its operators."""
        pool, engine = draft.pool, self.engine
        chosen = applied(SERVING, draft.strategy.techniques)
        draft = chosen.rewrite(draft)
        dtype = draft.dtype or dtype_of(draft.model, pool)
        if priced:
            check_priced(draft.model, dtype)
        with named_by("dtype"):
            model = running_in(draft.model, dtype, pool)
        kv_dtype = draft.kv_dtype or (pool.chip.half if width(dtype) < 2 else dtype)
        with named_by("kv_dtype"):
            width(kv_dtype)
        if priced:
            check_degrees(model, draft.strategy)
        strategy, given = engine.arranged(draft.strategy, dict(draft.settings))
        deployment = Deployment(
            model=model,
            pool=pool,
            strategy=strategy,
            dtype=dtype,
            kv_dtype=kv_dtype,
            settings=engine.settings(given, model, pool),
            profile=self.profile,
            overheads=self.overheads,
            techniques=chosen,
        )
        (engine.check if priced else engine.check_memory)(deployment)
        _check_count(strategy, pool)
        return deployment


def _check_count(strategy: Strategy, pool: Pool) -> None:
    if strategy.ranks > pool.count:
        raise InputError(
            f"one replica needs {strategy.ranks} chips and the pool has {pool.count}",
            where="--on",
            hint=f"Use --on {pool.chip.reference}:{strategy.ranks}.",
        )


def dtype_of(model: Model, pool: Pool) -> str:
    """The stored format; fp32 checkpoints run in 16 bits, as under vLLM, in the 16-bit format that the chip
    supports."""
    if model.dtype == "fp32":
        return pool.chip.half
    return pool.chip.instead_of(model.dtype) or (pool.chip.half if model.dtype == "fp16" else model.dtype)


def running_in(model: Model, dtype: str, pool: Pool) -> Model:
    """The model with its matrices in a format; of an fp32 checkpoint the unquantised tensors are in 16 bits too."""
    wide = model.dtype == "fp32" and width(dtype) < width(pool.chip.half)
    return in_format(in_format(model, pool.chip.half) if wide else model, dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """One replica as requested: a model on chips under an engine, whose defaults fill in the rest."""

    model: Model
    reference: str
    """The name the model was given by."""
    on: str
    """The name the chips were given by."""
    binding: Binding
    torch: TrainingEngine | None = None
    """PyTorch, where it runs the network in place of a serving engine."""
    degrees: Mapping[str, int | None] = field(default_factory=lambda: dict(NO_DEGREES))
    """Parallel degrees; without a tensor-parallel one the replica spans all chips."""
    dtype: str | None = None
    kv_dtype: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    techniques: tuple[str, ...] = ()
    priced: bool = True
    """Whether its steps are priced, or only its memory is computed."""

    @property
    def pool(self) -> Pool:
        return self.binding.pool

    @property
    def engine(self) -> Engine:
        return self.binding.engine

    @property
    def strategy(self) -> Strategy:
        """Degrees as given; the default tensor-parallel degree uses all chips."""
        given: dict[str, Any] = {
            name: 1 if degree is None else whole(degree, f"--{name}") for name, degree in self.degrees.items()
        }
        asked = replace(Strategy(), **given)
        if self.degrees["tp"] is None and min(asked.pp, asked.cp, asked.dp) >= 1:
            others, _ = self.engine.arranged(asked, {})
            asked = replace(asked, tp=_spanned(self.pool.count, others.ranks))
        return replace(asked, techniques=self.techniques)

    def draft(self) -> ServingCase:
        return ServingCase(
            model=self.model, pool=self.pool, strategy=self.strategy, dtype=self.dtype, kv_dtype=self.kv_dtype,
            settings=dict(self.settings),
        )  # fmt: skip

    def deploy(self) -> Deployment:
        """The deployment, with defaults filled in; an error names the flags of a command, and proposes only what
        works."""
        return self.mended(lambda one: one.binding.deploy(one.draft(), priced=one.priced))

    def mended(self, deploy: Callable[[ReplicaSpec], T]) -> T:
        """`deploy(self)`; its error keeps only those proposals with which `deploy` succeeds."""

        def other(changed: Mapping[str, Any]) -> ReplicaSpec:
            pool = changed.get("on", self.pool)
            degrees = {name: changed.get(name, degree) for name, degree in self.degrees.items()}
            return replace(self, binding=replace(self.binding, pool=pool), degrees=degrees)

        with flagged(
            lambda error: mend_degrees(error, self.pool, self.degrees, lambda changed: deploy(other(changed)))
        ):
            return deploy(self)

    def without(self, technique: str) -> ReplicaSpec:
        return replace(self, techniques=tuple(name for name in self.techniques if name != technique))

    @property
    def resolved(self) -> Resolved:
        """The facts about model and chips that a report shows."""
        return Resolved.of(self.model, self.pool)

    def inputs(self, deployment: Deployment) -> dict[str, Any]:
        """The inputs of an answer, from which it can be reproduced."""
        return {
            "model": self.reference,
            "on": self.on,
            **said_degrees(self.strategy),
            "dtype": deployment.dtype,
            "kv_dtype": deployment.kv_dtype,
            "engine": f"{self.engine.name}@{self.engine.version}",
            "settings": dict(self.settings),
            **self.pool.limit_inputs,
            **({"techniques": list(self.techniques)} if self.techniques else {}),
        }


def _spanned(chips: int, others: int) -> int:
    """The tensor-parallel degree with which all chips are used; `others` is the product of the other degrees."""
    tp, left = divmod(chips, others)
    if left and others < chips:
        raise InputError(
            f"{chips} chips are not a multiple of {others}, the product of the other degrees",
            where="--on",
            hint=f"Use {tp * others} or {(tp + 1) * others} chips.",
        )
    return max(tp, 1)


@contextmanager
def flagged(mend: Callable[[GnomonError], None] = lambda error: None) -> Iterator[None]:
    """Errors name the flags of a command, not fields of a plan; `mend` may try what they propose."""
    try:
        with named_as(WHERE, "--with"):
            yield
    except GnomonError as error:
        error.where = FLAGS.get(error.where) or re.sub(r"^setting\b", "--set", error.where)
        mend(error)
        raise


def refuse_techniques(what: str, techniques: Sequence[str], hint: str = "Leave it out.") -> None:
    if techniques:
        raise InputError(f"{techniques[0]} is not applied to {what}", where="--with", hint=hint)


def set_flags(settings: Mapping[str, Any]) -> str:
    """Settings of an engine as a command has them."""
    return " ".join(f"--set {name}={value}" for name, value in settings.items())


def said_degrees(strategy: Strategy) -> dict[str, int]:
    """Degrees as an answer's inputs have them."""
    others = {name: getattr(strategy, name) for name in ("pp", "ep", "cp", "dp")}
    return {"tp": strategy.tp} | {name: degree for name, degree in others.items() if degree > 1}


def title_of(engine: Engine, deployment: Deployment) -> str:
    """Model, number format, chips and engine: the title of an answer."""
    short = ".".join(engine.version.split(".")[:2])
    label = f"{engine.title} {short}"
    if engine.runs_not_on(deployment.pool.chip):
        label = f"as if {label} ran there"
    return title_words(deployment.model, deployment.dtype, deployment.pool, deployment.strategy, label)


def title_words(model: Model, dtype: str, pool: Pool, strategy: Strategy, runs_on: str) -> str:
    """The title of an answer, with the name of what runs the model."""
    from gnomon.catalog import model_title

    try:
        name = model_title(model.name)
    except InputError:
        name = model.name
    chips = f"{strategy.ranks} x {pool.chip.name}{pool.limited_words}"
    if (strategy.pp, strategy.ep, strategy.dp) != (1, 1, 1):
        degrees = {degree: getattr(strategy, degree) for degree in ("tp", "pp", "dp", "ep")}
        chips += f" ({', '.join(f'{degree.upper()} {n}' for degree, n in degrees.items() if n > 1)})"
    applied = f" with {', '.join(strategy.techniques)}" if strategy.techniques else ""
    return f"{name}, {dtype}, {chips}, {runs_on}{applied}"
