"""A plan run for real: measured beside predicted, part by part."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.api.deploy import deploy, title_of
from gnomon.api.results import Verified
from gnomon.engines import Deployment, Engine
from gnomon.errors import InputError
from gnomon.load import config_of, draw
from gnomon.load import model as load_model
from gnomon.load.fleet import parse_pool
from gnomon.paths import write_text
from gnomon.sim.serving import simulate
from gnomon.spec import Plan, Requests
from gnomon.store import resolve_plan

SCHEMA = "gnomon.measured/1"
LEAST_REQUESTS = 500
"""Fewer requests leave too few for a median that repeats."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """One load as it was really run; times in seconds from its start."""

    rate_per_s: float
    requests: Requests
    scheduled_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]

    @property
    def times(self) -> dict[str, NDArray[np.float64]]:
        """Seconds by part: waiting, prompt, first token, and each token after it."""
        return _times(self.requests, self.scheduled_s, self.first_token_s, self.finish_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Reality, as kept in a file: what ran, with which versions, and when each token came."""

    plan: Plan
    date: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    loads: tuple[Load, ...]
    probes: tuple[Mapping[str, Any], ...] = ()
    """Parts measured by themselves: prompts on an idle engine, even decode batches, prompts beside decodes."""

    def to_dict(self) -> dict[str, Any]:
        from gnomon.load.plan import plan_to_dict

        return {
            "schema": SCHEMA,
            "date": self.date,
            "versions": dict(self.versions),
            "plan": plan_to_dict(self.plan),
            "settings": dict(self.settings),
            "loads": [_load_to_dict(load) for load in self.loads],
            "probes": [dict(probe) for probe in self.probes],
        }


_COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "scheduled_s", "first_token_s", "finish_s")


def _load_to_dict(load: Load) -> dict[str, Any]:
    stream = load.requests
    columns: list[list[Any]] = [stream.arrival_s.tolist(), stream.input_tokens.tolist(), stream.output_tokens.tolist()]
    columns += [load.scheduled_s.tolist(), load.first_token_s.tolist(), load.finish_s.tolist()]
    rows = [[round(x, 6) if isinstance(x, float) else x for x in row] for row in zip(*columns, strict=True)]
    return {"rate_per_s": load.rate_per_s, "columns": list(_COLUMNS), "rows": rows}


