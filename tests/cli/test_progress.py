"""The line on the terminal: what was said before it appeared is on it; without a terminal there is none."""

from __future__ import annotations

import io
import sys

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


def test_nothing_is_said_to_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    shown(stream, monkeypatch)
    assert stream.getvalue() == ""
