"""Whether a plan can be started: checked as whoever predicts it does, before anything is written or run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gnomon.engines import engine as engine_of
from gnomon.engines import training_targets
from gnomon.engines.training.launch import nodes
from gnomon.errors import DoesNotFitError, GnomonError, InputError, named_by
from gnomon.export import TrainingScript, target
from gnomon.export.base import operated, require_load
from gnomon.graph.support import unpriced
from gnomon.load import draw
from gnomon.load import model as load_model
from gnomon.load.chips import chip as find_chip
from gnomon.load.deployments import deploy
from gnomon.load.plan import check_format, plan_pool
from gnomon.load.traces import located_lengths
from gnomon.load.training import job_of, planned_step
from gnomon.spec import EngineChoice, Model, Plan, ServingLoad
from gnomon.spec.answers import Fit
from gnomon.spec.plan import PREFILL
from gnomon.units import format_bytes

Fits = Callable[..., Fit]
"""Whether one replica fits, as `gnomon fit` answers it."""
CONTEXT = "engine.settings.CONTEXT"
"""Stands for the engine's own setting of the longest sequence."""
_FIELDS = {
    "--dtype": "dtype",
    "--kv-dtype": "kv_dtype",
    "--on": "strategy",
    "--with": "strategy.techniques",
    "--engine": "engine",
    "--context": CONTEXT,
    "--trace": "load.trace",
    "--rate": "load.rate_per_s",
    "--input": "load.input_tokens",
    "--output": "load.output_tokens",
    "--requests": "load.requests",
    "--seed": "load.seed",
    "--arrivals": "load.arrivals",
    "--prefix": "load.prefix",
    "--turns": "load.turns",
    "--think": "load.think_s",
    "--adapters": "load.adapters",
    "--priorities": "load.priorities",
    "--slo": "goals",
}
"""Flags that errors of serving name, as fields of a plan."""
_DEGREE = re.compile(r"(?:--|\b)(tp|pp|ep|cp|dp|vp)\b")
_FLAG = re.compile(rf"{'|'.join(sorted((f for f in _FIELDS if f.startswith('--')), key=len, reverse=True))}(?![\w-])")
_COMMAND = re.compile(r"(`[^`]*`)")


def startable(plan: Plan, to: str, fits: Fits) -> Plan:
    """The plan as it would run under a target. Raises InputError, or DoesNotFitError, where it would not."""
    for each in plan.each_pool:
        for field in ("dtype", "kv_dtype") if each.kv_dtype else ("dtype",):
            check_format(getattr(each, field), field)
    if plan.trains:
        return _training(plan, to)
    with as_fields(plan.engine):
        require_load(plan, to)
    for place, pool in enumerate(plan.each_pool):
        with as_fields(pool.engine), _placed(f"pools[{place}]" if plan.pools else ""):
            _serving(plan.of_pool(pool) if plan.pools else plan, fits, pool.role)
    with as_fields(plan.engine):
        target(to).check(plan)
    return plan


@contextmanager
def _placed(pool: str) -> Iterator[None]:
    """Errors in here are about one pool."""
    try:
        yield
    except GnomonError as error:
        error.where = f"{pool}.{error.where}".rstrip(".") if pool and error.where != "load" else error.where
        raise


def checked(plan: Plan, to: str, force: bool, fits: Fits) -> tuple[Plan, tuple[str, ...]]:
    """The plan as it would run; with `force` also one that would not, and why it would not."""
    try:
        return startable(plan, to, fits), ()
    except GnomonError as error:
        if not force:
            raise
        return plan, (str(error),)


def refuse_pools(plan: Plan, verb: str) -> None:
    """Raise InputError where a plan has several pools, which are exported and not started from here."""
    if plan.pools:
        to = plan.engine.name
        hint = f"`gnomon export PLAN --to {to}` writes launch.sh, which starts all pools and their router."
        message = f"the plan has {len(plan.pools)} pools, and only plans of one pool are {verb} from here"
        raise InputError(message, where="pools", hint=hint)


def located(plan: Plan) -> Plan:
    """The plan with files named by their whole paths, so that it means the same from any folder."""
    with named_by("model"):
        model = load_model(plan.model)
    if model.source and not model.hub_id:
        file = Path(model.source).resolve()
        plan = replace(plan, model=str(file.parent if file.name == "config.json" else file))
    plan = replace(
        plan,
        chip=_located_chip(plan.chip),
        pools=tuple(replace(pool, chip=_located_chip(pool.chip)) for pool in plan.pools),
    )
    if plan.checkpoint and Path(plan.checkpoint).exists():
        plan = replace(plan, checkpoint=str(Path(plan.checkpoint).resolve()))
    if isinstance(plan.load, ServingLoad) and plan.load.trace and Path(plan.load.trace).is_file():
        plan = replace(plan, load=replace(plan.load, trace=str(Path(plan.load.trace).resolve())))
    if isinstance(plan.load, ServingLoad):
        plan = replace(plan, load=located_lengths(plan.load))
    return plan


def _located_chip(name: str) -> str:
    chip = find_chip(name, "chip")
    return str(Path(chip.file).resolve()) if chip.file else name


