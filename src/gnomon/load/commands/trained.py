"""The plan of what a command, a script or a configuration file trains."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from gnomon import catalog
from gnomon.engines import planned_training_engine, training_operations_of, training_readers
from gnomon.engines.training.job import check_job
from gnomon.engines.training.launched import SHELL, LaunchedProgram, launched_program
from gnomon.engines.training.operations import ImportedBatches, ImportedTraining, ModelShape
from gnomon.engines.training.stages import Stages
from gnomon.errors import GnomonError, InputError
from gnomon.load.chips import chip as find_chip
from gnomon.load.commands.found import CommandSource
from gnomon.load.commands.names import NamesOf, reference, total_chips
from gnomon.load.commands.source import read_source
from gnomon.load.files import is_file
from gnomon.load.fleet import parse_pool
from gnomon.load.hf import model as load_model
from gnomon.load.plan import planned_pool, read_plan
from gnomon.load.training import job_of, read_lengths
from gnomon.spec import EngineChoice, Model, MoeFfn, Plan, Pool, TrainingLoad
from gnomon.spec.imported import IgnoredOption, ImportedPlan
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.questions.imported import ImportQuestion

_HEADER = re.compile(r"# Gnomon plan(?: \S+)?: (.+) on (\d{1,7}) (\S+), [^,]+")
"""The first line of a script that Gnomon wrote: the model, how many chips and which."""
CALLED = 2
"""Scripts that start each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One program that trains, with the engine that reads it."""

    engine: str
    program: LaunchedProgram
    read: ImportedTraining


def imported_training(
    question: ImportQuestion, source: CommandSource, names: NamesOf, depth: int = 0
) -> ImportedPlan | None:
    """The plan of a source that trains, with all that it has no place for; nothing where it does not."""
    programs = list(_programs(source, names))
    if not programs:
        return _called(question, source, names, depth)
    total, header = total_chips(question.on), _HEADER.fullmatch(source.header)
    runs = [_read(source, one, engine, given, total) for engine, one, given in programs]
    first = runs[0]
    for other in runs[1:]:
        if replace(other.read, ignored=()) != replace(first.read, ignored=()) or other.engine != first.engine:
            hint = "Import one of its commands."
            raise InputError("starts several training runs that differ", where=source.name, hint=hint)
    if first.read.plan_file:
        plan = read_plan(names.folder / first.read.plan_file)
        return _answer(plan, first, [*source.ignored], source)
    pool = _chips(question, source, header[3] if header else "")
    named = names.known or (header[1] if header else "") or _written(first.read.model, names)
    model_name, notes = (named, []) if named else _by_shape(first.read.shape, source, first.read)
    model = names.model(model_name) if not names.known else names.model(names.known)
    _same_shape(first.read.shape, model, source)
    plan = _plan(reference(model_name), pool, first, question.lengths)
    _check_total(total, plan, pool)
    notes = [*source.ignored, *first.read.ignored, *notes, *_unknown_lengths(plan, first.read)]
    notes += [*_cuts(first.read, model, plan), *_unpriced(plan, model)]
    return _answer(plan, first, notes, source)


def _programs(source: CommandSource, names: NamesOf) -> Iterator[tuple[str, LaunchedProgram, NamesOf]]:
    for process in source.processes:
        given = replace(names, files=process.files)
        for engine, fields in process.trained.items():
            yield engine, LaunchedProgram(program="", fields=fields, place=process.where), given
        program = launched_program(process.words, process.environment, process.tasks) if process.words else None
        if program is None:
            continue
        for engine, reader in training_readers():
            if reader.reads(program):
                yield engine, program, given
                break


def _called(question: ImportQuestion, source: CommandSource, names: NamesOf, depth: int) -> ImportedPlan | None:
    """A script of the same folder that a source starts, as a Slurm job does."""
    if depth == CALLED:
        return None
    for process in source.processes:
        for word in process.words:
            place = names.folder / word.rpartition("/")[2]
            if word.endswith(".sh") and is_file(place) and str(place) != source.name:
                found = imported_training(question, read_source(place), names, depth + 1)
                if found is not None:
                    return found
    return None


def _read(source: CommandSource, program: LaunchedProgram, engine: str, names: NamesOf, total: int) -> _Run:
    reader = dict(training_readers())[engine]
    if not program.ranks and program.launcher != SHELL:
        program = replace(program, ranks=total or int(program.alone))
    try:
        return _Run(engine=engine, program=program, read=reader.import_training(program, names))
    except GnomonError as error:
        if source.name not in error.where and source.name != "the command":
            error.where = ", ".join(filter(None, [source.name, error.where]))
        raise


def _chips(question: ImportQuestion, source: CommandSource, named: str) -> Pool:
    if question.on is not None:
        return parse_pool(question.on)
    if not named:
        hint = "Give --on, such as --on H100 or --on H100:64 for all nodes."
        raise InputError("nothing says which chips it runs on", where=source.name, hint=hint)
    return planned_pool(find_chip(named, source.name), 0, 1)


def _written(name: str, names: NamesOf) -> str:
    """The model as the command names it; a folder beside the script by its path."""
    if not name:
        return ""
    place = names.folder / name
    with suppress(OSError, ValueError):
        if is_file(place / "config.json") or (is_file(place) and place.suffix in (".json", ".yaml")):
            return str(place)
    return name


def _by_shape(
    shape: ModelShape | None, source: CommandSource, read: ImportedTraining
) -> tuple[str, list[IgnoredOption]]:
    """The catalog's model of these sizes. Raises InputError where there is none."""
    hint = "--model NAME says which it is, or names its config.json."
    if shape is None:
        raise InputError("nothing names the model", where=source.name, hint=hint)
    found = [name for name in catalog.model_names() if _may_have(name, shape) and _has(load_model(name), shape)]
    longest = read.load.seq if read.load else 0
    found = [name for name in found if load_model(name).max_context >= longest] or found
    if not found:
        message = f"no model of the catalog has {shape.layers} layers of {shape.hidden}"
        raise InputError(message, where=source.name, hint=hint)
    if len(found) == 1:
        return found[0], []
    why = f"{', '.join(found[1:4])} have it too; --model NAME says which it is"
    return found[0], [IgnoredOption(option=f"the shape of {found[0]}", why=why)]


