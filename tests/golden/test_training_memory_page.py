"""docs/training-memory.md: its formulas are what `gnomon simulate train` counts."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnomon import simulate_training
from gnomon.spec.answers import TrainingReport

PAGE = (Path(__file__).parents[2] / "docs" / "training-memory.md").read_text()
PARTS = {part.splitlines()[0]: part for part in PAGE.split("\n## ")[1:]}
MODES = ("none", "selective", "full")


def worked_out(formula: str) -> float:
    """Numbers, brackets and the four signs only."""
    tree = ast.parse(formula, mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.Constant, ast.Mult, ast.Div, ast.Add, ast.Sub)
    assert all(isinstance(node, allowed) for node in ast.walk(tree)), formula
    return float(eval(compile(tree, "page", "eval")))


@cache
def step(name: str, mode: str) -> TrainingReport:
    command = re.search(r"`gnomon simulate train (.*?)`", PARTS[name])
    assert command
    model, *words = shlex.split(command[1])
    given: dict[str, Any] = {
        flag.removeprefix("--").replace("-", "_"): value if flag == "--on" else int(value)
        for flag, value in zip(words[::2], words[1::2], strict=True)
    }
    return simulate_training(model, recompute=mode, **given)


def kept(name: str, mode: str) -> float:
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \|(.*)\|$", PARTS[name], re.M)
    assert len(rows) >= 9
    place = MODES.index(mode)
    return sum(worked_out(formula) for formula, marks in rows if "x" in marks.split("|")[place])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PARTS)
def test_a_layer(name: str, mode: str) -> None:
    found = step(name, mode)
    tokens = float(found.step.batch.tokens[0])
    assert found.step.figures.saved_activation_bytes[0] == pytest.approx(kept(name, mode) * tokens, rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PARTS)
def test_the_first_rank(name: str, mode: str) -> None:
    times = re.search(r"^The first of .*?: `([^`]+)`", PARTS[name], re.M)
    assert times
    expected = worked_out(times[1]) * kept(name, mode)
    assert step(name, mode).memory_parts[0]["activations"] == pytest.approx(expected, rel=1e-12)


def test_the_states_of_a_mixture() -> None:
    formula = re.search(r"a sixteenth: `([^`]+)`", PARTS["Mixtral 8x7B"])
    assert formula
    expected = worked_out(formula[1])
    assert step("Mixtral 8x7B", "none").memory_parts[0]["optimizer"] == pytest.approx(expected, rel=1e-12)
