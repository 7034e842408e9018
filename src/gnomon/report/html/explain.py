"""The page of `gnomon explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.explain import figures
from gnomon.report.html.blocks import Page, Tree, inputs_table


def page(payload: Mapping[str, Any]) -> Page:
    trees = [Tree("" if at else "Down to formulas and sources", node) for at, node in enumerate(payload["nodes"])]
    asked = inputs_table({"an answer of": f"gnomon {payload['of'].replace('.', ' ')}", "run or file": payload["id"]})
    return Page(title=payload["title"], figures=figures(payload), blocks=[*trees, *asked])
