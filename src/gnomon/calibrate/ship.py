"""Makes the shipped profile and overheads again from the committed measurements: `make profiles`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gnomon import catalog
from gnomon.calibrate import module_fit, pooled, training_fit
from gnomon.calibrate.fit import fit_profile, read_rows
from gnomon.calibrate.overheads import Priced, bare, fit_overheads
from gnomon.calibrate.power import board, loads
from gnomon.cost.profile import forget_profiles
from gnomon.engines import Deployment
from gnomon.engines.torch.paces import FILE as PACES
from gnomon.engines.vllm.engine import Vllm
from gnomon.engines.vllm.overheads import FILE
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.spec import Chip, Model, Strategy

PROFILES = catalog.PROFILES
TABLE, TORCH, ENGINE, INFO = "kernels.csv", "torch.csv", "engine.json", "measured.json"
POWER = "power.csv"
"""Work of many kinds for seconds on end, where it was measured."""
MODULES = "modules.csv"
"""Of `gnomon.calibrate.module_kernels`, where it was measured."""


def profile(folder: Path) -> dict[str, Any]:
    """The chip's profile from the operator tables of a folder of measurements."""
    info = json.loads((folder / INFO).read_text())
    chip = catalog.chip(info["chip"])
    made = fit_profile(folder / TABLE, chip, date=info["date"], versions=info["versions"])
    made["table"] = f"{TABLE}, {TORCH}"
    made["families"] |= training_fit.families(folder / TORCH, chip, folder / TABLE)
    made |= board_of(folder, chip)
    if (folder / MODULES).exists():
        made["table"] += f", {MODULES}"
        made["families"] |= module_fit.families(folder / MODULES, chip)
    made["families"] |= pooled.families(folder, chip)
    made["table"] += "".join(f", {name}" for name in pooled.TABLES[1:] if (folder / name).exists())
    return made


def board_of(folder: Path, chip: Chip) -> dict[str, Any]:
    """What all sustained work of a folder says of the board."""
    paths = [folder / name for name in (TABLE, TORCH, POWER) if (folder / name).exists()]
    found = board([load for path in paths for load in loads(read_rows(path), str(path))], chip)
    return {"power": found.figures, "power_held_out": found.held_out}


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
