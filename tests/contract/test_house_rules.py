"""Rules of the house that a reader of the code can rely on."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import gnomon

ROOT = Path(gnomon.__file__).parent


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
