"""Measured loads of vLLM's options beside the same simulated: `python -m tools.feature_accuracy FOLDER...`.

Reads every file of tools/feature_loads.py in the folders, simulates each load as `gnomon simulate serve` would, with as
many KV blocks as the engine had, and prints measured, predicted and error of TPOT p50, TTFT p50 and the share of prompt
tokens that were found in the cache, then their means by option. `over` goes on with the cache that `over-fill` left,
and a static batch with what offloading kept in the host of the one before it.
Acceptance of drafts is the one that was recorded, by position.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.load import model, parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests

STAGES = ("queued_us", "scheduled_us", "made_us", "first_us")
APART_S = 30.0
"""Between a load and one that goes on with its cache."""
PIECES = ("pieces", "output_tokens")
SAME = ("max_model_len", "enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras", "kv_offloading_size")
"""Arguments of the engine that are settings of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One load and what was measured of it."""

    engine: str
    model: str
    name: str
    requests: Requests
    tpot_s: float
    ttft_s: float
    hit_rate: float
    settings: Mapping[str, Any]
    kv_blocks: int
    kv_dtype: str
    before: Requests | None = None
    """What filled the cache, or asked for the adapters that the engine has."""

    @property
    def title(self) -> str:
        rate = "" if self.requests.rate_per_s == float("inf") else f" {self.requests.rate_per_s:.3g}/s"
        return f"{self.engine} {self.name} {len(self.requests)}{rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    load: Measured
    tpot: float
    ttft: float
    hits: float
    """In points."""
    ours: tuple[float, float, float]

    def line(self) -> str:
        of, (tpot, ttft, hits) = self.load, self.ours
        return (
            f"{of.title:34} TPOT {of.tpot_s * 1e3:6.2f} {tpot * 1e3:6.2f} ms {self.tpot:+6.1%}   "
            f"TTFT {of.ttft_s * 1e3:7.1f} {ttft * 1e3:7.1f} ms {self.ttft:+6.1%}   "
            f"found {of.hit_rate:5.1%} {hits:5.1%} {self.hits:+.1f}"
        )


def read(path: Path) -> Iterator[Measured]:
    data = json.loads(gzip.decompress(path.read_bytes()))
    arguments = data["arguments"]
    given = {name: arguments[name] for name in SAME if name in arguments} | {"front_end": "in_process"}
    before: Requests | None = None
    last = ""
    used: list[int] = []
    """Adapters, by last use."""
    for load in data["loads"]:
        if load.get("error") or not load.get("requests"):
            continue
        requests, times = _requests(load)
        again = load["name"] == "static" and "kv_offloading_size" in arguments
        if again:  # the first prompts of every such load are the same, and the host keeps them between loads
            requests = replace(requests, prefixes=_own_prompts(requests))
        goes_on = load["name"] == "over" or (again and last == "static")
        last = load["name"]
        yield Measured(
            engine=data["name"],
            model=data["model"],
            name=load["name"],
            requests=requests,
            **times,
            settings=given | _drafts(arguments, load),
            kv_blocks=int(data["settings"]["kv_blocks"]),
            kv_dtype=arguments.get("kv_cache_dtype", ""),
            before=(_emptied(before, data["settings"]) if again and before else before)
            if goes_on
            else _asked(used, requests),
        )
        before = requests
        if requests.adapter is not None:
            new = dict.fromkeys(requests.adapter.tolist())
            used = [one for one in used if one not in new] + list(new)


def _own_prompts(requests: Requests) -> Prefixes:
    """A prefix of its own for every request: its prompt."""
    count = len(requests)
    return Prefixes(np.arange(count), np.full(count, -1), requests.input_tokens)


def _emptied(first: Requests, settings: Mapping[str, Any]) -> Requests:
    """A load, then prompts that fill the GPU's blocks once: between loads the engine's own cache was emptied."""
    length = int(settings["max_model_len"]) - 1
    count = -(-int(settings["kv_blocks"]) * int(settings["block_tokens"]) // length)
    assert first.prefixes is not None
    return Requests(
        np.concatenate([first.arrival_s, first.arrival_s[-1] + APART_S + 2.0 * np.arange(count)]),
        np.concatenate([first.input_tokens, np.full(count, length)]),
        np.concatenate([first.output_tokens, np.ones(count, np.int64)]),
        prefixes=replace(first.prefixes, node=np.concatenate([first.prefixes.node, np.full(count, -1)])),
    )


def _asked(adapters: list[int], requests: Requests) -> Requests | None:
    """A short request for each of these adapters."""
    if not adapters or requests.adapter is None:
        return None
    few = np.full(len(adapters), 2, np.int64)
    return Requests(2.0 * np.arange(len(adapters), dtype=np.float64), few, few, adapter=np.array(adapters))


def _drafts(arguments: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
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
    made = columns["output_tokens"].astype(np.int64)
    ttft = np.sum([columns[name] for name in STAGES], axis=0) / 1e6
    later = made > 1
    tpot = columns["finish_us"][later] / (made[later] - 1) / 1e6
    inputs = columns["input_tokens"].astype(np.int64)
    adapter = columns["adapter"].astype(np.int64) - 1 if "adapter" in columns else None
    arrivals: Any = columns["arrival_us"] / 1e6
    requests = Requests(arrivals, inputs, made, prefixes=_prefixes(columns), adapter=adapter)
    found = np.maximum(columns["cached_tokens"], 0).sum() / inputs.sum()
    figures = {"ttft_s": float(np.median(ttft)), "tpot_s": float(np.median(tpot)) if later.any() else float("nan")}
    return requests, figures | {"hit_rate": float(found)}


def _prefixes(columns: Mapping[str, Any]) -> Prefixes | None:
    if "group" not in columns or (columns["group"] < 0).all():
        return None
    group = columns["group"].astype(np.int64)
    end = np.zeros(group.max() + 1, np.int64)
    end[group] = columns["prefix_tokens"]
    return Prefixes(group, np.full(end.size, -1), end)


def simulated(load: Measured, replica: tuple[Engine, Deployment]) -> Errors:
    engine, deployment = replica
    limits = replace(engine.limits(deployment), kv_blocks=load.kv_blocks)
    cost = engine.step_cost(deployment, load.requests.longest + 1)
    run = _run(load, cost, limits)
    skip = len(load.before) if load.before is not None else 0
    tpot = run.tpot_s[skip:]
    ours = (
        float(np.nanmedian(tpot)) if np.isfinite(tpot).any() else float("nan"),
        float(np.median(run.ttft_s[skip:])),
        float(run.cached_tokens[skip:].sum() / load.requests.input_tokens.sum()),
    )
    return Errors(
        load=load,
        tpot=ours[0] / load.tpot_s - 1,
        ttft=ours[1] / load.ttft_s - 1,
        hits=100 * (ours[2] - load.hit_rate),
        ours=ours,
    )


def _run(load: Measured, cost: Any, limits: ServingLimits) -> ServingRun:
    requests = load.requests
    if load.before is not None:
        first = load.before
        requests = Requests(
            np.concatenate([first.arrival_s, requests.arrival_s + first.arrival_s[-1] + APART_S]),
            np.concatenate([first.input_tokens, requests.input_tokens]),
            np.concatenate([first.output_tokens, requests.output_tokens]),
            prefixes=_joined(first.prefixes, requests.prefixes),
            adapter=None if requests.adapter is None else np.concatenate([first.adapter, requests.adapter]),
        )
    return simulate(requests, cost, limits)


def _joined(first: Prefixes | None, then: Prefixes | None) -> Prefixes | None:
    """Of two loads with the same groups."""
    if first is None or then is None:
        return None
    size = max(first.end.size, then.end.size)
    end = np.zeros(size, np.int64)
    for one in (first, then):
        end[: one.end.size] = np.maximum(end[: one.end.size], one.end)
    return Prefixes(np.concatenate([first.node, then.node]), np.full(size, -1), end)


def all_errors(folders: list[Path]) -> Iterator[Errors]:
    replicas: dict[Any, tuple[Engine, Deployment]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json.gz")):
            for load in read(path):
                key = (load.model, tuple(sorted(load.settings.items())), load.kv_dtype)
                if key not in replicas:
                    replicas[key] = deploy(
                        model(load.model), parse_pool("H200"), dtype="bf16", kv_dtype=load.kv_dtype or None,
                        settings=dict(load.settings),
                    )  # fmt: skip
                yield simulated(load, replicas[key])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+", help="where the measurements are")
    found: dict[str, list[Errors]] = {}
    for errors in all_errors(parser.parse_args().folder):
        print(errors.line(), flush=True)
        found.setdefault(errors.load.engine, []).append(errors)
    found["all"] = [one for each in found.values() for one in each]
    for name, some in found.items():
        print(
            f"{name}: mean error of TPOT p50 {np.nanmean([abs(one.tpot) for one in some]):.1%}, "
            f"TTFT p50 {np.mean([abs(one.ttft) for one in some]):.1%}, "
            f"found {np.mean([abs(one.hits) for one in some]):.1f} points"
        )


if __name__ == "__main__":
    main()
