"""The fixture of a test that brings papers of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.papers.own_index import OwnIndex, forget

from gnomon.papers import entries, index


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnIndex]:
    made = OwnIndex(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "dont_write_bytecode", True)  # a file written twice in a second is read twice
        patched.setattr(index, "__path__", [str(made.folder)])
        patched.setattr(entries, "INDEX", made.index)
        made.build()
        yield made
    forget()
