"""Loads that we served with an engine's options (shared prompts, adapters, drafts, a narrow KV cache, offloading), of
`tools/feature_loads`, beside the same simulated.

The simulator has as many KV blocks as the engine had, goes on with the adapters or the cache that an earlier load left,
and accepts drafts as often as the engine did, by position. A folder's `measured.json` says with `part: check` that
nothing is fitted to it; `gnomon accuracy` has those alone.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.accuracy.scores import Row, compared
from gnomon.accuracy.served import INFO, STAGES, quantiles
from gnomon.cost.step import StepCost
from gnomon.engines import Deployment, Engine
from gnomon.load import model, parse_pool
from gnomon.load.deployments import deploy
from gnomon.planning.serving.bands import DRAWN, band_of
from gnomon.sim.serving import simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests

SCHEMA = "gnomon.feature-loads/1"
PART, CHECK = "part", "check"
LEAST_REQUESTS = 200
"""Shorter loads (bursts, static batches, first uses of adapters) are for fits."""
APART_S = 30.0
"""Between a load and one that goes on with its cache."""
PIECES = ("pieces", "output_tokens")
SAME = (
    *("max_model_len", "enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras", "kv_offloading_size"),
    *("cpu_offload_gb", "offload_backend", "offload_group_size", "offload_num_in_group", "offload_prefetch_step"),
)
"""Arguments of the engine that are settings of the same name."""
FOUND = "tokens found in the cache"
"""Share of the prompt tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionLoad:
    """One load and what was measured of it, by the name of each figure."""

    engine: str
    model: str
    name: str
    requests: Requests
    figures: Mapping[str, float]
    settings: Mapping[str, Any]
    kv_blocks: int
    kv_dtype: str
    before: Requests | None = None
    """What filled the cache, or asked for the adapters that the engine has."""

    @property
    def title(self) -> str:
        rate = "" if self.requests.rate_per_s == float("inf") else f" {self.requests.rate_per_s:.3g}/s"
        return f"{self.engine} {self.name} {len(self.requests)}{rate}"

    def deployed(self) -> tuple[Engine, Deployment]:
        network, pool = model(self.model), parse_pool("H200")
        return deploy(network, pool, dtype="bf16", kv_dtype=self.kv_dtype or None, settings=dict(self.settings))

    def simulated(self, cost: StepCost, limits: ServingLimits) -> dict[str, float]:
        """The same figures of a run."""
        limits = replace(limits, kv_blocks=self.kv_blocks)
        run = simulate(_after(self.before, self.requests), cost, limits)
        skip = len(self.before) if self.before is not None else 0
        tpot = run.tpot_s[skip:]
        times = quantiles("TTFT", run.ttft_s[skip:]) | quantiles("TPOT", tpot[~np.isnan(tpot)])
        return times | {FOUND: float(run.cached_tokens[skip:].sum() / self.requests.input_tokens.sum())}

    def rows(self, draws: int = DRAWN) -> Iterator[Row]:
        """Every figure with its interval."""
        engine, deployment = self.deployed()
        central, *drawn = (self.simulated(*each) for each in engine.drawn(deployment, draws, self.requests.longest + 1))
        about = {"chip": "H200-SXM-141GB", "model": self.model, "dtype": "bf16", "detail": self.title}
        for name, measured in self.figures.items():
            if measured:
                band = band_of(central[name], central[name], [one[name] for one in drawn])
                unit = "" if name == FOUND else "s"
                yield about | compared(f"load with options, {name}", unit, measured, central[name], band)


def option_loads(measurements: Path) -> Iterator[Row]:
    """Rows of all loads that nothing was fitted to."""
    for info in sorted(measurements.glob(f"*/{INFO}")):
        known = json.loads(info.read_text(encoding="utf-8"))
        if known.get(PART) != CHECK:
            continue
        for path in sorted(info.parent.glob("*.json.gz")):
            about = {"file": f"{path.parent.name}/{path.name}", "engine": f"vllm {known['versions']['vllm']}"}
            for load in read(path):
                if len(load.requests) >= LEAST_REQUESTS:
                    yield from (about | row for row in load.rows())


