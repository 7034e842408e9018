"""The fixture of a test that brings derivations and lab results of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.papers.shelved import Shelved, forget

from gnomon.papers import derived, executed, holds


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelved]:
    folder = tmp_path / "papers"
    folder.mkdir()
    made = Shelved(folder)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "dont_write_bytecode", True)  # a file written twice in a second is read twice
        patched.setattr(derived, "__path__", [str(made.derived)])
        patched.setattr(executed, "LAB", made.lab)
        patched.setattr(holds, "STORED", made.counts)
        forget()
        yield made
    forget()
