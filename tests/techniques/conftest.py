"""Techniques of another package, for as long as a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import pytest

registry = import_module("gnomon.techniques")
"""`gnomon.techniques` is a function of the public face."""


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Entry points of another package: the name of each, and what it gives."""
    given: dict[str, Any] = {}

    class Point(EntryPoint):
        def load(self) -> Any:
            found = given[self.name]
            if isinstance(found, Exception):
                raise found
            return found

    def points(group: str) -> list[EntryPoint]:
        return [Point(name, "a.module:ONE", group) for name in given if group == "gnomon.techniques"]

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    forgotten = (registry.techniques, registry._by_any_name, registry._named, registry._parsed)
    for one in forgotten:
        one.cache_clear()
    yield given
    monkeypatch.undo()
    for one in forgotten:
        one.cache_clear()
