"""The text of `gnomon history`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, table, words


def render(payload: Mapping[str, Any], style: Style) -> str:
    runs = payload["runs"]
    if not runs:
        first = "gnomon predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024"
        return "\n".join(["no answers are kept yet", "", *next_steps(first)])
    rows = [("run", "when", "command", "what")]
    for run in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run["saved_s"]))
        rows.append((run["id"], when, run["kind"].replace(".", " "), run["title"]))
    lines = table(rows, "<<<<")
    steps = next_steps(words("gnomon", "explain", runs[0]["id"]))
    return "\n".join([style.faint(lines[0]), *lines[1:], "", *steps])