def _may_have(name: str, shape: ModelShape) -> bool:
    """Whether a model's config.json holds both numbers, before it is read as one."""
    text = catalog.model_config_path(name).read_text(encoding="utf-8")
    return all(re.search(rf"\b{number}\b", text) for number in (shape.layers, shape.hidden))


def _has(model: Model, shape: ModelShape) -> bool:
    return not list(_unlike(model, shape))


def _unlike(model: Model, shape: ModelShape) -> Iterator[tuple[str, int, int]]:
    """Sizes in which a model differs from a shape, as far as it says them."""
    ffn = next((block.ffn for block in model.blocks if isinstance(block.ffn, MoeFfn)), None)
    experts = ffn.experts if ffn is not None else 0
    inner = ffn.inner if ffn is not None else getattr(model.blocks[0].ffn, "inner", 0)
    heads = getattr(model.blocks[0].mixer, "heads", 0), getattr(model.blocks[0].mixer, "kv_heads", 0)
    own = {"layers": model.layers, "hidden": model.hidden, "experts": experts}
    if shape.inner:
        own["inner"] = inner
    if shape.heads:
        own["heads"] = heads[0]
    if shape.kv_heads and heads[1]:
        own["kv_heads"] = heads[1]
    if shape.vocab and abs(shape.vocab - model.vocab) > PADDING:
        own["vocab"] = model.vocab
    for name, value in own.items():
        if value != getattr(shape, name):
            yield name, getattr(shape, name), value


PADDING = 1024
"""Rows that engines and checkpoints add to a vocabulary."""


def _same_shape(shape: ModelShape | None, model: Model, source: CommandSource) -> None:
    """Raise InputError where the command trains another network than the model that is named."""
    if shape is not None and (found := next(_unlike(model, shape), None)):
        name, theirs, ours = found
        message = f"it trains a network with {name} {theirs:,}, and {model.name} has {ours:,}"
        raise InputError(message, where=source.name, hint="--model NAME says which it is, or names its config.json.")


def _plan(model: str, pool: Pool, run: _Run, lengths: int | str | None) -> Plan:
    read, load = run.read, run.read.load
    batches = read.batches or ImportedBatches(told="")
    given = lengths if lengths is not None else batches.lengths
    if load is not None and given:
        sequences = Sequences(
            lengths=read_lengths(given, "--lengths"),
            packing=batches.packing,
            document_masking=batches.document_masking,
            sampling=batches.sampling,
            seed=batches.seed,
        )
        load = replace(load, sequences=sequences)
    usual = planned_pool(pool.chip, 0, read.strategy.ranks)
    odd = run.program.nodes > 1 and run.program.per_node not in (0, usual.machine_chips)
    plan = Plan(
        model=model,
        chip=pool.chip.file or pool.chip.reference,
        per_node=run.program.per_node if odd else pool.unusual_node_size,
        power_limit_w=pool.power_limit_w,
        replicas=1,
        strategy=replace(read.strategy, techniques=tuple(_techniques(read))),
        dtype=read.dtype,
        engine=EngineChoice(name=run.engine, version=read.version, settings=read.recipe.settings),
        load=load,
    )
    return plan if load is None or read.load is None or load.sequences is None else _of_steps(plan, read.load.steps)


