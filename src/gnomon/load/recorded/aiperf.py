"""AIPerf's `profile_export.jsonl`: a record per request with `metadata` and `metrics`, as in 0.12.

Records stand in the order in which requests ended; they are sorted by `request_start_ns`. Requests that failed, were
cancelled or belong to the warm-up are left out and counted.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from gnomon.errors import InputError
from gnomon.load.recorded.found import Found, sorted_by_start
from gnomon.load.recorded.records import RecordFault, Row, each_row, number, records, whole
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec import NotModelled
from gnomon.spec.workload import MAX_TOKENS

LATEST_NS = 1e20
METRICS = {"input_sequence_length": "input", "output_sequence_length": "output"}
LEFT_OUT = "they failed, were cancelled or belong to the warm-up"
TURNS = "later turns arrive when they did in that run, whenever answers come"


def read_aiperf(file: Path, limit: int | None) -> Found:
    """The requests of a file, or the first `limit` that arrived."""
    starts, inputs, outputs, lines = array("d"), array("q"), array("q"), array("q")
    total, later, first = 0, False, 0.0
    for block in records(file, None):
        for line, found in each_row(block, file, _row, None):
            total += 1
            if found is None:
                continue
            start_ns, prompt, output, turn = found
            first = first or start_ns
            starts.append((start_ns - first) / 1e9)
            inputs.append(prompt)
            outputs.append(output)
            lines.append(line)
            later = later or turn > 0
    if not starts:
        raise InputError("has no requests that succeeded", where=str(file), hint=NOTHING_RUN)
    prompts, made = (np.frombuffer(each, np.int64) for each in (inputs, outputs))
    name = file.name.removesuffix(".gz").removesuffix(".jsonl")
    requests, order = sorted_by_start(np.frombuffer(starts), prompts, made, name)
    said = []
    if len(starts) < total:
        said.append(NotModelled(option=f"{total - len(starts):,} of {total:,} records", why=LEFT_OUT))
    if later:
        said.append(NotModelled(option="key turn_index", why=TURNS))
    numbers = np.frombuffer(lines, np.int64)[order]
    taken = requests if limit is None else requests.first(limit)
    return Found(taken, True, lambda place: f"line {int(numbers[place % numbers.size])}", tuple(said))


def _row(row: Row) -> tuple[float, int, int, int] | None:
    metadata, metrics = row.get("metadata"), row.get("metrics")
    if not isinstance(metadata, dict) or not isinstance(metrics, dict):
        raise RecordFault("is not a record of AIPerf: it has no metadata and metrics")
    if row.get("error") or metadata.get("was_cancelled") or metadata.get("benchmark_phase") == "warmup":
        return None
    start_ns = number(metadata, "request_start_ns", 0, LATEST_NS)
    tokens = []
    for key in METRICS:
        metric = metrics.get(key)
        if not isinstance(metric, dict):
            raise RecordFault("is missing", f"metrics.{key}")
        tokens.append(whole({f"metrics.{key}": metric.get("value")}, f"metrics.{key}", 1, MAX_TOKENS))
    turn = metadata.get("turn_index")
    return start_ns, tokens[0], tokens[1], turn if isinstance(turn, int) else 0
