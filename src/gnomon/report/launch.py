"""The text of `gnomon launch` where nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, words
from gnomon.spec.answers import Result


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    lines = [style.strong(payload["title"])]
    if payload["why_not"]:
        lines.append(f"  not started: {payload['why_not']}")
    lines += ["  it would run:", *_commands(payload)]
    lines += [f"  note: {note}" for note in payload["notes"]]
    lines += [f"  not in these commands: {line}" for line in payload["not_expressed"]]
    plan = payload["plan"] or "last"
    own = payload["engine"]  # whose script is written where no target is named
    steps = [
        words("gnomon", "export", plan, *(("--out", "deploy") if name == own else ("--to", name)))
        for name in payload["targets"]
    ]
    return "\n".join([*lines, "", *next_steps(*steps)] if steps else lines)


def _commands(payload: Mapping[str, Any]) -> list[str]:
    several = any(payload["nodes"])
    placed = zip(payload["nodes"], payload["commands"], strict=True)
    return [f"    {f'node {node}: ' if several else ''}{command}" for node, command in placed]
