"""The text of `gnomon export`: the file that it prints."""

from __future__ import annotations

from gnomon.report.text import Style
from gnomon.spec.answers import Exported


def render(answer: Exported, style: Style) -> str:
    first: str = next(iter(answer.files.values()))
    return first.removesuffix("\n")
