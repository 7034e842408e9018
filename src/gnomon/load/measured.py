"""What was measured, as a file: the plan that ran, the versions, and when each token came."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.load.files import read_json
from gnomon.load.plan import plan_from_dict
from gnomon.spec import Plan, Requests
from gnomon.spec.plan_dict import plan_to_dict

SCHEMA = "gnomon.measured/1"
PROBES = {
    "prompt": ("tokens", "time_s"),
    "decode": ("sequences", "context", "time_s"),
    "beside": ("sequences", "tokens", "time_s"),
    "frontend": ("rate_per_s",),
}
"""Parts measured by themselves, and the figures each has at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredLoad:
    """One load as it was really run; times in seconds from its start."""

    rate_per_s: float
    requests: Requests
    scheduled_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]

    @property
    def times(self) -> dict[str, NDArray[np.float64]]:
        """Seconds by part: waiting, prompt, first token, and each token after it."""
        return times_of(self.requests, self.scheduled_s, self.first_token_s, self.finish_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Reality, as kept in a file: what ran, with which versions, and when each token came."""

    plan: Plan
    date: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    loads: tuple[MeasuredLoad, ...]
    probes: tuple[Mapping[str, Any], ...] = ()
    """Parts measured by themselves: prompts on an idle engine, even decode batches, prompts beside decodes."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "date": self.date,
            "versions": dict(self.versions),
            "plan": plan_to_dict(self.plan, flat=True),
            "settings": dict(self.settings),
            "loads": [_load_to_dict(load) for load in self.loads],
            "probes": [dict(probe) for probe in self.probes],
        }


_COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "scheduled_s", "first_token_s", "finish_s")


def _load_to_dict(load: MeasuredLoad) -> dict[str, Any]:
    stream = load.requests
    columns: list[list[Any]] = [stream.arrival_s.tolist(), stream.input_tokens.tolist(), stream.output_tokens.tolist()]
    columns += [load.scheduled_s.tolist(), load.first_token_s.tolist(), load.finish_s.tolist()]
    rows = [[round(x, 6) if isinstance(x, float) else x for x in row] for row in zip(*columns, strict=True)]
    return {"rate_per_s": load.rate_per_s, "columns": list(_COLUMNS), "rows": rows}


def read_measured(path: Path) -> Measured:
    """A file that `gnomon verify --out` wrote."""
    data = read_json(path, limit=64 * 1024**2)
    if data.get("schema") != SCHEMA:
        raise InputError(f"schema is '{data.get('schema')}', not '{SCHEMA}'", where=str(path))
    try:
        return Measured(
            plan=plan_from_dict(data["plan"], where=str(path)),
            date=str(data["date"]),
            versions=dict(data["versions"]),
            settings=dict(data["settings"]) | {"kv_blocks": int(_positive(data["settings"]["kv_blocks"]))},
            loads=_loads(data["loads"]),
            probes=tuple(_probe_from_dict(probe) for probe in data.get("probes", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
        raise InputError(f"is not a whole measurement ({problem})", where=str(path)) from None


def _loads(data: Any) -> tuple[MeasuredLoad, ...]:
    if not isinstance(data, list) or not data:
        raise ValueError("it holds no load")
    return tuple(_load_from_dict(load) for load in data)


def _load_from_dict(data: Mapping[str, Any]) -> MeasuredLoad:
    table = np.array(data["rows"], float)
    if list(data["columns"]) != list(_COLUMNS) or table.ndim != 2 or table.shape[1] != len(_COLUMNS):
        raise ValueError("a load's rows are not those columns")
    arrival, prompt, output, scheduled, first, finish = table.T
    lengths = np.concatenate([prompt, output])
    ordered = (arrival <= first).all() and (scheduled <= first).all() and (first <= finish).all()
    if not np.isfinite(table).all() or (lengths < 1).any() or (lengths != np.floor(lengths)).any() or not ordered:
        raise ValueError("a load holds times or lengths that cannot be")
    return MeasuredLoad(
        rate_per_s=_positive(data["rate_per_s"]),
        requests=Requests(arrival, prompt.astype(np.int64), output.astype(np.int64)),
        scheduled_s=scheduled,
        first_token_s=first,
        finish_s=finish,
    )


def _probe_from_dict(data: Mapping[str, Any]) -> dict[str, Any]:
    """A part measured by itself; kinds that are not compared are kept as they are."""
    kind = str(data["kind"])
    if kind not in PROBES:
        raise ValueError(f"unknown probe '{kind}'")
    for name in PROBES[kind]:
        number = _positive(data[name])
        if name in ("tokens", "sequences") and number != int(number):
            raise ValueError(f"{name} {number:g} is not a whole number")
    return dict(data)


def _positive(value: Any) -> float:
    number = float(value)
    if isinstance(value, (bool, str)) or not 0 < number < math.inf:
        raise ValueError(f"{value} is not above zero")
    return number


def times_of(
    stream: Requests,
    scheduled: NDArray[np.float64],
    first: NDArray[np.float64],
    finish: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Seconds by part: waiting, prompt to first token, both together, and each token after it (NaN where none)."""
    later = (stream.output_tokens - 1).astype(float)
    later[later == 0] = np.nan
    return {
        "queue": scheduled - stream.arrival_s,
        "prefill": first - scheduled,
        "ttft": first - stream.arrival_s,
        "decode": (finish - first) / later,
    }
