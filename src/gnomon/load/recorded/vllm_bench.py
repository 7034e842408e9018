"""What `vllm bench serve --save-result --save-detailed` writes: columns of lengths and times.

Known by its `input_lens` and `output_lens`. Earlier versions have no `start_times`; then arrivals are drawn at a rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError, shown
from gnomon.load.recorded.found import Found, sorted_by_start
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec import NotModelled, Requests
from gnomon.spec.workload import MAX_TOKENS

FAILED = "requests without output failed, and are left out"


def read_vllm_bench(found: dict[str, Any], file: Path) -> Found:
    """The requests of a result."""
    inputs, outputs = (_column(found, key, file) for key in ("input_lens", "output_lens"))
    starts = _column(found, "start_times", file) if "start_times" in found else None
    for key, values in (("output_lens", outputs), ("start_times", starts)):
        if values is not None and values.size != inputs.size:
            message = f"has {values.size:,} values, and input_lens {inputs.size:,}"
            raise InputError(message, where=f"{file}, field {key}", hint=NOTHING_RUN)
    for key, values in (("input_lens", inputs), ("output_lens", outputs)):
        wrong = np.flatnonzero(~((values >= 0) & (values <= MAX_TOKENS) & (values == np.floor(values))))
        if wrong.size:
            message = f"{values[wrong[0]]:g} is not a whole number of tokens"
            raise InputError(message, where=f"{file}, field {key}[{wrong[0]}]", hint=NOTHING_RUN)
    kept = np.flatnonzero((inputs >= 1) & (outputs >= 1))
    if not kept.size:
        raise InputError("has no requests that succeeded", where=str(file), hint=NOTHING_RUN)
    failed = inputs.size - kept.size
    said = (NotModelled(option=f"{failed:,} of {inputs.size:,} requests", why=FAILED),) if failed else ()
    lengths = (inputs[kept].astype(np.int64), outputs[kept].astype(np.int64))
    name = file.name.removesuffix(".gz").removesuffix(".json")
    if starts is None:
        requests, order = Requests(np.zeros(kept.size), *lengths, name=name), np.arange(kept.size)
    else:
        requests, order = sorted_by_start(starts[kept], *lengths, name=name)
    places = kept[order]
    return Found(requests, starts is not None, lambda at: f"field input_lens[{places[at % places.size]}]", said)


def _column(found: dict[str, Any], key: str, file: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = found.get(key)
    if not isinstance(values, list) or not values:
        raise InputError("is not a list of numbers", where=f"{file}, field {key}", hint=NOTHING_RUN)
    for place, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e18:
            message = f"{shown(value)} is not a number"
            raise InputError(message, where=f"{file}, field {key}[{place}]", hint=NOTHING_RUN)
    return np.array(values, np.float64)
