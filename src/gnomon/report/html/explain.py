"""The page of `gnomon explain`."""

from __future__ import annotations

from gnomon.report.explain import figures
from gnomon.report.html.blocks import Page, Tree, inputs_table
from gnomon.spec.answers import Explanation


def page(answer: Explanation) -> Page:
    trees = [Tree("" if at else "Down to formulas and sources", node) for at, node in enumerate(answer.nodes)]
    asked = inputs_table({"an answer of": f"gnomon {answer.of.replace('.', ' ')}", "run or file": answer.id})
    return Page(title=answer.title, figures=figures(answer), blocks=[*trees, *asked])
