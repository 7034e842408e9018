"""From names and numbers to one replica of a model under an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.cost.profile import profile_for
from gnomon.cost.profile_file import Profile
from gnomon.engines import Deployment, Engine
from gnomon.engines import engine as engine_of
from gnomon.engines.own import own_overheads
from gnomon.errors import GnomonError, InputError, named_as, named_by
from gnomon.graph.dtypes import width
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import check_priced
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.planning.proposals import mend_degrees
from gnomon.spec import EngineChoice, Model, Pool, Strategy
from gnomon.spec.narrowed import in_format
from gnomon.techniques import WHERE, DeploymentDraft, asked, served

FLAGS = {name: f"--{name}" for name in ("tp", "pp", "ep", "cp", "dp", "dtype")} | {"kv_dtype": "--kv-dtype"}
"""Of what errors call by the name it has in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Chips with their profile, under an engine with its overheads: what names were resolved to."""

    pool: Pool
    profile: Profile
    engine: Engine
    overheads: Mapping[str, Any] | None

    @staticmethod
    def of(pool: Pool, engine: str) -> Binding:
        """That of an engine's name on these chips, with the user's own profile and overheads first."""
        (found,) = Binding.each([pool], engine)
        return found

    @staticmethod
    def each(pools: Sequence[Pool], engine: str) -> list[Binding]:
        """The same for chips of several kinds."""
        chosen = engine_of(engine)
        own = own_overheads(chosen.name)
        return [Binding(pool=pool, profile=profile_for(pool.chip), engine=chosen, overheads=own) for pool in pools]

    def deploy(self, draft: DeploymentDraft, *, priced: bool = True) -> Deployment:
        """One replica, with the engine's defaults filled in; see `deploy`."""
        pool, engine = draft.pool, self.engine
        ideas = served(draft.strategy.techniques)
        draft = ideas.settled(draft)
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
            ideas=ideas or None,
        )
        (engine.check if priced else engine.check_memory)(deployment)
        _check_count(strategy, pool)
        return deployment


def _check_count(strategy: Strategy, pool: Pool) -> None:
    if strategy.ranks > pool.count:
        raise InputError(
            f"{strategy.ranks} chips are needed for one replica and {pool.count} are there",
            where="--on",
            hint=f"Use --on {pool.chip.reference}:{strategy.ranks}.",
        )


def deploy(
    model: Model,
    pool: Pool,
    *,
    strategy: Strategy | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | EngineChoice = "vllm",
    settings: Mapping[str, Any] | None = None,
    priced: bool = True,
) -> tuple[Engine, Deployment]:
    """One replica, with the engine's defaults filled in. Nothing is priced or checked against memory yet.

    What is not `priced` only has to have a memory: operators need not stand for all of it.
    """
    binding = Binding.of(pool, engine if isinstance(engine, str) else engine.label)
    given = ({} if isinstance(engine, str) else dict(engine.settings)) | dict(settings or {})
    draft = DeploymentDraft(
        model=model,
        pool=pool,
        strategy=strategy or Strategy(),
        dtype=dtype or None,
        kv_dtype=kv_dtype or None,
        settings=given,
    )
    return binding.engine, binding.deploy(draft, priced=priced)


def dtype_of(model: Model, pool: Pool) -> str:
    """As stored; what is stored in fp32 runs in 16 bits, as vLLM has it, and 16 bits are those that the chip has."""
    if model.dtype == "fp32":
        return pool.chip.half
    return pool.chip.instead_of(model.dtype) or (pool.chip.half if model.dtype == "fp16" else model.dtype)


def running_in(model: Model, dtype: str, pool: Pool) -> Model:
    """The network with its matrices in a format; what stays wide of one that is stored in fp32 is in 16 bits too."""
    wide = model.dtype == "fp32" and width(dtype) < width(pool.chip.half)
    return in_format(in_format(model, pool.chip.half) if wide else model, dtype)


def whole(value: Any, where: str) -> int:
    """A whole number, however it came: an int, a NumPy one, 4.0."""
    try:
        number = int(value)
        same = number == value and not isinstance(value, (bool, str))
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise InputError(f"'{value}' is not a whole number", where=where)
    return number


