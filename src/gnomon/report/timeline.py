"""A simulated run as files: the times of every request, and every step for a trace viewer."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TextIO

COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "first_token_s", "finish_s")
_MICROSECONDS = 1e6


def write_requests(run: Any, file: TextIO) -> None:
    """CSV of a `ServingRun`, one line a request, in seconds on the clock of the arrivals."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    requests = run.requests
    columns = (
        requests.arrival_s.tolist(),
        requests.input_tokens.tolist(),
        requests.output_tokens.tolist(),
        run.first_token_s.tolist(),
        run.finish_s.tolist(),
    )
    writer.writerows(zip(*columns, strict=True))


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
