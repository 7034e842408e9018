"""Results of whole deployments under load: `vllm bench serve` and AIPerf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.errors import CalibrationError

Json = Mapping[str, Any]
AIPERF_MAJOR = 1
"""The schema of AIPerf's summaries that we read (its `schema_version`, before the point)."""
DEEPEST = 16
Ends = tuple[float, float]
LARGEST = 1e15
MANY, TOKENS, PER_SECOND = (1.0, 1e6), (1.0, 1e7), (1e-6, 1e9)
"""The least and the most of requests, of a request's tokens, and of what is done in a second."""
SECONDS, MILLISECONDS = (1e-7, 1e5), (1e-4, 1e8)
TOTALS = ("total_input_tokens", "total_output_tokens")
TIMES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0, "sec": 1.0, "seconds": 1.0}
RATES = {"tokens/sec": 1.0, "tokens/s": 1.0}
"""AIPerf's units, and what one of them is in ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """One measured load, in the middle of its requests."""

    tool: str
    model: str
    requests: int
    rate_per_s: float | None
    """Requests per second; none where all arrived at once."""
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


def _number(data: Json, name: str, where: str, ends: Ends) -> float:
    value, (least, most) = data.get(name), ends
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        shown = str(value) if not isinstance(value, int) or abs(value) < LARGEST else "a very large number"
        raise CalibrationError(f"{name} is '{shown[:40]}', not a number from {least:g} to {most:g}", where=where)
    return float(value)


def _vllm(data: Json, where: str) -> Deployed:
    done = _number(data, "completed", where, MANY)
    if data.get("failed"):
        raise CalibrationError(f"{data['failed']} requests failed: the rest met less load", where=where)
    tokens = {name: _number(data, name, where, (1.0, LARGEST)) / done for name in TOTALS}
    return Deployed(
        tool="vllm bench serve",
        model=str(data.get("model_id") or ""),
        requests=int(done),
        rate_per_s=_rate(data.get("request_rate"), where),
        concurrency=int(_number(data, "max_concurrency", where, MANY)) if data.get("max_concurrency") else None,
        input_tokens=_number(tokens, TOTALS[0], f"{where}, a request's", TOKENS),
        output_tokens=_number(tokens, TOTALS[1], f"{where}, a request's", TOKENS),
        ttft_s=_number(data, "median_ttft_ms", where, MILLISECONDS) * 1e-3,
        tpot_s=_number(data, "median_tpot_ms", where, MILLISECONDS) * 1e-3,
        output_tokens_per_s=_number(data, "output_throughput", where, PER_SECOND),
    )


def _rate(value: Any, where: str) -> float | None:
    """`inf`, as the tool writes it, is no rate: all requests came at once."""
    if value in (None, "inf", float("inf")):
        return None
    return _number({"request_rate": value}, "request_rate", where, PER_SECOND)


def _stat(data: Json, name: str, where: str, ends: Ends, units: Mapping[str, float], *stats: str) -> float:
    """One statistic of one of AIPerf's metrics, in seconds where it is a time."""
    metric = data.get(name)
    if not isinstance(metric, Mapping):
        raise CalibrationError(f"has no {name}", where=where)
    unit = metric.get("unit", None if units is TIMES else next(iter(units)))  # a count is one without its unit too
    if not isinstance(unit, str) or unit not in units:
        raise CalibrationError(f"{name} is in '{unit}', not in {' or '.join(units)}", where=where)
    stat = next((each for each in stats if each in metric), stats[0])
    value = _number({f"{name} {stat}": metric.get(stat)}, f"{name} {stat}", where, (-LARGEST, LARGEST))
    return _number({f"{name} {stat}": units[unit] * value}, f"{name} {stat}", where, ends)


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
        requests=int(_stat(data, "request_count", where, MANY, {"requests": 1.0}, "avg")),
        rate_per_s=_asked(asked, "request_rate", where, PER_SECOND),
        concurrency=int(limit) if (limit := _asked(asked, "concurrency", where, MANY)) else None,
        input_tokens=_stat(data, "input_sequence_length", where, TOKENS, {"tokens": 1.0}, "avg"),
        output_tokens=_stat(data, "output_sequence_length", where, TOKENS, {"tokens": 1.0}, "avg"),
        ttft_s=_stat(data, "time_to_first_token", where, SECONDS, TIMES, "p50", "avg"),
        tpot_s=_stat(data, "inter_token_latency", where, SECONDS, TIMES, "p50", "avg"),
        output_tokens_per_s=_stat(data, "output_token_throughput", where, PER_SECOND, RATES, "avg"),
    )


def _found(data: Any, name: str, deep: int = DEEPEST) -> Any:
    """A field anywhere in what the user had asked for: versions of the tool nest it differently."""
    if isinstance(data, Mapping) and data.get(name) is not None:
        return data[name]
    inside = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    return next((hit for each in inside if deep and (hit := _found(each, name, deep - 1)) is not None), None)


def _first(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) and value else str(value or "")


def _asked(asked: Json, name: str, where: str, ends: Ends) -> float | None:
    value = _found(asked, name)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return None if value is None else _number({name: value}, name, where, ends)


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
