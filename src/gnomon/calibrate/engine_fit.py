"""From an engine's measured steps to its overheads: every model is priced, and what is left is fitted."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.calibrate.overheads import Priced, bare, fit_overheads
from gnomon.calibrate.readers.engine_steps import check_steps
from gnomon.cost.table import TableStepCost
from gnomon.engines import Deployment
from gnomon.engines.own import check_figures
from gnomon.engines.vllm.engine import Vllm
from gnomon.engines.vllm.overheads import LATER, RANGES
from gnomon.errors import CalibrationError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.overheads import SCHEMA
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Model, Strategy

SHARED = ("frontend", "front", "egress")
"""Rows of the front end, whatever model is behind it."""
PER_STEP = ("eager_base_us", "captured_base_us", "launch_sequence_us", "launch_prompt_us", "idle_launch")
"""Of the engine's loop, whatever layers a step has: taken from another kind of model where all models of a kind have as
many layers, which cannot tell what a step takes from what its layers take."""


def overheads(data: Mapping[str, Any], chip: Chip, where: str = "the measured steps") -> dict[str, Any]:
    """The content of an overheads file from measured steps; models of one kind are fitted together, dense first."""
    check_steps(data, where, ("vllm",))
    models = {name: _loaded(config) for name, config in data["models"].items()}
    kinds = {name: "moe" if model.is_moe else "dense" for name, model in models.items()}
    priced: Priced = {name: priced_model(model, chip, data["max_model_len"]) for name, model in models.items()}
    figures: dict[str, dict[str, float]] = {}
    for kind in sorted(set(kinds.values())):
        rows = [row for row in data["rows"] if row["kind"] in SHARED or kinds[row["model"]] == kind]
        depths = {models[name].layers for name, each in kinds.items() if each == kind}
        known = next(iter(figures.values()), {}) if len(depths) == 1 else {}
        try:
            found = fit_overheads(rows, priced, {name: known[name] for name in PER_STEP if name in known})
        except CalibrationError as problem:
            raise CalibrationError(problem.message, where=where) from None
        except (KeyError, TypeError, ValueError) as problem:
            raise CalibrationError(f"a measured step cannot be read ({problem})", where=where) from None
        rounded = {name: round(value, 1 if name.endswith("_us") else 4) for name, value in found.items()}
        figures[kind] = check_figures(rounded, kind, RANGES, where, LATER)
    return overheads_file(data, figures)


def overheads_file(data: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an overheads file: what was measured, on which host, and the figures."""
    engine = data["engine"]
    about = {"schema": SCHEMA, "engine": engine, "version": data["versions"][engine]}
    return about | {"date": data["date"], "host": data["host"], "models": sorted(data["models"]), "figures": figures}


def _loaded(config: Mapping[str, Any]) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config))
        return load_model(path)


def priced_model(model: Model, chip: Chip, context: int) -> Any:
    """A model's steps without the engine's overheads, its limits and its layers."""
    vllm, pool = Vllm(), parse_pool(chip.name)
    settings = vllm.settings({"max_model_len": context}, model, pool)
    deployment = Deployment(
        model=model,
        pool=pool,
        strategy=Strategy(),
        dtype=model.dtype,
        kv_dtype=model.dtype,
        settings=settings,
        profile=profile_for(chip),
    )
    cost = vllm.step_cost(deployment)
    assert isinstance(cost, TableStepCost)
    return bare(cost), vllm.limits(deployment), model.layers
