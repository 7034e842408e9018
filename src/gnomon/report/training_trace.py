"""A training step as files: its timeline for a trace viewer, and the memory of every pipeline rank as a table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import Any, TextIO

from gnomon.report.timeline import write_events
from gnomon.sim.training import Span, Timeline

COLUMNS = ("rank", "time_s", "bytes", "what")
THREADS = {"compute": 1, "sends forward": 2, "sends backward": 3, "reductions": 4}
"""Lines of a rank. What runs at once stands on lines of its own."""
COPIES = {"copies out": 5, "copies in": 6}
"""Those of ranks that have any."""
_MICROSECONDS = 1e6
Moments = Iterable[tuple[float, float, str]]
"""Times in seconds, bytes from then on, and what is done."""
Event = dict[str, Any]


def write_memory(ranks: Iterable[Moments], file: TextIO) -> None:
    """CSV, one line a moment, pipeline rank by pipeline rank."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rank, moments in enumerate(ranks):
        writer.writerows((rank, time_s, size, what) for time_s, size, what in moments)


def write_trace(
    line: Timeline, memory: Callable[[int], Moments], file: TextIO, title: str, waits_s: float = 0.0
) -> None:
    """For a trace viewer: a process a pipeline rank, with its memory beside it. `waits_s` is what every rank waits for
    at the end of the step."""
    ranks = groupby(line.spans(), key=lambda span: span.rank)
    ends = (line.step_s, line.step_s + waits_s)
    events = (_rank(rank, chain(spans, [Span("waits", rank, *ends)]), memory(rank)) for rank, spans in ranks)
    write_events(chain.from_iterable(events), file, title)


def _rank(rank: int, spans: Iterable[Span], memory: Moments) -> Iterator[Event]:
    yield {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"pipeline rank {rank}"}}
    yield {"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}}
    drawn = [span for span in spans if span.end_s > span.start_s]
    used = {span.lane for span in drawn}
    for name, thread in (THREADS | {name: thread for name, thread in COPIES.items() if name in used}).items():
        yield {"name": "thread_name", "ph": "M", "pid": rank, "tid": thread, "args": {"name": name}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": rank, "tid": thread, "args": {"sort_index": thread}}
    yield from map(_slice, drawn)
    for time_s, size, _ in memory:
        yield {"name": "memory", "ph": "C", "pid": rank, "ts": time_s * _MICROSECONDS, "args": {"bytes": size}}


def _slice(span: Span) -> Event:
    args = {name: value for name, value in (("chunk", span.chunk), ("micro_batch", span.micro)) if value is not None}
    return {
        "name": span.name if span.micro is None else f"{span.name} {span.micro}",
        "ph": "X",
        "pid": span.rank,
        "tid": (THREADS | COPIES)[span.lane],
        "ts": span.start_s * _MICROSECONDS,
        "dur": (span.end_s - span.start_s) * _MICROSECONDS,
        "args": args,
    }
