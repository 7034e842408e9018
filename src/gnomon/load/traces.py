"""Request traces of any known format, plain or packed; `recorded/` has a reader for each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gnomon.errors import InputError
from gnomon.load.files import as_path, reading
from gnomon.load.recorded.detect import read_requests
from gnomon.load.recorded.lengths import read_lengths
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.drawing import arrivals, check_load
from gnomon.spec.drawing import draw as drawn
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.lengths.empirical import Empirical
from gnomon.spec.workload import RequestTrace

Given = TypeVar("Given", bound=int | Lengths | None)
NAMED = {"azure-conv": "azure_llm_2023_conv.csv.gz", "azure-code": "azure_llm_2023_code.csv.gz"}


def read_trace(path: str | Path, limit: int | None = None, *, turns: int = 1, think_s: float = 0.0) -> RequestTrace:
    """What a trace says, the first `limit` requests of it where that is given; of conversations, sessions of so many
    `turns`."""
    file = trace_path(path)
    with reading(file):
        found = read_requests(file, limit, turns, think_s)
    return RequestTrace(
        requests=found.requests, timed=found.timed, file=str(file), spot_of=found.spot_of,
        not_modelled=found.not_modelled, image_tokens=found.image_tokens,
    )  # fmt: skip


def trace_of(load: ServingLoad) -> RequestTrace | None:
    """The trace that a load names, as far as the load goes; none where its requests are drawn."""
    check_load(load)
    if not load.trace:
        return None
    return read_trace(load.trace, load.requests or None, turns=load.turns, think_s=load.think_s)


def with_lengths(load: ServingLoad) -> ServingLoad:
    """The load, its files of lengths read."""
    return replace(load, input_tokens=known_lengths(load.input_tokens), output_tokens=known_lengths(load.output_tokens))


def located_lengths(load: ServingLoad) -> ServingLoad:
    """The load with files of lengths named by their whole paths, so that it means the same from any folder."""

    return replace(load, input_tokens=located(load.input_tokens), output_tokens=located(load.output_tokens))


def located(given: Given) -> Given:
    """Lengths whose file is named by its whole path."""
    return replace(given, path=str(as_path(given.path).resolve())) if isinstance(given, Empirical) else given


def known_lengths(given: Given) -> Given:
    """Lengths with what their file says."""
    if not isinstance(given, Empirical) or given.values is not None:
        return given
    values, counts = read_lengths(given.path)
    return replace(given, values=values, counts=counts)


def draw(load: ServingLoad, *, repeat: bool = True) -> Requests:
    """The requests of a load, its trace read first; see `gnomon.spec.drawing`."""
    return drawn(with_lengths(load), trace_of(load), repeat=repeat)


def requests(path: str | Path, *, rate_per_s: float | None = None, seed: int = 0, limit: int | None = None) -> Requests:
    """The requests of a trace; the rate is only for files without arrival times."""
    return arrivals(read_trace(path, limit), rate_per_s, seed)


def trace_path(ref: str | Path) -> Path:
    """Where a trace stands: a file, or one of the named traces when the measurements are at hand."""
    name = NAMED.get(str(ref).lower())
    if name is None:
        return as_path(ref)
    near = Path(__file__).parents[4] / "shared" / "truth"
    folders = [Path(os.environ["GNOMON_TRUTH"])] if os.environ.get("GNOMON_TRUTH") else [Path("../shared/truth"), near]
    for folder in folders:
        if (folder / "traces" / name).is_file():
            return folder / "traces" / name
    hint = "Set GNOMON_TRUTH to the folder of published measurements, or give a CSV file."
    raise InputError(f"the trace '{ref}' is not on this machine", hint=hint)