def _of_steps(plan: Plan, steps: int | None) -> Plan:
    """A plan of sequences that differ in length, with the tokens that its command's steps have, which are fewer than
    full sequences would be."""
    if steps is None or not isinstance(plan.load, TrainingLoad):
        return plan
    each = job_of(plan).load.step_tokens
    tokens = steps * each
    if math.ceil(tokens / each) > steps:
        tokens = math.nextafter(tokens, 0.0)  # the product was rounded up
    return replace(plan, load=replace(plan.load, tokens=tokens))


def _techniques(read: ImportedTraining) -> Iterator[str]:
    """What its options ask for, as a plan writes it."""
    for name, values in read.techniques.items():
        given = (f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items())
        yield f"{name}:{','.join(given)}" if values else name


def _unknown_lengths(plan: Plan, read: ImportedTraining) -> Iterator[IgnoredOption]:
    """Packing or padding of sequences whose lengths the command does not say."""
    load = plan.load
    if read.batches and isinstance(load, TrainingLoad) and load.sequences is None:
        why = f"not modelled: priced as full sequences of {load.seq:,} tokens; --lengths says how long they are"
        yield IgnoredOption(option=read.batches.told, why=why, affects=True)


def _check_total(total: int, plan: Plan, pool: Pool) -> None:
    if total and total != plan.chips:
        hint = f"Give --on {pool.chip.reference}, and the number follows."
        raise InputError(f"{total:,} chips are not the {plan.chips:,} that it starts on", where="--on", hint=hint)


def _cuts(read: ImportedTraining, model: Model, plan: Plan) -> Iterator[IgnoredOption]:
    """Pipeline parts that a plan cuts otherwise."""
    if not read.stages:
        return
    ours = tuple(Stages(model).sizes(plan.strategy.pp * plan.strategy.vp).tolist())
    if ours != read.stages:
        why = f"not modelled: priced as {', '.join(map(str, ours[:8]))}{' …' if len(ours) > 8 else ''}"
        option = f"pipeline parts of {', '.join(map(str, read.stages[:8]))}{' …' if len(read.stages) > 8 else ''}"
        yield IgnoredOption(option=option, why=f"{why} layers", affects=True)


def _unpriced(plan: Plan, model: Model) -> Iterator[IgnoredOption]:
    """Why no figure can be given for the plan, where that is so. Raises InputError where nobody could train it so."""
    job = job_of(plan)
    check_job(job)
    engine = planned_training_engine(plan.engine)
    try:
        engine.check(model, plan.strategy, job.recipe, job.load, plan.dtype)
    except GnomonError as error:
        yield IgnoredOption(option=error.where, why=f"not modelled: {error.message}", affects=True)


def _answer(plan: Plan, run: _Run, notes: list[IgnoredOption], source: CommandSource) -> ImportedPlan:
    words = " ".join([*run.program.arguments, *map(str, run.program.options.values())])
    used = {name for name, value in source.variables.items() if len(value.split()) == 1 and value in words}
    operations = training_operations_of(run.engine)
    title = operations.TITLE if operations else run.engine
    return ImportedPlan(
        title=f"{plan.model} on {plan.chips:,} x {plan.chip} ({_degrees(plan)}{plan.dtype}), {title}",
        plan=plan,
        ignored=tuple(dict.fromkeys(notes)),
        variables={name: value for name, value in source.variables.items() if name in used},
        command=_command(run.engine, plan),
    )


def _degrees(plan: Plan) -> str:
    found = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    return "".join(f"{name.upper()} {degree}, " for name, degree in found.items() if degree > 1)


def _command(engine: str, plan: Plan) -> str:
    """The launch command as Gnomon writes it; empty where it cannot, or techniques add options to it."""
    operations = training_operations_of(engine)
    if operations is None or plan.strategy.techniques:
        return ""
    try:
        return shlex.join(operations.command(job_of(plan)))
    except GnomonError:
        return ""
