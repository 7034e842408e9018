"""Attention from all tables of a folder that hold some: shapes of models, drawn ones, windows, caches in eight bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family, read_table
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TABLES = ("kernels.csv", "mixers.csv", "attention.csv")
KINDS = ("attention_decode", "attention_prefill", "mla_decode")
USUAL = {"value_dim": "head_dim", "window": "kv_len"}
"""What a column stands at where a table has none: values as wide as keys, and a window that hides nothing."""

Columns = Mapping[str, Floats]


def families(folder: Path, chip: Chip) -> dict[str, Any]:
    """Fits by kind and format."""
    found: dict[tuple[str, str], list[Columns]] = defaultdict(list)
    for path in (folder / name for name in TABLES):
        for (kind, dtype), columns in (read_table(path) if path.exists() else {}).items():
            if kind in KINDS:
                found[kind, dtype].append(columns)
    return {
        f"{kind}.{dtype}": fit_family(kind, dtype, _together(tables), chip).to_dict()
        for (kind, dtype), tables in sorted(found.items())
    }


def _together(tables: list[Columns]) -> dict[str, Floats]:
    names = dict.fromkeys(name for columns in tables for name in columns)
    return {
        name: np.concatenate([columns[name if name in columns else USUAL[name]] for columns in tables])
        for name in names
    }