def read_measured(path: Path) -> Measured:
    """A file that `gnomon verify --out` wrote."""
    from gnomon.load.files import read_json
    from gnomon.load.plan import plan_from_dict

    data = read_json(path, limit=64 * 1024**2)
    if data.get("schema") != SCHEMA:
        raise InputError(f"schema is '{data.get('schema')}', not '{SCHEMA}'", where=str(path))
    try:
        return Measured(
            plan=plan_from_dict(data["plan"], where=str(path)),
            date=str(data["date"]),
            versions=dict(data["versions"]),
            settings=dict(data["settings"]) | {"kv_blocks": int(_positive(data["settings"]["kv_blocks"]))},
            loads=tuple(_load_from_dict(load) for load in data["loads"]),
            probes=tuple(_probe_from_dict(probe) for probe in data.get("probes", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
        raise InputError(f"is not a whole measurement ({problem})", where=str(path)) from None


def _load_from_dict(data: Mapping[str, Any]) -> Load:
    table = np.array(data["rows"], float)
    if list(data["columns"]) != list(_COLUMNS) or table.ndim != 2 or table.shape[1] != len(_COLUMNS):
        raise ValueError("a load's rows are not those columns")
    arrival, prompt, output, scheduled, first, finish = table.T
    if not np.isfinite(table).all() or (prompt < 1).any() or (output < 1).any() or (finish < first).any():
        raise ValueError("a load holds times or lengths that cannot be")
    return Load(
        rate_per_s=_positive(data["rate_per_s"]),
        requests=Requests(arrival, prompt.astype(np.int64), output.astype(np.int64)),
        scheduled_s=scheduled,
        first_token_s=first,
        finish_s=finish,
    )


def _probe_from_dict(data: Mapping[str, Any]) -> dict[str, Any]:
    """A part measured by itself; kinds that are not compared are kept as they are."""
    needed = {"prompt": ("tokens", "time_s"), "decode": ("sequences", "context", "time_s")}
    for name in needed.get(str(data["kind"]), ()):
        _positive(data[name])
    return dict(data)


def _positive(value: Any) -> float:
    number = float(value)
    if isinstance(value, (bool, str)) or not 0 < number < math.inf:
        raise ValueError(f"{value} is not above zero")
    return number


def verify(
    plan: str | Path | Plan,
    *,
    rates: Sequence[float] | None = None,
    probe: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verified:
    """Start one replica of the plan with dummy weights, replay its load (at several rates), and compare.

    Needs a GPU and the engine. `probe` also measures prompts and decode batches by themselves. `out` keeps
    what was measured as a file. A file of an earlier measurement in place of the plan is compared again.
    """
    if isinstance(plan, (str, Path)) and str(plan).endswith(".json"):
        return compare(read_measured(Path(plan)))
    chosen = plan if isinstance(plan, Plan) else resolve_plan(str(plan))
    measured = measure(chosen, rates=rates, probe=probe, progress=progress)
    if out is not None:
        write_text(Path(out), json.dumps(measured.to_dict(), separators=(",", ":")) + "\n")
    return compare(measured)


def measure(
    plan: Plan,
    *,
    rates: Sequence[float] | None = None,
    probe: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Measured:
    """Run the plan's load for real on one replica."""
    from gnomon.calibrate.engine import measure as measure_parts
    from gnomon.engines.vllm.runner import VllmRunner, versions

    tell = progress or (lambda text: None)
    streams = list(_streams(plan, rates))
    tell(f"starting {plan.engine.name} with dummy weights")
    with VllmRunner(config_of(plan.model), _arguments(plan)) as runner:
        tell("warming up")
        runner.replay(_warm_up(streams[0]))
        probes = measure_parts(runner, plan.model) if probe else []
        loads = []
        for rate, stream in streams:
            tell(f"{len(stream):,} requests at {rate:g} a second")
            run = runner.replay(stream)
            loads.append(
                Load(
                    rate_per_s=rate,
                    requests=stream,
                    scheduled_s=run.scheduled_s,
                    first_token_s=run.first_token_s,
                    finish_s=run.finish_s,
                )
            )
        return Measured(
            plan=plan,
            date=time.strftime("%Y-%m-%d"),
            versions=versions(),
            settings=runner.settings(),
            loads=tuple(loads),
            probes=tuple(probes),
        )


def _streams(plan: Plan, rates: Sequence[float] | None) -> Iterator[tuple[float, Requests]]:
    if plan.load is None:
        raise InputError("the plan has no load to replay", where="load", hint="Make it with `gnomon plan serve`.")
    asked: Sequence[float | None] = rates or [plan.load.rate_per_s]
    for rate in asked:
        share = None if rate is None else rate / plan.replicas
        stream = draw(replace(plan.load, rate_per_s=share, requests=max(plan.load.requests, LEAST_REQUESTS)))
        yield stream.rate_per_s if share is None else share, stream


def _warm_up(first: tuple[float, Requests]) -> Requests:
    """The first requests of the load, all at once and cut short: shapes the engine has not met are compiled now."""
    stream = first[1]
    few = min(32, len(stream))
    return Requests(np.zeros(few), stream.input_tokens[:few], np.minimum(stream.output_tokens[:few], 16))


def _arguments(plan: Plan) -> dict[str, Any]:
    """The plan's settings as vLLM's engine takes them; prompts are random, so prefixes are never shared."""
    given = {name: value for name, value in plan.engine.settings.items() if name != "enable_prefix_caching"}
    given |= {"tensor_parallel_size": plan.strategy.tp, "dtype": "bfloat16"}
    if plan.dtype == "fp8":
        given["quantization"] = "fp8"
    if plan.kv_dtype == "fp8":
        given["kv_cache_dtype"] = "fp8"
    return given


def compare(measured: Measured) -> Verified:
    """Today's prediction beside a measurement, new or old."""
    engine, deployment = _deployed(measured)
    parts = [_memory_part(engine, deployment, measured), *_load_parts(engine, deployment, measured)]
    parts += _probe_parts(engine, deployment, measured)
    return Verified(
        title=f"{title_of(engine, deployment)}: measured {measured.date} beside predicted",
        parts=tuple(parts),
        conditions={"date": measured.date, **measured.versions},
        measured={"settings": dict(measured.settings), "loads": [load.rate_per_s for load in measured.loads]},
    )


def _deployed(measured: Measured) -> tuple[Engine, Deployment]:
    plan = measured.plan
    return deploy(
        load_model(plan.model),
        parse_pool(f"{plan.chip}:{plan.strategy.ranks}"),
        strategy=plan.strategy,
        dtype=plan.dtype,
        kv_dtype=plan.kv_dtype,
        engine=plan.engine,
    )


def _memory_part(engine: Engine, deployment: Deployment, measured: Measured) -> dict[str, Any]:
    ours = float(engine.memory(deployment).kv_blocks + 1)
    return _part("memory", None, "KV blocks", float(measured.settings["kv_blocks"]), ours, "blocks")


def _load_parts(engine: Engine, deployment: Deployment, measured: Measured) -> Iterator[dict[str, Any]]:
    cost, limits = engine.step_cost(deployment), engine.limits(deployment)
    names = {"queue": "waiting", "prefill": "prompt to first token", "ttft": "TTFT", "decode": "TPOT"}
    for load in measured.loads:
        run = simulate(load.requests, cost, limits)
        ours = _times(load.requests, run.scheduled_s, run.first_token_s, run.finish_s)
        for part, label in names.items():
            for statistic, level in (("p50", 0.5), ("p90", 0.9)):
                if part == "decode" and (load.requests.output_tokens < 2).all():
                    continue
                theirs, mine = (float(np.nanquantile(side[part], level)) for side in (load.times, ours))
                yield _part(part, load.rate_per_s, f"{label} {statistic}", theirs, mine, "s")


def _probe_parts(engine: Engine, deployment: Deployment, measured: Measured) -> Iterator[dict[str, Any]]:
    cost, limits = engine.step_cost(deployment), engine.limits(deployment)
    for probe in measured.probes:
        if probe["kind"] == "prompt":
            alone = Requests(np.zeros(1), np.array([probe["tokens"]]), np.ones(1, np.int64))
            ours = float(simulate(alone, cost, limits).ttft_s[0])
            yield _part("prompt alone", None, f"{probe['tokens']:,} tokens", probe["time_s"], ours, "s")
        elif probe["kind"] == "decode" and probe["sequences"] <= limits.max_sequences:
            curve = cost.decode_curve(probe["sequences"])
            ours = float(np.interp(probe["context"], curve.context, curve.seconds))
            what = f"{probe['sequences']:,} sequences at context {probe['context']:,.0f}"
            yield _part("decode alone", None, what, probe["time_s"], ours, "s")


def _part(part: str, rate: float | None, what: str, measured: float, predicted: float, unit: str) -> dict[str, Any]:
    return {
        "part": part,
        "rate_per_s": rate,
        "what": what,
        "measured": measured,
        "predicted": predicted,
        "error": predicted / measured - 1 if measured else None,
        "unit": unit,
    }


def _times(
    stream: Requests,
    scheduled: NDArray[np.float64],
    first: NDArray[np.float64],
    finish: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    later = (stream.output_tokens - 1).astype(float)
    later[later == 0] = np.nan
    return {
        "queue": scheduled - stream.arrival_s,
        "prefill": first - scheduled,
        "ttft": first - stream.arrival_s,
        "decode": (finish - first) / later,
    }