def read(path: Path) -> Iterator[OptionLoad]:
    """The loads of a file, in order; nothing where it is of another schema."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    if data.get("schema") != SCHEMA:
        return
    arguments = data["arguments"]
    given = {name: arguments[name] for name in SAME if name in arguments} | {"front_end": "in_process"}
    before: Requests | None = None
    used: list[int] = []
    """Adapters, by last use."""
    warmed = False
    for load in data["loads"]:
        if load.get("error") or not load.get("requests"):
            continue
        if not warmed and load["name"] != "cold":  # the tool then has all slots asked for
            used, warmed = _last(used, range(arguments.get("max_loras", 0))), True
        requests, figures = _requests(load)
        yield OptionLoad(
            engine=data["name"],
            model=data["model"],
            name=load["name"],
            requests=requests,
            figures=figures,
            settings=given | _drafts(arguments, load),
            kv_blocks=int(data["settings"]["kv_blocks"]),
            kv_dtype=arguments.get("kv_cache_dtype", ""),
            before=before if load["name"] == "over" else _asked(used, requests),
        )
        before = requests
        if requests.adapter is not None:
            used = _last(used, requests.adapter.tolist())


def _last(used: list[int], then: Iterable[int]) -> list[int]:
    new = dict.fromkeys(then)
    return [one for one in used if one not in new] + list(new)


def _asked(adapters: list[int], requests: Requests) -> Requests | None:
    """A short request for each of these adapters."""
    if not adapters or requests.adapter is None:
        return None
    few = np.full(len(adapters), 2, np.int64)
    return Requests(2.0 * np.arange(len(adapters), dtype=np.float64), few, few, adapter=np.array(adapters))


def _drafts(arguments: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of drafts, with the acceptance that was recorded."""
    drafts = arguments.get("speculative_config")
    if not drafts:
        return {}
    each = {name: np.broadcast_to(np.array(load["each"][name]), load["requests"]) for name in PIECES}
    some = each["pieces"] < each["output_tokens"]  # a piece has several tokens where drafts were accepted
    groups = []
    if some.any():
        made = max(int((each["pieces"][some] - 1).sum()), 1)
        shares = ":".join(f"{min(at / made, 1):.4f}" for at in load["accepted_at"])
        groups.append(f"{shares}@{some.mean():.4f}")
    if not some.all():
        groups.append(f"0@{1 - some.mean():.4f}")
    return {
        "speculative_method": drafts["method"],
        "num_speculative_tokens": drafts["num_speculative_tokens"],
        "draft_acceptance": "/".join(groups),
    }


def _requests(load: Mapping[str, Any]) -> tuple[Requests, dict[str, float]]:
    count = load["requests"]
    each = {name: np.broadcast_to(np.array(column), count) for name, column in load["each"].items()}
    order = np.argsort(each["arrival_us"], kind="stable")
    columns = {name: column[order] for name, column in each.items()}
    made, inputs = (columns[name].astype(np.int64) for name in ("output_tokens", "input_tokens"))
    ttft = np.sum([columns[name] for name in STAGES], axis=0) / 1e6
    later = made > 1
    tpot = columns["finish_us"][later] / (made[later] - 1) / 1e6
    adapter = columns["adapter"].astype(np.int64) - 1 if "adapter" in columns else None
    arrivals: Any = columns["arrival_us"] / 1e6
    requests = Requests(arrivals, inputs, made, prefixes=_prefixes(columns), adapter=adapter)
    found = float(np.maximum(columns["cached_tokens"], 0).sum() / inputs.sum())
    return requests, quantiles("TTFT", ttft) | quantiles("TPOT", tpot) | {FOUND: found}


def _prefixes(columns: Mapping[str, Any]) -> Prefixes | None:
    if "group" not in columns or (columns["group"] < 0).all():
        return None
    group = columns["group"].astype(np.int64)
    end = np.zeros(group.max() + 1, np.int64)
    end[group] = columns["prefix_tokens"]
    return Prefixes(group, np.full(end.size, -1), end)


def _after(first: Requests | None, then: Requests) -> Requests:
    """Both loads, the second a while after the first."""
    if first is None:
        return then
    return Requests(
        np.concatenate([first.arrival_s, then.arrival_s + first.arrival_s[-1] + APART_S]),
        np.concatenate([first.input_tokens, then.input_tokens]),
        np.concatenate([first.output_tokens, then.output_tokens]),
        prefixes=_joined(first.prefixes, then.prefixes),
        adapter=None
        if then.adapter is None or first.adapter is None
        else np.concatenate([first.adapter, then.adapter]),
    )


def _joined(first: Prefixes | None, then: Prefixes | None) -> Prefixes | None:
    """Of two loads with the same groups."""
    if first is None or then is None:
        return None
    size = max(first.end.size, then.end.size)
    end = np.zeros(size, np.int64)
    for one in (first, then):
        end[: one.end.size] = np.maximum(end[: one.end.size], one.end)
    return Prefixes(np.concatenate([first.node, then.node]), np.full(size, -1), end)
