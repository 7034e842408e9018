"""Makes the shipped profile and overheads again from the committed measurements: `make profiles`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gnomon import catalog
from gnomon.calibrate import module_fit, training_fit
from gnomon.calibrate.fit import FOLDS, FamilyFit, fit_family, fit_profile, read_table
from gnomon.calibrate.overheads import Priced, bare, fit_overheads
from gnomon.cost.kernels import kernel_model
from gnomon.cost.profile import forget_profiles
from gnomon.cost.rows import shape_of
from gnomon.engines import Deployment
from gnomon.engines.torch.paces import FILE as PACES
from gnomon.engines.vllm.engine import Vllm
from gnomon.engines.vllm.overheads import FILE
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.spec import Chip, Model, Strategy
from gnomon.spec.workload import Floats

PROFILES = catalog.PROFILES
TABLE, TORCH, ENGINE, INFO = "kernels.csv", "torch.csv", "engine.json", "measured.json"
MODULES, MIXERS = "modules.csv", "mixers.csv"
"""Of `gnomon.calibrate.module_kernels` and `gnomon.calibrate.mixer_kernels`, where they were measured."""


def profile(folder: Path) -> dict[str, Any]:
    """The chip's profile from the operator tables of a folder of measurements."""
    info = json.loads((folder / INFO).read_text())
    chip = catalog.chip(info["chip"])
    made = fit_profile(folder / TABLE, chip, date=info["date"], versions=info["versions"])
    made["table"] = f"{TABLE}, {TORCH}"
    made["families"] |= training_fit.families(folder / TORCH, chip, folder / TABLE)
    made["power"] |= training_fit.clock(folder / TORCH, chip, made["power"])
    if (folder / MODULES).exists():
        made["table"] += f", {MODULES}"
        made["families"] |= module_fit.families(folder / MODULES, chip)
    if (folder / MIXERS).exists():
        made["table"] += f", {MIXERS}"
        made["families"] |= mixers(folder / MIXERS, chip)
    return made


def mixers(path: Path, chip: Chip) -> dict[str, Any]:
    """Scans, and products with weights in four bits. Attention over latents is only checked: with so few rows a fit
    does no better on unseen ones than the figures it starts from, which fit a published table of an H100."""
    found = {}
    for (kind, dtype), columns in sorted(read_table(path).items()):
        if kind.startswith("scan") or kind == "gemm":
            found[f"{kind}.{dtype}"] = fit_family(kind, dtype, columns, chip).to_dict()
        elif kind == "mla_decode":
            found[f"{kind}.{dtype}"] = _checked(kind, dtype, columns, chip)
    return found


def _checked(kind: str, dtype: str, columns: Mapping[str, Floats], chip: Chip) -> dict[str, Any]:
    model = kernel_model(kind)
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    sizes = shape_of(kind, {name: values for name, values in columns.items() if name != "time_us"})
    errors = np.log(model.seconds(sizes, dtype, chip, start) * 1e6 / columns["time_us"])
    fitted = FamilyFit(
        kind=kind,
        dtype=dtype,
        coefficients=start,
        residual=None,
        errors=errors,
        measured_s=columns["time_us"] * 1e-6,
        fold=np.arange(errors.size) % FOLDS,
    )
    return fitted.to_dict() | {"source": "where figures that fit a published table of an H100 were checked"}


def torch_kernels(folder: Path, profile: Mapping[str, Any]) -> dict[str, Any]:
    """Paces of PyTorch's kernels beside the plain streaming of the same profile."""
    info = json.loads((folder / INFO).read_text())
    chip, plain = catalog.chip(info["chip"]), profile["families"]["elementwise.bf16"]["coefficients"]
    paces = training_fit.paces(folder / TORCH, chip, plain)
    if (folder / MODULES).exists():
        paces |= module_fit.paces(folder / MODULES, chip, profile["families"])
    return {
        "schema": "gnomon.paces/1",
        "framework": "torch",
        "version": info["versions"]["torch"],
        "date": info["date"],
        "chip": info["chip"],
        "paces": dict(sorted(paces.items())),
    }


def overheads(folder: Path) -> dict[str, Any]:
    """The engine's figures from its measured steps; models of one kind are fitted together."""
    data = json.loads((folder / ENGINE).read_text())
    info = json.loads((folder / INFO).read_text())
    kinds = {name: "moe" if "num_experts" in config else "dense" for name, config in data["models"].items()}
    priced = _priced(data, catalog.chip(info["chip"]))
    figures = {}
    for kind in ("dense", "moe"):
        rows = [row for row in data["rows"] if row["kind"] == "frontend" or kinds[row["model"]] == kind]
        found = fit_overheads(rows, priced)
        figures[kind] = {name: round(value, 1 if name.endswith("_us") else 4) for name, value in found.items()}
    return {
        "schema": "gnomon.overheads/1",
        "engine": data["engine"],
        "version": data["versions"]["vllm"],
        "date": data["date"],
        "host": data["host"],
        "models": sorted(kinds),
        "figures": figures,
    }


def _priced(data: Mapping[str, Any], chip: Chip) -> Priced:
    found = {}
    for name, config in data["models"].items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "config.json")
            path.write_text(json.dumps(config))
            found[name] = _price(load_model(path), chip, data["max_model_len"])
    return found


def _price(model: Model, chip: Chip, context: int) -> Any:
    vllm, pool = Vllm(), parse_pool(chip.name)
    settings = vllm.settings({"max_model_len": context}, model, pool)
    deployment = Deployment(
        model=model, pool=pool, strategy=Strategy(), dtype=model.dtype, kv_dtype=model.dtype, settings=settings
    )
    return bare(vllm.step_cost(deployment)), vllm.limits(deployment), model.layers


def main(folder: str) -> None:
    """Write both files; the overheads rest on the profile, so that comes first."""
    source = Path(folder)
    made = profile(source)
    write(PROFILES / f"{made['chip'].lower()}.yaml", made)
    write(PACES, torch_kernels(source, made))
    forget_profiles()
    write(FILE, overheads(source))


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=100))
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main(sys.argv[1])
