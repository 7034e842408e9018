"""Work on a Ray cluster, or on Ray workers of this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from gnomon.errors import InputError, MissingExtraError
from gnomon.runner.base import Feed, JobOutcome, attempt

T = TypeVar("T")
_Place = tuple[str, Mapping[str, str], str]
"""Where workers are to stand: the folder, variables, and the version of Gnomon that asks."""
LOCAL = "local"
CARRIED = ("GNOMON_HOME", "GNOMON_TRUTH")
"""Variables that change answers, which workers of another shell have from here."""
CONNECT_S = 5.0
QUEUED = 2
"""Batches that are out for each worker, so that none waits for the next."""


def on_ray(function: Callable[[T], Any], items: Iterable[T], address: str, jobs: int) -> Iterator[tuple[T, JobOutcome]]:
    """Items and their outcomes, in order; at most `jobs` at once, or as many as the cluster has processors."""
    with _joined(address, jobs) as ray:
        workers = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        task, place = ray.remote(max_retries=0, num_cpus=1)(_batch), _place()
        feed: Feed[T] = Feed(items, QUEUED * workers)
        problems = ray.exceptions
        deaths = (problems.WorkerCrashedError, problems.OutOfMemoryError, problems.NodeDiedError)
        out: dict[Any, list[tuple[int, T]]] = {}

        def send(batch: list[tuple[int, T]]) -> None:
            out[task.remote(function, [item for _, item in batch], place)] = batch

        while True:
            while len(out) < QUEUED * workers and (batch := feed.take()):
                send(batch)
            if not out:
                return
            for done in ray.wait(list(out), num_returns=1)[0]:
                batch = out.pop(done)
                try:
                    outcomes = ray.get(done)
                except deaths:
                    for left in _singly(batch, feed):
                        send(left)
                except problems.RayError as error:
                    raise _unfit(error) from None
                else:
                    for (index, _), (outcome, seconds) in zip(batch, outcomes, strict=True):
                        feed.put(index, outcome, seconds)
            yield from feed.ready()


def _singly(batch: list[tuple[int, T]], feed: Feed[T]) -> Iterator[list[tuple[int, T]]]:
    """The items of a batch whose worker died, each by itself: the one that dies again, and again, did it."""
    for index, item in batch:
        if len(batch) > 1 or feed.suspect(index, item):
            yield [(index, item)]


def _batch(function: Callable[[Any], Any], items: list[Any], place: _Place) -> list[tuple[JobOutcome, float]]:
    """The outcomes of some items and their seconds, in a worker that stands where its caller does."""
    folder, variables, version = place
    if _version() != version:
        raise RuntimeError(f"it has Gnomon {_version()}, the caller {version}")
    with suppress(OSError):  # another machine may not have it
        os.chdir(folder)
    os.environ.update(variables)
    found = []
    for item in items:
        began = time.perf_counter()
        outcome = attempt(function, item)
        found.append((outcome, time.perf_counter() - began))
    return found


def _place() -> _Place:
    carried = {name: os.environ[name] for name in CARRIED if name in os.environ}
    return str(Path.cwd()), carried, _version()


def _version() -> str:
    return str(import_module("gnomon").__version__)


def _unfit(error: Exception) -> InputError:
    """What workers fail at before they come to any item."""
    problem = str(error).strip().rpartition("\n")[2]
    hint = "Every machine of the cluster needs this version of Gnomon."
    return InputError(f"a worker cannot run it: {problem}", where="--ray", hint=hint)


@contextmanager
def _joined(address: str, jobs: int) -> Iterator[Any]:
    """Ray, connected: to the cluster that this process is in already, to one by its address, or to its own."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "ray", "running on Ray") from None
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    silent: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address == LOCAL:
            ray.init(address=LOCAL, num_cpus=jobs or None, include_dashboard=False, **silent)
        else:
            ray.init(address=address, **silent)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _unreachable(address, error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse at once an address without a listener, which Ray itself would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, error) from None


def _unreachable(address: str, why: Exception) -> InputError:
    hint = "`--ray local` starts Ray on this machine; `ray status` shows a cluster that runs."
    return InputError(f"'{address}' cannot be reached: {why}", where="--ray", hint=hint)
