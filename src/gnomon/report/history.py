"""The text of `gnomon history`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, table, words

FIRST = "gnomon predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024"


def render(payload: Mapping[str, Any], style: Style) -> str:
    runs = payload["runs"]
    steps = next_steps(words("gnomon", "explain", payload["opens"]) if payload.get("opens") else FIRST)
    if not runs:
        return "\n".join(["no answers are kept yet", "", *steps])
    rows = [("run", "when", "command", "what")]
    for run in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["saved_s"]))
        rows.append((run["id"], when, run["kind"].replace(".", " "), run["title"]))
    lines = table(rows, "<<<<")
    return "\n".join([style.faint(lines[0]), *lines[1:], "", *steps])
