"""The text of `gnomon techniques`."""

from __future__ import annotations

from textwrap import wrap

from gnomon.report.text import Style, next_steps
from gnomon.spec.answers import Result

WIDE = 100


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    lines = []
    for one in payload["techniques"]:
        former = f", formerly {', '.join(one['aliases'])}" if one["aliases"] else ""
        lines += [f"{style.strong(one['name'])}  {style.faint(one['work'] + former)}"]
        lines += [f"  {line}" for line in wrap(one["idea"], WIDE)]
        lines += [f"    {p['name']}={p['default']}  {p['what']} ({p['range']})" for p in one["parameters"]]
        sources = [f"from {', '.join(one['papers'])}"] if one["papers"] else []
        excludes = [f"not with {', '.join(one['excludes'])}"] if one["excludes"] else []
        lines += [f"    {'; '.join([*sources, *excludes])}"] if sources or excludes else []
        lines += [""]
    return "\n".join([*lines, *next_steps("gnomon try zero-offload --model qwen3-8b --on H200:1")])
