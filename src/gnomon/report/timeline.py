"""A simulated run as files: the times of every request, and every step for a trace viewer."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TextIO

from gnomon.spec.answers import ServingReport

OPTIONAL = ("prefix_group", "adapter", "priority", "session")
"""Columns of requests that some loads have."""
UNASSIGNED = ("prefix_group", "adapter")
"""Those that a request may be without, which is -1."""

_MICROSECONDS = 1e6
ROWS = 1 << 16
"""Lines of a CSV that are made at once, so that memory stays bounded."""


def write_requests(answer: ServingReport, file: TextIO) -> None:
    """CSV of a run, one line a request, in seconds on the clock of the arrivals; other columns where the load has
    them, empty for a request without."""
    columns = request_columns(answer)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for first in range(0, answer.requests, ROWS):
        lists = [column[first : first + ROWS].tolist() for column in columns.values()]
        for name, cells in zip(columns, lists, strict=True):
            if name in UNASSIGNED and min(cells) < 0:
                cells[:] = ["" if cell < 0 else cell for cell in cells]
        writer.writerows(zip(*lists, strict=True))


def request_columns(answer: ServingReport) -> dict[str, Any]:
    """What is known of each request, by column."""
    run, requests = answer.run, answer.run.requests
    columns = {
        "arrival_s": requests.arrival_s,
        "input_tokens": requests.input_tokens,
        "output_tokens": requests.output_tokens,
        "first_token_s": run.first_token_s,
        "finish_s": run.finish_s,
        "scheduled_s": run.scheduled_s,
        "cached_tokens": run.cached_tokens,
    }
    beside = (requests.prefix_groups, requests.adapter, requests.priority, answer.sessions)
    return columns | {name: found for name, found in zip(OPTIONAL, beside, strict=True) if found is not None}


def write_steps(steps: Iterable[Any], file: TextIO, title: str) -> None:
    """One slice a step, and counters beside them."""
    named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": title}}
    write_events(chain([named], chain.from_iterable(map(_events, steps))), file, title)


def write_events(events: Iterable[Mapping[str, Any]], file: TextIO, title: str) -> None:
    """The Chrome trace format, which ui.perfetto.dev opens, an event a line."""
    file.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps({"title": title}) + ', "traceEvents": [')
    comma = "\n"
    for event in events:
        file.write(comma + json.dumps(event))
        comma = ",\n"
    file.write("\n]}\n")


def _events(step: Any) -> Iterator[dict[str, Any]]:
    start, end = step.start_s * _MICROSECONDS, step.end_s * _MICROSECONDS
    prompt = sum(new for new, _ in step.chunks)
    if prompt or step.decodes:
        kind = "mixed" if prompt and step.decodes else "prefill" if prompt else "decode"
        yield {
            "name": kind,
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": end - start,
            "args": {"decodes": step.decodes, "prompt_tokens": prompt, "cached_tokens": step.decode_context},
        }
        running = {"decodes": step.decodes, "prompts": len(step.chunks)}
        yield {"name": "sequences", "ph": "C", "pid": 1, "ts": start, "args": running}
    for request in step.preempted:
        yield {"name": "preempted", "ph": "i", "s": "p", "pid": 1, "tid": 1, "ts": start, "args": {"request": request}}
