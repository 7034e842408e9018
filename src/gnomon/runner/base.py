"""What all ways of running share: an item's outcome, and the window of items that are out."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gnomon.errors import GnomonError, shortened

T = TypeVar("T")

BATCH_S = 0.2
"""Seconds of work that are handed to a worker at once, so that the way there and back costs little."""
MOST_BATCH = 64
WINDOW = 4
"""Batches a worker that may be out, or done and waiting for an earlier one."""
SMOOTHING = 0.1
"""Weight of the newest item in the mean time of one."""


class WorkerDiedError(GnomonError):
    """A worker ended in the middle of an item: killed, or out of memory."""

    def __init__(self, item: Any) -> None:
        super().__init__(
            f"a worker died while it ran {shortened(repr(item), 200)}",
            hint="It may have run out of memory: use smaller inputs, or fewer jobs.",
        )


START_TRIES = 5
"""Processes that are started for one item before it is given up: a full memory may kill some of them, not all."""


class WorkerStartError(GnomonError):
    """Workers are killed as they start, one after the other: nothing can be said of the item that waits."""

    def __init__(self, item: Any, what: str = "") -> None:
        self.item = item
        waiting = ", ".join(filter(None, [what, shortened(repr(item), 200)]))
        super().__init__(
            f"{START_TRIES} worker processes in a row were killed as they started, for {waiting}",
            hint="The machine may be out of memory: use fewer jobs, then repeat the command.",
        )


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of one item: its value, or its error."""

    value: Any = None
    error: Exception | None = None


def attempt(function: Callable[[T], Any], item: T, *, portable: bool = True) -> JobOutcome:
    """The outcome of one item. A `portable` one can be sent to another process."""
    try:
        return JobOutcome(value=function(item))
    except Exception as error:
        return JobOutcome(error=_portable(error) if portable else error)


def _portable(error: Exception) -> Exception:
    """The error itself where it survives being sent, else what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class Feed(Generic[T]):
    """Items handed out in batches, and their outcomes brought back into order.

    Nothing is handed out that is more than a window ahead of the first item without an outcome.
    """

    def __init__(self, items: Iterable[T], workers: int) -> None:
        self._items = enumerate(items)
        self._workers = workers
        self._out: deque[tuple[int, T]] = deque()
        """Items without a place in the results yet, in order."""
        self._outcomes: dict[int, JobOutcome] = {}
        self._item_s = BATCH_S
        """Mean seconds of an item so far."""
        self._died: set[int] = set()

    @property
    def _batch(self) -> int:
        return max(1, min(MOST_BATCH, int(BATCH_S / self._item_s)))

    def take(self) -> list[tuple[int, T]]:
        """The next batch; empty where the window is full or all items are out."""
        room = WINDOW * self._workers * self._batch - len(self._out)
        batch: list[tuple[int, T]] = []
        for _ in range(min(self._batch, room)):
            following = next(self._items, None)
            if following is None:
                break
            batch.append(following)
        self._out.extend(batch)
        return batch

    def put(self, index: int, outcome: JobOutcome, seconds: float) -> None:
        """The outcome of one item, and how long it took; seconds only size the batches."""
        self._outcomes[index] = outcome
        self._item_s += SMOOTHING * (max(seconds, 1e-6) - self._item_s)

    def suspect(self, index: int, item: T) -> bool:
        """Whether an item whose worker died is to be tried again: once. The second time its outcome is that."""
        if index not in self._died:
            self._died.add(index)
            return True
        self._outcomes[index] = JobOutcome(error=WorkerDiedError(item))
        return False

    def ready(self) -> Iterator[tuple[T, JobOutcome]]:
        """The outcomes whose turn it is."""
        while self._out and self._out[0][0] in self._outcomes:
            index, item = self._out.popleft()
            yield item, self._outcomes.pop(index)