def _serving(plan: Plan, fits: Fits, role: str) -> None:
    started = operated(plan)
    model = load_model(plan.model)
    pool, strategy = plan_pool(plan, plan.ranks), plan.strategy
    if not unpriced(model):
        deploy(
            model, pool, strategy=strategy, dtype=plan.dtype, kv_dtype=plan.kv_dtype or None, engine=plan.engine
        )  # fmt: skip
    started.layout(plan)
    held = _checkpoint(plan, model)
    found = fits(
        held or plan.model, on=f"{plan.chip}:{plan.ranks}", dtype=None if held else plan.dtype,
        kv_dtype=plan.kv_dtype or None, engine=plan.engine.label, tp=strategy.tp, pp=strategy.pp, ep=strategy.ep,
        cp=strategy.cp, dp=strategy.dp, settings=plan.engine.settings,
        techniques=() if held else strategy.techniques,
    )  # fmt: skip
    if not found.fits:
        raise _too_large(found, plan)
    _check_load(plan, int(found.inputs["context"]), model.max_context, role)


def _checkpoint(plan: Plan, model: Model) -> str:
    """The folder of the plan's checkpoint, once it is known to hold the model in the plan's format; nothing where there
    is none, or it cannot be opened from here."""
    if not plan.checkpoint or not Path(plan.checkpoint).exists():
        return ""
    held = load_model(Path(plan.checkpoint))
    if held.dtype != plan.dtype:
        message = f"{plan.checkpoint} holds {held.dtype}, and the plan is in {plan.dtype}"
        raise InputError(message, where="checkpoint")
    if held.parameters != model.parameters:
        message = f"{plan.checkpoint} has {held.parameters:,} parameters, and {model.name} {model.parameters:,}"
        raise InputError(message, where="checkpoint")
    return plan.checkpoint


def _too_large(found: Fit, plan: Plan) -> DoesNotFitError:
    """What does not fit, the cause first: the weights, or a sequence beside them."""
    usable, chip = format_bytes(found.usable_bytes), plan_pool(plan).chip.name
    taken = sum(size for name, size in found.parts.items() if name != "kv")
    wanted = int(found.inputs["context"])
    if taken >= found.usable_bytes or not found.max_context:
        weights = format_bytes(found.parts["weights"])
        why = f"{format_bytes(taken)} (weights {weights}) are needed on each {chip}, and {usable} are usable"
    else:
        why = f"beside the weights there is room for a sequence of {found.max_context:,} tokens, not of {wanted:,}"
    ways = "; or ".join(change.what for change in found.changes[:3])
    hint = f"What fits: {ways}." if ways else "Use more chips, or a smaller model."
    return DoesNotFitError(f"it does not fit: {why}", hint=hint)


def _check_load(plan: Plan, longest: int, context: int, role: str) -> None:
    """Every request of the load has room in the longest sequence; the model has a `context` of its own. A prefill
    server computes one token of an answer."""
    load = plan.load
    if not isinstance(load, ServingLoad):
        return
    stream = draw(replace(load, requests=1) if load.alike else load, repeat=False)
    most = int((stream.input_tokens + (1 if role == PREFILL else stream.output_tokens)).max())
    if most > longest:
        raise InputError(
            f"a request of {most:,} tokens is longer than {_context_setting(plan.engine)} {longest:,}",
            where="load",
            hint=f"Shorten it, or set {_as_field(plan.engine)} to {most}." if most <= context else "Shorten it.",
        )


def _training(plan: Plan, to: str) -> Plan:
    """Under the engine that the target starts, whichever the plan was made for, in the version that is written for."""
    require_load(plan, to)
    nodes(job_of(plan))
    engine = training_targets()[to]
    step = planned_step(plan, engine)
    if not step.fits:
        usable, fullest = format_bytes(step.usable_bytes), max(step.peaks)
        why = f"the fullest rank needs {format_bytes(fullest)}, and {usable} are usable on each {step.pool.chip.name}"
        if fullest <= step.usable_bytes and step.full_tier:
            kept = format_bytes(step.tier_bytes[step.full_tier])
            why = f"a host needs {kept} of {step.full_tier} for what its ranks keep there, more than it has"
        finds = f"`gnomon plan train --engine {engine}`"
        hint = f"{finds} finds a plan that fits, or says how many chips it takes."
        raise DoesNotFitError(f"it does not fit: {why}", hint=hint)
    settled = step.job
    ready = replace(plan, strategy=settled.strategy, engine=replace(plan.engine, settings=settled.recipe.settings))
    TrainingScript(to).check(ready, replace(settled, engine=plan.engine.label))
    return ready


def _context_setting(choice: EngineChoice) -> str:
    """What a plan's engine calls the longest sequence."""
    return ", ".join(engine_of(choice.label).settings_for(context=1))


def _as_field(choice: EngineChoice) -> str:
    return f"engine.settings.{_context_setting(choice)}"


@contextmanager
def as_fields(choice: EngineChoice) -> Iterator[None]:
    """What a command's flags would be blamed for in here stands in the plan's fields; commands in hints keep theirs."""
    try:
        yield
    except GnomonError as error:
        where = error.where.removeprefix("setting ")
        setting = f"engine.settings.{where}" if where != error.where else ""
        error.where = setting or _FIELDS.get(where) or _fields(where)
        parts = _COMMAND.split(error.hint)
        error.hint = "".join(part if part.startswith("`") else _fields(part) for part in parts)
        if CONTEXT in error.where + error.hint:
            own = _as_field(choice)
            error.where, error.hint = error.where.replace(CONTEXT, own), error.hint.replace(CONTEXT, own)
        raise


def _fields(text: str) -> str:
    text = _FLAG.sub(lambda found: _FIELDS[found[0]], text)
    return text if "strategy" in text else _DEGREE.sub(r"strategy.\1", text)
