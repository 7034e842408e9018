"""The text of `gnomon calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, digits, next_steps, table


def render(payload: Mapping[str, Any], style: Style) -> str:
    rows = [(name.replace("_", " "), _shown(value)) for name, value in payload.items() if _simple(name, value)]
    lines = [style.strong(str(payload.get("title", "calibration"))), "", *(table(rows, "<<") if rows else []), ""]
    return "\n".join([*lines, *next_steps("gnomon predict llama-3.1-8b --on H200 --phase decode --batch 32")])


def _simple(name: str, value: Any) -> bool:
    return name not in ("schema", "title") and isinstance(value, (str, int, float))


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else digits(float(value))
