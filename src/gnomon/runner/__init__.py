"""One function over many items, here, in processes or on a Ray cluster; results come in the order of the items.

`ordered(function, items, jobs=4)` is all there is to call. The three ways differ in where the work is done, never in
what comes out: the same values, the same errors, the same order. Items are taken from their iterator as workers have
room for them, so a stream of millions needs no more memory than one of hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gnomon.runner.base import JobOutcome, WorkerDiedError, WorkerStartError, attempt

__all__ = ["WorkerDiedError", "WorkerStartError", "ordered"]

T = TypeVar("T")
R = TypeVar("R")


def ordered(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    jobs: int = 1,
    ray: str = "",
    died: Callable[[T], R] | None = None,
) -> Iterator[R]:
    """What the function gives for each item, in order; an error it raises is raised in that item's turn.

    `jobs` is how many items are worked on at once: 1 is this process, more are processes of their own. `ray` is the
    address of a Ray cluster, or `local` for one on this machine, with `jobs` as the number of its workers; 0 leaves
    that to the cluster. The function is one of a module, so that workers can import it.

    An item whose worker dies, twice, has the value that `died` gives for it, or raises WorkerDiedError. A worker that
    is killed before it comes to its first item is replaced; WorkerStartError is raised where its replacements are too.
    """
    for item, outcome in _outcomes(function, items, jobs, ray):
        if isinstance(outcome.error, WorkerDiedError) and died is not None:
            yield died(item)
        elif outcome.error is not None:
            raise outcome.error
        else:
            yield outcome.value


def _outcomes(function: Callable[[T], R], items: Iterable[T], jobs: int, ray: str) -> Iterator[tuple[T, JobOutcome]]:
    if ray:
        from gnomon.runner.cluster import on_ray

        return on_ray(function, items, ray, jobs)
    if jobs > 1:
        from gnomon.runner.processes import in_processes

        return in_processes(function, items, jobs)
    return ((item, attempt(function, item, portable=False)) for item in items)
