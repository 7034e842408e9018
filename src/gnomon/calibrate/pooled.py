"""Families of serving kernels from all tables of a folder that hold some of them.

Attention comes from shapes of models, drawn ones, windows and caches in eight bits; products from shapes of models and
from drawn ones, those of PyTorch itself where a serving engine leaves them to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family, read_table
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TABLES = ("kernels.csv", "mixers.csv", "attention.csv", "experts.csv", "products.csv")
USUAL = {"value_dim": "head_dim", "window": "kv_len"}
"""What a column stands at where a table has none: values as wide as keys, and a window that hides nothing."""
OWN = {"products.csv": ("bf16",)}
"""Formats that a serving engine leaves to the library this table is of."""

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
        path = folder / name
        for (kind, dtype), columns in (read_table(path) if path.exists() else {}).items():
            if dtype in OWN.get(name, (dtype,)):
                found[kind, dtype].append(columns)
    return {key: _together(some) for key, some in found.items()}


def _together(some: list[Columns]) -> Columns:
    names = dict.fromkeys(name for columns in some for name in columns)
    return {name: np.concatenate([_column(name, columns) for columns in some]) for name in names}


def _column(name: str, columns: Columns) -> Floats:
    return columns[name] if name in columns else columns[USUAL[name]]
