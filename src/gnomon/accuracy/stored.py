"""The results that come with Gnomon: written by `make accuracy`, shown where the data is not at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.accuracy.scores import rounded
from gnomon.catalog.base import DATA
from gnomon.errors import CalibrationError
from gnomon.load.files import read_json

FILE = DATA / "accuracy" / "results.json"
SCHEMA = "gnomon.accuracy/1"
LIMIT = 64 * 1024**2


def load(path: Path = FILE) -> dict[str, Any]:
    """Stored results, as `gnomon accuracy --json` gives them."""
    found = read_json(path, limit=LIMIT)
    if found.get("schema") != SCHEMA:
        raise CalibrationError(
            f"schema is '{found.get('schema')}', not '{SCHEMA}'", where=str(path), hint="Make it with `make accuracy`."
        )
    return found


def text(found: Mapping[str, Any]) -> str:
    """Results as they are kept: five digits, one row a line, so that a change is seen where it is."""
    return _lines(rounded(found), 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, Mapping) and depth < 2:
        inside = [f"{pad}{json.dumps(key)}: {_lines(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inside) + f"\n{end}}}"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(pad + _plain(item) for item in value) + f"\n{end}]"
    return _plain(value)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
