"""The line on the terminal: what was said before it appeared is on it; without a terminal, one every so often."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest

from gnomon.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> Progress:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("gnomon.cli.progress.DELAY_S", 60.0)
    with Progress("accuracy") as tick:
        tick(3, 8, "reading tables")
        if stream.isatty():
            tick._show()
            tick(4, 8)
    return tick


def test_what_was_said_first_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    shown(stream, monkeypatch)
    assert "reading tables" in stream.getvalue()


def test_nothing_is_said_to_a_pipe_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    shown(stream, monkeypatch)
    assert stream.getvalue() == ""


class Pipe(io.StringIO):
    """Says when it has a line."""

    def __init__(self) -> None:
        super().__init__()
        self.had = threading.Event()

    def write(self, text: str) -> int:
        self.had.set()
        return super().write(text)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ((), "trying changes"),
        ((3, 8), "trying changes: 3 of 8"),
        ((1200,), "trying changes: 1,200"),
        ((3, 8, "the best plan"), "the best plan"),
    ],
)
def test_a_pipe_gets_a_line_every_so_often(told: tuple[Any, ...], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Pipe()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("gnomon.cli.progress.EVERY_S", 0.01)
    monkeypatch.delenv("GNOMON_QUIET", raising=False)
    with Progress("trying changes") as tick:
        if told:
            tick(*told)
        stream.had.clear()
        assert stream.had.wait(30)
    last = stream.getvalue().splitlines()[-1]
    assert last.rpartition(", ")[0] == line and last.endswith(" s")


def test_it_can_be_told_to_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Pipe()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("gnomon.cli.progress.EVERY_S", 0.01)
    monkeypatch.setenv("GNOMON_QUIET", "1")
    with Progress("trying changes"):
        assert not stream.had.wait(0.2)
