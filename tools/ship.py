"""Makes the shipped profile and overheads again from the committed measurements: `make profiles`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gnomon import catalog
from gnomon.calibrate import engine_fit, module_fit, pooled, training_fit
from gnomon.calibrate.power import board, loads
from gnomon.calibrate.table import read_rows
from gnomon.catalog import build
from gnomon.engines.torch.efficiencies import FILE as EFFICIENCIES
from gnomon.engines.vllm.overheads import FILE
from gnomon.load.profile_file import SCHEMA
from gnomon.load.profiles import forget_profiles
from gnomon.spec import Chip

PROFILES = catalog.PROFILES
TABLE, TORCH, ENGINE, INFO = "kernels.csv", "torch.csv", "engine.json", "measured.json"
POWER = "power.csv"
"""Sustained work of many kinds, where it was measured."""
MODULES = "modules.csv"
"""Of `tools.module_kernels`, where it was measured."""


def profile(folder: Path) -> dict[str, Any]:
    """The chip's profile from the operator tables of a folder of measurements."""
    info = json.loads((folder / INFO).read_text())
    chip = catalog.chip(info["chip"])
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "chip": chip.name,
        "date": info["date"],
        "table": f"{TABLE}, {TORCH}",
        "versions": info["versions"],
        "families": {},
    }
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
    efficiencies = training_fit.efficiencies(folder / TORCH, chip, plain)
    if (folder / MODULES).exists():
        efficiencies |= module_fit.efficiencies(folder / MODULES, chip, profile["families"])
    return {
        "schema": "gnomon.efficiencies/1",
        "framework": "torch",
        "version": info["versions"]["torch"],
        "date": info["date"],
        "chip": info["chip"],
        "efficiencies": dict(sorted(efficiencies.items())),
    }


def overheads(folder: Path) -> dict[str, Any]:
    """The engine's figures from its measured steps."""
    data = json.loads((folder / ENGINE).read_text())
    info = json.loads((folder / INFO).read_text())
    return engine_fit.overheads(data, catalog.chip(info["chip"]), str(folder / ENGINE))


def main(folder: str) -> None:
    """Write both files; the overheads rest on the profile, so that comes first."""
    source = Path(folder)
    made = profile(source)
    write(PROFILES / f"{made['chip'].lower()}.yaml", made)
    write(EFFICIENCIES, torch_kernels(source, made))
    forget_profiles()
    write(FILE, overheads(source))


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=100))
    if path.parent == PROFILES:
        build.main(["profiles"])  # which commands read in their place
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main(sys.argv[1])
