"""The text of `gnomon history`."""

from __future__ import annotations

import time

from gnomon.report.text import Style, headed, next_steps, words
from gnomon.spec.answers import History

FIRST = "gnomon predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024"


def render(answer: History, style: Style) -> str:
    steps = next_steps(words("gnomon", "explain", answer.opens) if answer.opens else FIRST)
    if not answer.runs:
        return "\n".join(["no answers are kept yet", "", *steps])
    rows = [("run", "when", "command", "what")]
    for run in answer.runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.saved_s))
        rows.append((run.id, when, run.kind.replace(".", " "), run.title))
    return "\n".join([*headed(rows, "<<<<", style), "", *steps])
