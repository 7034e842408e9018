"""GuideLLM's `benchmarks.json`: `benchmarks[0].requests.successful`, whose requests have `prompt_tokens`,
`output_tokens` and `request_start_time`, or `start_time` in earlier versions. Files without such a list are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.load.recorded.found import Found, sorted_by_start
from gnomon.load.recorded.records import RecordFault, number, whole
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec import NotModelled
from gnomon.spec.workload import MAX_TOKENS

STARTS = ("request_start_time", "start_time")
LATEST_S = 1e11
LEFT_OUT = "they failed or did not end"


def read_guidellm(found: dict[str, Any], file: Path) -> Found:
    """The requests of a file with one benchmark."""
    benchmarks = found["benchmarks"]
    if not isinstance(benchmarks, list) or len(benchmarks) != 1:
        count = len(benchmarks) if isinstance(benchmarks, list) else 0
        message = f"has {count} benchmarks, and a load is one of them"
        raise InputError(message, where=f"{file}, field benchmarks", hint=f"Keep one. {NOTHING_RUN}")
    where = f"{file}, field benchmarks[0].requests"
    requests = benchmarks[0].get("requests") if isinstance(benchmarks[0], dict) else None
    rows = requests.get("successful") if isinstance(requests, dict) else None
    if not isinstance(rows, list):
        hint = f"Read are files of GuideLLM with all requests, by status. {NOTHING_RUN}"
        raise InputError("has no list `successful`", where=where, hint=hint)
    if not rows:
        raise InputError("has no requests that succeeded", where=where, hint=NOTHING_RUN)
    table = np.array([_row(row, f"{where}.successful[{place}]") for place, row in enumerate(rows)], np.float64)
    starts, inputs, outputs = table.T
    name = file.name.removesuffix(".gz").removesuffix(".json")
    made, order = sorted_by_start(starts, inputs.astype(np.int64), outputs.astype(np.int64), name=name)
    assert isinstance(requests, dict)
    others = sum(len(part) for key in ("incomplete", "errored") if isinstance(part := requests.get(key), list))
    said = (NotModelled(option=f"{others:,} of {others + len(rows):,} requests", why=LEFT_OUT),) if others else ()
    return Found(
        made, True, lambda at: f"field benchmarks[0].requests.successful[{order[at % order.size]}]", said
    )  # fmt: skip


def _row(row: Any, where: str) -> tuple[float, int, int]:
    if not isinstance(row, dict):
        raise InputError("is not a request", where=where, hint=NOTHING_RUN)
    try:
        start = next((key for key in STARTS if row.get(key) is not None), STARTS[0])
        return (
            number(row, start, 0, LATEST_S),
            whole(row, "prompt_tokens", 1, MAX_TOKENS),
            whole(row, "output_tokens", 1, MAX_TOKENS),
        )
    except RecordFault as fault:
        raise InputError(fault.message, where=f"{where}.{fault.key}", hint=NOTHING_RUN) from None
