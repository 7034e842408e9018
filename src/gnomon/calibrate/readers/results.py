"""Results of whole deployments under load: `vllm bench serve` and AIPerf."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.errors import CalibrationError

Json = Mapping[str, Any]
AIPERF_MAJOR = 1
"""The schema of AIPerf's summaries that we read (its `schema_version`, before the point)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """One measured load, in the middle of its requests."""

    tool: str
    model: str
    requests: int
    rate_per_s: float | None
    """Requests a second; none where all came at once."""
    concurrency: int | None
    """The most requests under way; none where there was no limit."""
    input_tokens: float
    output_tokens: float
    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    what: str
    knows: Callable[[Json], bool]
    read: Callable[[Json, str], Deployed]


def _number(data: Json, name: str, where: str, least: float = 0.0) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= least:
        raise CalibrationError(f"{name} is '{value}', not a number above {least:g}", where=where)
    return float(value)


def _vllm(data: Json, where: str) -> Deployed:
    done = _number(data, "completed", where)
    if data.get("failed"):
        raise CalibrationError(f"{data['failed']} requests failed: the rest met less load", where=where)
    return Deployed(
        tool="vllm bench serve",
        model=str(data.get("model_id") or ""),
        requests=int(done),
        rate_per_s=_rate(data.get("request_rate"), where),
        concurrency=int(_number(data, "max_concurrency", where)) if data.get("max_concurrency") else None,
        input_tokens=_number(data, "total_input_tokens", where) / done,
        output_tokens=_number(data, "total_output_tokens", where) / done,
        ttft_s=_number(data, "median_ttft_ms", where) * 1e-3,
        tpot_s=_number(data, "median_tpot_ms", where) * 1e-3,
        output_tokens_per_s=_number(data, "output_throughput", where),
    )


def _rate(value: Any, where: str) -> float | None:
    """`inf`, as the tool writes it, is no rate: all requests came at once."""
    if value in (None, "inf"):
        return None
    return _number({"request_rate": value}, "request_rate", where)


def _stat(data: Json, name: str, where: str, *stats: str) -> float:
    """One statistic of one of AIPerf's metrics, in seconds where it is a time."""
    metric = data.get(name)
    if not isinstance(metric, Mapping):
        raise CalibrationError(f"has no {name}", where=where)
    stat = next((each for each in stats if each in metric), stats[0])
    scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(str(metric.get("unit")), 1.0)
    return scale * _number({f"{name} {stat}": metric.get(stat)}, f"{name} {stat}", where)


def _aiperf(data: Json, where: str) -> Deployed:
    version = str(data.get("schema_version", f"{AIPERF_MAJOR}.0"))
    if version.partition(".")[0] != str(AIPERF_MAJOR):
        raise CalibrationError(f"AIPerf's schema {version} is not read, {AIPERF_MAJOR}.x is", where=where)
    if data.get("was_cancelled") or data.get("error_request_count"):
        raise CalibrationError("requests failed or were cancelled: the rest met less load", where=where)
    asked = data.get("input_config")
    asked = asked if isinstance(asked, Mapping) else {}
    return Deployed(
        tool="AIPerf",
        model=_first(_found(asked, "model_names") or _found(asked, "model")),
        requests=int(_stat(data, "request_count", where, "avg")),
        rate_per_s=_asked(asked, "request_rate", where),
        concurrency=int(limit) if (limit := _asked(asked, "concurrency", where)) else None,
        input_tokens=_stat(data, "input_sequence_length", where, "avg"),
        output_tokens=_stat(data, "output_sequence_length", where, "avg"),
        ttft_s=_stat(data, "time_to_first_token", where, "p50", "avg"),
        tpot_s=_stat(data, "inter_token_latency", where, "p50", "avg"),
        output_tokens_per_s=_stat(data, "output_token_throughput", where, "avg"),
    )


def _found(data: Any, name: str) -> Any:
    """A field anywhere in what the user had asked for: versions of the tool nest it differently."""
    if isinstance(data, Mapping):
        if data.get(name) is not None:
            return data[name]
        return next((hit for each in data.values() if (hit := _found(each, name)) is not None), None)
    if isinstance(data, list):
        return next((hit for each in data if (hit := _found(each, name)) is not None), None)
    return None


def _first(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) and value else str(value or "")


def _asked(asked: Json, name: str, where: str) -> float | None:
    value = _found(asked, name)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if value is None else _number({name: value}, name, where)


READERS = (
    Reader(
        what="a result of `vllm bench serve`", knows=lambda d: "median_ttft_ms" in d and "completed" in d, read=_vllm
    ),
    Reader(
        what="a summary of AIPerf (profile_export_aiperf.json)",
        knows=lambda d: isinstance(d.get("time_to_first_token"), Mapping) and "request_count" in d,
        read=_aiperf,
    ),
)
