"""A pipeline schedule is one file: its name stands there, where an engine says what it runs, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.engines import training_engine, training_engines
from gnomon.load import model
from gnomon.sim import training
from gnomon.sim.training import SCHEDULES, Schedule, usual_schedule
from gnomon.spec import Recipe

ROOT = Path(gnomon.__file__).parent
OWN = "sim/training/schedules/"
SAID_IN = re.compile(r"engines/(?!training/)\w+/|papers/index/|accuracy/|techniques/__init__\.py$")
"""Engines say which they run; papers and published runs name theirs."""
OTHER_MEANINGS = {
    ("spec/training.py", "1f1b"): "what a plan runs that names none",
    ("techniques/gpipe.py", "gpipe"): "the technique of that name",
    ("techniques/gpipe.py", "interleaved"): "the technique of that name",
    ("techniques/interleaved.py", "gpipe"): "the technique of that name",
    ("techniques/interleaved.py", "interleaved"): "the technique of that name",
    ("techniques/vocabulary_parallel.py", "gpipe"): "the technique of that name",
    ("techniques/zeroth_order.py", "gpipe"): "the technique of that name",
    ("techniques/zeroth_order.py", "interleaved"): "the technique of that name",
    ("techniques/vocabulary_parallel.py", "interleaved"): "the technique of that name",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def named(tree: ast.Module) -> set[str]:
    """Schedules that a file names as values, its docstrings aside."""
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings & set(SCHEDULES)


def test_no_name_of_a_schedule_outside_its_file() -> None:
    found = {
        (name, schedule)
        for name, tree in sources()
        for schedule in named(tree)
        if not name.startswith(OWN) and not SAID_IN.match(name)
    }
    assert found == set(OTHER_MEANINGS)


def test_no_file_of_a_schedule_names_another() -> None:
    for name, tree in sources():
        if name.startswith(OWN) and not name.endswith("__init__.py"):
            assert len(named(tree)) == 1, name


def test_only_the_registry_imports_a_schedule() -> None:
    """Nothing knows the module of a schedule: not even the registry, which finds it."""
    for name, tree in sources():
        imports = {
            node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None
        }
        assert not any(one.startswith("gnomon.sim.training.schedules") for one in imports), name


def test_every_file_is_found() -> None:
    files = {path.stem for path in (ROOT / OWN).glob("*.py")} - {"__init__"}
    assert len(SCHEDULES) == len(files)
    assert {type(one).__module__.rpartition(".")[-1] for one in SCHEDULES.values()} == files
    assert len({one.place for one in SCHEDULES.values()}) == len(SCHEDULES)
    assert all(isinstance(one, Schedule) and training.schedule(name) is one for name, one in SCHEDULES.items())


def test_a_plan_that_names_none_runs_the_usual_one() -> None:
    assert Recipe().schedule == usual_schedule(1).name
    assert usual_schedule(2) is not usual_schedule(1)


def test_engines_run_schedules_that_there_are() -> None:
    for name in training_engines():
        assert set(training_engine(name).traits(model("llama-3.1-8b")).schedules) <= set(SCHEDULES)
