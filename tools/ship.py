"""Makes the shipped profile and overheads again from the committed measurements: `make profiles`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from tools.governor_steps import text_of
from tools.server_loads import MAX_MODEL_LEN

from gnomon import catalog
from gnomon.calibrate import engine_fit, module_fit, pooled, training_fit
from gnomon.calibrate.http_fit import fit_http
from gnomon.calibrate.power import board, loads
from gnomon.calibrate.server_rows import server_rows
from gnomon.calibrate.table import read_rows
from gnomon.catalog import build
from gnomon.cost.machine import Machine
from gnomon.engines.torch.efficiencies import FILE as EFFICIENCIES
from gnomon.engines.vllm.overheads import FILE, HTTP, TOKENIZE, Overheads
from gnomon.load import config_of, parse_pool
from gnomon.load import model as load_model
from gnomon.load.profile_file import SCHEMA, profile_from_dict
from gnomon.load.profiles import forget_profiles
from gnomon.spec import Chip

PROFILES = catalog.PROFILES
SERVER, TOKENIZING = "h200-2026-11-18", "tokenizing.csv"
"""Beside the folder of operators: loads of tools/server_loads.py and tools/http_loads.py, and tools/tokenizing.py's
table."""
SERVED = ("qwen3-0.6b", "llama-3.1-8b")
"""Models whose server loads the overheads are fitted to; those of the others check them."""
TABLE, TORCH, ENGINE, INFO = "kernels.csv", "torch.csv", "engine.json", "measured.json"
POWER = "power.csv"
"""Sustained work of many kinds, where it was measured."""
MODULES = "modules.csv"
"""Of `tools.module_kernels`, where it was measured."""
FINE_TUNING, ROUTED = "h200-2026-11-19-finetune", "routed.csv"
"""Of `tools.finetune_kernels`: its other parts, and what is around experts."""
SHORT_US = 30.0
"""Kernels in CUDA graphs wait for no launch."""


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
    tuning = folder.parent / FINE_TUNING
    efficiencies |= training_fit.efficiencies(tuning / ROUTED, chip, plain, SHORT_US)
    efficiencies["grouped_gemm"] = grouped_gemm(tuning / TABLE, chip, profile)
    return {
        "schema": "gnomon.efficiencies/1",
        "framework": "torch",
        "version": info["versions"]["torch"],
        "date": info["date"],
        "chip": info["chip"],
        "efficiencies": dict(sorted(efficiencies.items())),
    }


def grouped_gemm(path: Path, chip: Chip, profile: Mapping[str, Any]) -> float:
    """Throughput of grouped GEMMs relative to as many equal ones in one batch: of every second row, whose median it
    is. The rows left out are 5% off on average, -6 to 13%."""
    pool = parse_pool(f"{chip.name}:1")
    machine = Machine(pool, profile_from_dict(profile, "the profile"), framework=training_fit.FRAMEWORK)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "grouped_gemm"]
    return round(float(np.median([_of_batch(row, machine) for row in rows[::2]])), 3)


def _of_batch(row: Mapping[str, str], machine: Machine) -> float:
    experts, rows, inner, hidden = (float(row[name]) for name in ("batch", "m", "n", "k"))
    each = rows / experts
    m, n, k = {
        "forward": (each, inner, hidden), "by_input": (each, hidden, inner), "by_weight": (hidden, inner, each)
    }[row["kernel"]]  # fmt: skip
    sizes = {"m": m, "n": n, "k": k, "batch": experts}
    seconds = machine.seconds("gemm", "bf16", {name: np.array([size]) for name, size in sizes.items()})
    return float(seconds[0]) * 1e6 / float(row["burst_us"] or row["time_us"])


def overheads(folder: Path, server: Path | None = None) -> dict[str, Any]:
    """The engine's figures from its measured steps in one folder, and from the server loads of another."""
    data = json.loads((folder / ENGINE).read_text())
    info = json.loads((folder / INFO).read_text())
    chip, server = catalog.chip(info["chip"]), server or folder.parent / SERVER
    for name in SERVED:
        found = json.loads(text_of(server, f"server-{name}.json"))
        data["rows"] += server_rows(name, found["loads"], max(found["settings"]["capture_sizes"]))
        data["models"][name] = config_of(name)
    made = engine_fit.overheads(data, chip, str(folder / ENGINE))
    dense = made["figures"]["dense"]
    for figures in made["figures"].values():
        figures |= {name: figures.get(name, value) for name, value in (dense | {"idle_launch": 1.0}).items()}
    about = json.loads((server / INFO).read_text())
    made |= {"date": about["date"], "measured": [data["date"], about["date"]]}
    return made | {"front_ends": {HTTP: http(server, dense, chip)}}


def http(server: Path, dense: Mapping[str, float], chip: Chip) -> dict[str, float]:
    """Figures behind the HTTP server, beside the others."""
    found = json.loads(text_of(server, f"http-{SERVED[0]}.json"))
    known = Overheads(figures=dense, source="")
    cost, limits, layers = engine_fit.priced_model(load_model(found["model"]), chip, MAX_MODEL_LEN)
    fitted = fit_http(found["loads"], known, cost.under(known.host(layers, cost.host.captured)), limits)
    tokenized = csv.DictReader(text_of(server, TOKENIZING).splitlines())
    return fitted | {f"{TOKENIZE}_us": round(median(float(row["token_us"]) for row in tokenized), 1)}


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
