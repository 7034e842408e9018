"""A line on the terminal while something takes longer than a moment; where stderr is no terminal, a line in it every so
often."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any

DELAY_S = 0.5
EVERY_S = 10.0
"""Between lines where stderr is no terminal."""
QUIET = "GNOMON_QUIET"
"""A variable of the environment that leaves those out where it is set: for output that is compared."""


class Progress:
    """`with Progress("searching") as tick: work(progress=tick)`; `tick(done, total, text)` with what is known."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._timer: threading.Timer | None = None
        self._over = False
        self._told: tuple[int, int | None, str] = (0, None, "")
        self._ended = threading.Event()

    def __call__(self, done: int = 0, total: int | None = None, text: str = "") -> None:
        self._told = (done, total, text)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=text or self._text)

    def __enter__(self) -> Progress:
        if sys.stderr is None:
            return self
        if sys.stderr.isatty():
            self._timer = threading.Timer(DELAY_S, self._show)
            self._timer.daemon = True
            self._timer.start()
        elif not os.environ.get(QUIET):
            threading.Thread(target=self._tell, args=(sys.stderr,), daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def _tell(self, stream: Any) -> None:
        """A line every so often, until all is done."""
        began = time.monotonic()
        while not self._ended.wait(EVERY_S):
            with self._lock:
                if self._over:
                    return
                try:
                    print(f"{self._words()}, {time.monotonic() - began:,.0f} s", file=stream, flush=True)
                except (OSError, ValueError):  # nobody reads it any more
                    return

    def _words(self) -> str:
        done, total, text = self._told
        said = text or self._text
        if not (done or total) or text:
            return said
        return f"{said}: {done:,} of {total:,}" if total else f"{said}: {done:,}"

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        bar = Bar(*columns, console=Console(stderr=True), transient=True)
        with self._lock:
            if self._over:
                return
            done, total, text = self._told  # said before there was a bar
            self._task = bar.add_task(text or self._text, completed=done, total=total)
            bar.start()
            self._bar = bar
