"""docs/fit.md: every line of it is true arithmetic, and its last ones are what `gnomon fit` answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from tests.golden.fit_page import PAGE, SECTIONS, render, value

import gnomon

SECTION = re.compile(r"## \d+\. .*?\n\n`gnomon fit (.*?)`.*?```\n(.*?)\n```", re.DOTALL)
PARTS = ("weights", "activations", "runtime", "kv")


def written() -> Iterator[tuple[str, str]]:
    """Commands with their steps, read off the page."""
    yield from SECTION.findall(PAGE.read_text())


def steps(text: str) -> dict[str, float]:
    """Values by name, each line recomputed from the numbers it shows."""
    known: dict[str, float] = {}
    for line in text.splitlines():
        name, expression, said = line.split(" = ")
        known[name] = value(expression, known)
        assert float(said.replace(",", "")) == pytest.approx(known[name], abs=0.06), line
    return known


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text() == render(), "run `make fit-page`"
    assert len(list(written())) == len(SECTIONS) == 10


@pytest.mark.parametrize(("words", "text"), list(written()), ids=[section.title for section in SECTIONS])
def test_steps_lead_to_the_answer(words: str, text: str) -> None:
    known = steps(text)
    model, *flags = shlex.split(words)
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    asked = {name.lstrip("-"): int(word) if word.isdigit() else word for name, word in pairs.items()}
    found = gnomon.fit(model, **asked)
    assert found.usable_bytes == pytest.approx(known["usable"], rel=1e-12)
    for part in PARTS:
        assert found.parts[part] == pytest.approx(known[part], rel=1e-12), part
    assert (found.kv_blocks, found.kv_tokens, found.max_batch) == tuple(
        int(known[name]) for name in ("kv_blocks", "kv_tokens", "max_batch")
    )
