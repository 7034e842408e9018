"""The text of `gnomon techniques`."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from gnomon.report.text import Style, next_steps

WIDE = 100


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = []
    for one in payload["techniques"]:
        former = f", formerly {', '.join(one['aliases'])}" if one["aliases"] else ""
        lines += [f"{style.strong(one['name'])}  {style.faint(one['work'] + former)}"]
        lines += [f"  {line}" for line in wrap(one["idea"], WIDE)]
        lines += [f"    {p['name']}={p['default']}  {p['what']} ({p['range']})" for p in one["parameters"]]
        excludes = f"; not with {', '.join(one['excludes'])}" if one["excludes"] else ""
        lines += [f"    from {', '.join(one['papers'])}{excludes}", ""]
    return "\n".join([*lines, *next_steps("gnomon try zero-offload --model qwen3-8b --on H200:1")])
