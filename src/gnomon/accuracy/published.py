"""Today's predictions of training steps beside what papers published and what we measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from gnomon.accuracy.scores import Band, Row, compared, summaries
from gnomon.api.simulate_training import simulate_training
from gnomon.catalog import chip, model_title
from gnomon.catalog.published import PublishedRun, PublishedTable, published_training
from gnomon.execution.measured_training import compare, read_training
from gnomon.load.profiles import profile_for
from gnomon.load.recipe import recipe_of
from gnomon.spec import Model, Plan, TrainingLoad
from gnomon.spec.answers import TrainingReport

STATES = ("weights", "gradients", "optimizer")
TERA, GIB = 1e12, 1024**3


def training_steps(measurements: Path) -> Row:
    """Every published and every measured training step, compared. Folders of `measurements` hold `train-*.json`."""
    published = list(map(_published, published_training()))
    folders = groupby(sorted(measurements.glob("*/train-*.json")), key=lambda path: path.parent)
    measured = [_measured(folder.name, files) for folder, files in folders]
    chips = dict.fromkeys(row["job"]["chip"] for table in published + measured for row in table["rows"])
    return {
        "published": published,
        "measured": measured,
        "profiles": [profile_for(chip(name)).source for name in chips],
    }


def counted_flops(model: Model, load: TrainingLoad) -> float:
    """FLOPs of a step as Narayanan et al. 2021 count them in their appendix, all of it run forward twice:
    96 B s l h^2 (1 + s / 6h + V / 16 l h)."""
    seq, layers, hidden = load.seq, model.layers, model.hidden
    extra = seq / (6 * hidden) + model.vocab / (16 * layers * hidden)
    return 96 * load.global_batch * seq * layers * hidden**2 * (1 + extra)


def _published(table: PublishedTable) -> Row:
    rows = [row for run in table.runs for row in _compared(run)]
    about = {name: value for name, value in asdict(table).items() if name != "runs"}
    return about | {"rows": rows, "summaries": summaries(rows)}


def _compared(run: PublishedRun) -> Iterator[Row]:
    answer = simulate_training(run.model, on=run.on, **run.options)
    for name, figure in run.figures.items():
        rate = {"tflops": figure} if name == "tflops" else {}
        yield _row(answer.plan, *_pair(answer, name, figure)) | rate


def _pair(answer: TrainingReport, name: str, figure: float) -> tuple[str, str, float, float, Band]:
    """Quantity, unit, measured, predicted, band."""
    first, step = answer.memory_parts[0], answer.step_time_s
    if name == "states_gib":
        return "states", "bytes", figure * GIB, sum(first[part] for part in STATES), None
    if name == "activations_gib":
        return "activations", "bytes", figure * GIB, first["activations"], None
    job = answer.step.job
    if name == "tflops":
        figure = counted_flops(job.model, job.load) / (figure * TERA * job.strategy.ranks)
    return "step time", "s", figure, step.value, (step.low, step.high)


def _measured(name: str, files: Iterable[Path]) -> Row:
    rows, conditions = [], dict[str, dict[str, None]]()
    for run in map(read_training, files):
        for given, value in {"device": run.device, "date": run.date, **run.versions}.items():
            conditions.setdefault(given, {})[value] = None
        for part in compare(run).parts:
            band = (part["low"], part["high"]) if part["low"] is not None else None
            rows.append(_row(run.plan, part["what"], part["unit"], part["measured"], part["predicted"], band))
    met = {given: " and ".join(values) for given, values in conditions.items()}
    return {"name": name, "conditions": met, "rows": rows, "summaries": summaries(rows)}


def _row(plan: Plan, what: str, unit: str, measured: float, predicted: float, band: Band) -> Row:
    return {"job": _job(plan)} | compared(what, unit, measured, predicted, band)


def _job(plan: Plan) -> Row:
    assert isinstance(plan.load, TrainingLoad)
    degrees = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "vp", "dp")}
    batch = {"seq": plan.load.seq, "global_batch": plan.load.global_batch}
    chips = {"chip": plan.chip, "chips": plan.strategy.ranks}
    run = {"model": model_title(plan.model), **chips, "dtype": plan.dtype, "engine": plan.engine.label}
    recipe = recipe_of(plan.engine.settings)
    cut = {"sequence_parallel": recipe.sequence_parallel and plan.strategy.tp > 1}
    return run | degrees | batch | asdict(recipe) | cut
