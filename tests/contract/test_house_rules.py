"""Rules of the house that a reader of the code can rely on."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import gnomon

ROOT = Path(gnomon.__file__).parent
MOST_LINES, MOST_PARAMETERS = 60, 8
GIVEN_BY_OTHERS = {
    "load/tracing/dispatch_overrides.py": "dispatch overrides, with the parameters of the PyTorch operators",
}
"""Files whose functions have the parameters that something else hands them."""
TRIED = "api/try_idea.py try_idea"
"""Public too, by way of `gnomon.papers.tried`, which knows papers that no technique stands for."""
API_LINES = 1500
COMPUTING_API = {"explain.py", "sweep.py"}
"""Modules of `api` that do more: one finds operators in an opened answer, the other runs questions side by side."""


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All of them, with the file that each is in."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(ROOT).as_posix(), node


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Those that a caller gives."""
    given = node.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"])) + bool(given.vararg) + bool(given.kwarg)


def test_no_function_is_longer_than_a_screen() -> None:
    found = {f"{file} {one.name}": lines(one) for file, one in functions()}
    assert {name: count for name, count in found.items() if count > MOST_LINES} == {}


def launched(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a Triton kernel, whose parameters are those of a launch."""
    return any(ast.unparse(one).startswith("triton.jit") for one in node.decorator_list)


def test_no_function_takes_more_than_eight_parameters() -> None:
    """But for the public functions, whose parameters are the fields of a question, and the commands."""
    public = {f"{home.removeprefix('gnomon.').replace('.', '/')}.py {name}" for name, home in gnomon._HOMES.items()}
    found = {f"{file} {one.name}": parameters(one) for file, one in functions() if not launched(one)}
    most = {name: count for name, count in found.items() if count > MOST_PARAMETERS and name not in public | {TRIED}}
    assert {
        name: count
        for name, count in most.items()
        if not name.startswith("cli/") and name.partition(" ")[0] not in GIVEN_BY_OTHERS
    } == {}


def test_exceptions_are_still_needed() -> None:
    assert {file for file in GIVEN_BY_OTHERS if not (ROOT / file).exists()} == set()


def test_api_only_asks_and_answers() -> None:
    """No formula, no search, no process: a module of `api` builds a question, has it resolved and hands it on."""
    files = sorted((ROOT / "api").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in files) <= API_LINES
    for path in files:
        if path.name in COMPUTING_API:
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        assert not imported & {"subprocess", "numpy", "math"}, path.name
        assert not [node for node in nodes if isinstance(node, ast.For | ast.While)], path.name
        assert not [node for node in nodes if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)]


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
