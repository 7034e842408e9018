"""The text of `gnomon export`: the file that it prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style


def render(payload: Mapping[str, Any], style: Style) -> str:
    first: str = next(iter(payload["files"].values()))
    return first.removesuffix("\n")
