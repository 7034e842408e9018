"""Families of serving kernels from all tables of a folder that hold some of them.

Attention comes from shapes of models, drawn ones, windows and caches in eight bits; GEMMs from shapes of models and
from drawn ones, those of PyTorch itself where a serving engine leaves them to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family
from gnomon.calibrate.table import read_table
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TABLES = ("kernels.csv", "mixers.csv", "attention.csv", "experts.csv", "calibration.csv")
USUAL = {"value_dim": "head_dim", "window": "kv_len"}
"""Columns whose values a table without them takes from another: values as wide as keys, and a window over all keys."""
NONE = {"batch": 1.0, "tokens": 0.0}
"""Values of columns that a table does not have."""
LIBRARY = {"calibration.csv": ("bf16", "fp16")}
"""Tables of PyTorch's own GEMMs, and the formats in which a serving engine leaves them to it. Those of `products.csv`
were timed without rests, at clocks from 1.4 to 1.98 GHz: they say which kernels run, and check."""
SERVING = {"calibration.csv": "vllm"}
"""Tables that say whose kernels they timed."""

Key = tuple[str, str]
Columns = Mapping[str, Floats]


def families(folder: Path, chip: Chip) -> dict[str, Any]:
    """Fits by kind and format."""
    return {
        f"{kind}.{dtype}": fit_family(kind, dtype, columns, chip).to_dict()
        for (kind, dtype), columns in sorted(tables(folder).items())
    }


def tables(folder: Path) -> dict[Key, Columns]:
    """The rows of all tables, by kind and format."""
    found: dict[Key, list[Columns]] = defaultdict(list)
    for name in TABLES:
        if (folder / name).exists():
            for key, columns in _read(folder / name).items():
                found[key].append(columns)
    return {key: _together(some) for key, some in found.items()}


def _read(path: Path) -> dict[Key, dict[str, Floats]]:
    """Serving kernels of one table."""
    if path.name in SERVING:
        kept = {("gemm", dtype) for dtype in LIBRARY[path.name]}
        library = {key: columns for key, columns in read_table(path, "torch").items() if key in kept}
        return read_table(path, SERVING[path.name]) | library
    return read_table(path)


def _together(some: list[Columns]) -> Columns:
    names = dict.fromkeys(name for columns in some for name in columns)
    return {name: np.concatenate([_column(name, columns) for columns in some]) for name in names}


def _column(name: str, columns: Columns) -> Floats:
    if name in NONE and name not in columns:
        return np.full(columns["time_us"].shape, NONE[name])
    return columns[name] if name in columns else columns[USUAL[name]]