def deploy_named(
    model: str | Path | Model,
    on: str | Pool,
    *,
    dtype: str | None,
    kv_dtype: str | None,
    engine: str,
    strategy: Strategy | None = None,
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    dp: int = 1,
    settings: Mapping[str, Any] | None,
    techniques: Sequence[str] = (),
    priced: bool = True,
) -> tuple[Engine, Deployment, dict[str, Any]]:
    """One replica from the words of a command, and those words, so that an answer can be asked for again.

    Without a tensor-parallel degree the replica spans all chips of `on`.
    """
    ideas = asked(techniques)
    found = model if isinstance(model, Model) else load_model(model)
    binding = Binding.of(parse_pool(on), engine)
    chosen, pool = binding.engine, binding.pool
    degrees: dict[str, Any] = {"tp": tp, "pp": pp, "ep": ep, "cp": cp, "dp": dp}

    def spanned(there: Pool, other: Mapping[str, Any]) -> Strategy:
        span = strategy or spanning(there, chosen, **degrees | {key: other[key] for key in other if key in degrees})
        return replace(span, techniques=(*span.techniques, *ideas))

    def one(other: Mapping[str, Any]) -> Deployment:
        """The replica of these degrees on these chips, but for what is said otherwise."""
        there = parse_pool(other["on"]) if "on" in other else pool
        draft = DeploymentDraft(
            model=found, pool=there, strategy=spanned(there, other), dtype=dtype or None, kv_dtype=kv_dtype or None,
            settings=dict(settings or {}),
        )  # fmt: skip
        return binding.deploy(draft, priced=priced)

    with flagged(lambda error: mend_degrees(error, pool, degrees, one)):
        deployment = one({})
    strategy = spanned(pool, {})
    words = {
        "model": model.name if isinstance(model, Model) else str(model),
        "on": str(on),
        **said_degrees(strategy),
        "dtype": deployment.dtype,
        "kv_dtype": deployment.kv_dtype,
        "engine": f"{chosen.name}@{chosen.version}",
        "settings": dict(settings or {}),
        **({"techniques": list(strategy.techniques)} if strategy.techniques else {}),
    }
    return chosen, deployment, words


@contextmanager
def flagged(mend: Callable[[GnomonError], None] = lambda error: None) -> Iterator[None]:
    """Errors name the flags of a command, not the fields that they become; `mend` may try what they propose."""
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


def said_degrees(strategy: Strategy) -> dict[str, int]:
    """Degrees as an answer's inputs have them."""
    others = {name: getattr(strategy, name) for name in ("pp", "ep", "cp", "dp")}
    return {"tp": strategy.tp} | {name: degree for name, degree in others.items() if degree > 1}


def spanning(pool: Pool, engine: Engine, tp: int | None, *, pp: int, ep: int, cp: int, dp: int) -> Strategy:
    """Degrees as given; without a tensor-parallel one, that with which they take all the chips."""
    asked = Strategy(
        tp=1 if tp is None else whole(tp, "--tp"),
        pp=whole(pp, "--pp"),
        ep=whole(ep, "--ep"),
        cp=whole(cp, "--cp"),
        dp=whole(dp, "--dp"),
    )
    if tp is not None or min(asked.pp, asked.cp, asked.dp) < 1:
        return asked
    others, _ = engine.arranged(asked, {})
    tp, left = divmod(pool.count, others.ranks)
    if left and others.ranks < pool.count:
        raise InputError(
            f"{pool.count} chips are not a multiple of the {others.ranks} that the other degrees take",
            where="--on",
            hint=f"Use {tp * others.ranks} or {(tp + 1) * others.ranks} chips.",
        )
    return replace(asked, tp=max(tp, 1))


def title_of(engine: Engine, deployment: Deployment) -> str:
    """Model, number format, chips and engine, as every answer begins."""
    short = ".".join(engine.version.split(".")[:2])
    label = f"{'vLLM' if engine.name == 'vllm' else engine.name} {short}"
    if engine.runs_not_on(deployment.pool.chip):
        label = f"as if {label} ran there"
    return title_words(deployment.model, deployment.dtype, deployment.pool, deployment.strategy, label)


def title_words(model: Model, dtype: str, pool: Pool, strategy: Strategy, runs_on: str) -> str:
    """The same with the words for what runs it."""
    from gnomon.catalog import model_title

    try:
        name = model_title(model.name)
    except InputError:
        name = model.name
    chips = f"{strategy.ranks} x {pool.chip.name}"
    if (strategy.pp, strategy.ep, strategy.dp) != (1, 1, 1):
        said = {degree: getattr(strategy, degree) for degree in ("tp", "pp", "dp", "ep")}
        chips += f" ({', '.join(f'{degree.upper()} {n}' for degree, n in said.items() if n > 1)})"
    ideas = f" with {', '.join(strategy.techniques)}" if strategy.techniques else ""
    return f"{name}, {dtype}, {chips}, {runs_on}{ideas}"
