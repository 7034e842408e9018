"""Work in processes of this machine.

Each worker is told of its items over a pipe of its own and answers one by one, so the item that killed a worker is the
first without an answer. A worker whose parent is gone, however that ended, finds its pipe closed and ends.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from gnomon.errors import GnomonError
from gnomon.runner.base import START_TRIES, Feed, JobOutcome, WorkerStartError, attempt

T = TypeVar("T")
STARTED = "started"
END_S = 5.0
"""Seconds within which a process has ended whose pipe is closed."""


def in_processes(function: Callable[[T], Any], items: Iterable[T], jobs: int) -> Iterator[tuple[T, JobOutcome]]:
    """Items and their outcomes, in order; at most `jobs` processes, started as there is work for them."""
    feed: Feed[T] = Feed(items, jobs)
    state: list[_Worker[T]] = []
    try:
        while True:
            for worker in state:
                if not worker.waiting:
                    worker.give(feed.take())
            while len(state) < jobs and (batch := feed.take()):
                state.append(_Worker(function, batch))
            busy = {worker.pipe: worker for worker in state if worker.waiting}
            if not busy:
                return
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                if not worker.collect(feed):
                    state[state.index(worker)] = worker.replaced(feed)
            yield from feed.ready()
    finally:
        for worker in state:
            worker.stop()


class _Worker(Generic[T]):
    """A process, the pipe to it, and the items it has not answered."""

    def __init__(self, function: Callable[[T], Any], batch: Iterable[tuple[int, T]], failed_starts: int = 0) -> None:
        # Processes are started afresh: a copy of this one would inherit locks that its threads hold.
        context = multiprocessing.get_context("spawn")
        self._function = function
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self._process.start()
        theirs.close()
        self._started = False
        self._failed_starts = failed_starts
        """Workers before this one that were killed as they started, in a row."""
        self.waiting: deque[tuple[int, T]] = deque()
        self.give(batch)

    def give(self, batch: Iterable[tuple[int, T]]) -> None:
        """Items for a worker that has none: it reads them at once, so neither side ever waits for the other."""
        self.waiting.extend(batch)
        if self.waiting:
            with suppress(OSError):  # one that is dead is found out when it is listened to
                self.pipe.send(list(self.waiting))

    def collect(self, feed: Feed[T]) -> bool:
        """One answer; whether the worker is alive."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            return False
        if answer == STARTED:
            self._started = True
            return True
        index, outcome, seconds = answer
        feed.put(index, outcome, seconds)
        self.waiting.popleft()
        return True

    def replaced(self, feed: Feed[T]) -> _Worker[T]:
        """A new worker for what a dead one has left; the item it died of is tried once more. One that was killed as it
        started died of no item, and so did START_TRIES of them in a row: that is raised."""
        ended_by_itself = self._ended_by_itself()
        self.stop()
        index, item = self.waiting[0]
        if self._started:
            if not feed.suspect(index, item):
                self.waiting.popleft()
            return _Worker(self._function, self.waiting)
        if ended_by_itself:
            hint = "A script that starts jobs keeps them under `if __name__ == '__main__':`."
            raise GnomonError("worker processes end as soon as they start", where="jobs", hint=hint)
        if self._failed_starts + 1 == START_TRIES:
            raise WorkerStartError(item)
        return _Worker(self._function, self.waiting, self._failed_starts + 1)

    def _ended_by_itself(self) -> bool:
        """Whether the process, whose pipe is closed, was not killed by a signal; it is about to end if it has not."""
        self._process.join(END_S)
        return (self._process.exitcode or 0) > 0

    def stop(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, function: Callable[[Any], Any]) -> None:
    """A worker's life: batches in, outcomes out, until nobody is there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which then ends its workers
    with suppress(EOFError, OSError):
        pipe.send(STARTED)
        while True:
            for index, item in pipe.recv():
                began = time.perf_counter()
                outcome = attempt(function, item)
                pipe.send((index, outcome, time.perf_counter() - began))
