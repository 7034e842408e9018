"""vLLM's options under load, each beside the same engine without it: `python -m tools.feature_loads first OUT`.

Needs a GPU and vLLM; a batch takes two minutes to start and five to measure. Starts the engines of a batch at once,
with dummy weights and as `vllm serve` does (the asynchronous front end, the engine core in a process of its own), and
measures them in turn:

first   base        prefix caching: prompts that share 30 and 80% of their tokens, the first again with nothing shared,
                    and prefixes that together exceed the KV cache
        lora-8      32 adapters of rank 16 on 8 slots
        lora-4      4 adapters on 4 slots, and requests without an adapter beside none
second  ngram-off   prompts of repeated patterns, without speculation
        ngram       the same with n-gram drafts of 3 tokens, all requests greedy or half of them
        fp8-kv      the KV cache in fp8
        offload     the prefixes that exceed the KV cache, with blocks kept in host memory
third to fifth      the same options on models that no fit has seen, with other shares of shared prompts and other rates
host                adapters and drafts again, with what the worker's host takes for each step (tools/host_times.py)

`base` also has the loads without any option that `lora` and `fp8-kv` are compared with: static batches of 1,024 tokens
in and 128 out, and Poisson arrivals. Loads of one name have the same arrivals, lengths and prompts on every engine of a
model. A burst of the same requests comes before a load whose rate is a share of the saturation rate.

A request has what tools/server_loads.py records, its prefix group and prefix tokens, adapter, whether it is greedy, how
many of its tokens were cached (on the GPU: local, elsewhere: external) and in how many pieces its output came. A step
also has the tokens it made, cached prompt tokens, the prefix cache's queries and hits (and the connector's), KV usage
in 1/10,000, drafts, drafted and accepted tokens. OUT gets ENGINE.json.gz as its loads end, NVML's samples
(power.csv.gz) and the engines' own output (logs.tar.gz). A load that fails is noted, and the next one goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gzip
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.power_samples import Card, sampled
from tools.server_loads import HZ, MAX_MODEL_LEN, core_cpu_s, end_engine

from gnomon.calibrate.server_loads import request_columns
from gnomon.engines.replay import MeasuredRun
from gnomon.engines.vllm.runner import VllmRunner, versions
from gnomon.load import config_of
from gnomon.spec import Requests
from tools import host_times

UNSEEN, UNSEEN_FIRST_RUNNER = "mistral-7b", "granite-3.3-8b"
"""Of the batches whose loads nothing was fitted to and nobody had seen when their model was made."""
DENSE, OTHER = "qwen3-8b", "glm-4-9b-0414"
"""OTHER runs on vLLM's first model runner with and without n-gram drafts, so that the two differ in nothing else."""
FREE = 0.03
"""Share of the GPU's memory that must be free when an engine starts; the size of its KV cache is given."""
COUNT, BURST = 410, 160
PLAIN_PER_S = 11.0
"""A bit more than half of what an 8B model sustains on an H200 at 1,024 tokens in and 256 out."""
PLAIN = (1024, 256)
STATIC = (1024, 128)
SHARE = 0.6
"""Of the saturation rate."""
OVER_GROUPS, OVER_PER_S = 80, 9.0
"""Prefixes of 2,560 tokens that 21 GiB of KV cache cannot all hold and 32 GiB of host memory can."""
RANK = 16
START_S = 240.0
DRAFTS = {"method": "ngram_gpu", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrompts:
    """Prompts of groups: `share` of about `tokens` is the group's prefix. Less is found in the cache, since the first
    request of a group finds none."""

    share: float
    groups: int = 16
    tokens: int = 2048


SHARED = {"shared-30": SharedPrompts(share=0.32), "shared-80": SharedPrompts(share=0.84)}
OTHER_SHARED = {
    "shared-50": SharedPrompts(share=0.55, groups=40, tokens=1200),
    "shared-70": SharedPrompts(share=0.75, groups=24, tokens=5000),
}
"""For a model that no fit has seen: more groups, shorter and longer prompts."""
CHECK_SHARED = {
    "shared-20": SharedPrompts(share=0.22, groups=60, tokens=1600),
    "shared-60": SharedPrompts(share=0.65, groups=12, tokens=3000),
}
"""For another one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A load with its prompts, adapters and ways of sampling."""

    name: str
    requests: Requests
    prompts: Sequence[Sequence[int]]
    group: Ints | None = None
    prefix_tokens: Ints | None = None
    adapter: Ints | None = None
    """From 1 on; 0 is none."""
    greedy: Ints | None = None
    about: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = True
    """Whether cached prefixes are forgotten before."""

    def columns(self) -> dict[str, Any]:
        given = {"group": self.group, "prefix_tokens": self.prefix_tokens, "adapter": self.adapter}
        found = given | {"greedy": self.greedy}
        return {name: values.tolist() for name, values in found.items() if values is not None}


class Maker:
    """Loads for one model, the same ones each time."""

    def __init__(self, vocabulary: int, scale: float = 1.0) -> None:
        self._vocabulary, self._scale = vocabulary, scale

    def _draw(self, name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    def _tokens(self, draw: np.random.Generator, count: int) -> list[int]:
        return [int(token) for token in draw.integers(10, self._vocabulary - 10, count)]

    def _arrivals(self, name: str, rate_per_s: float, count: int) -> NDArray[np.float64]:
        """Poisson arrivals at a rate; all at once where it is 0."""
        count = max(1, round(count * self._scale))
        if not rate_per_s:
            return np.zeros(count)
        times = np.cumsum(self._draw(f"{name} arrivals").exponential(1 / rate_per_s, count))
        return np.asarray(times - times[0])

    def plain(
        self,
        name: str,
        rate_per_s: float,
        count: int,
        lengths: tuple[int, int] = PLAIN,
        *,
        adapters: int = 0,
        patterns: bool = False,
        greedy: float = 0.0,
    ) -> Work:
        """Requests of one length that share nothing.

        adapters: how many are asked for, each as often as the others.
        patterns: whether a prompt is a few tokens over and over.
        greedy:   share of the requests that take the likeliest token each time.
        """
        arrivals = self._arrivals(name, rate_per_s, count)
        draw = self._draw(name)
        prompts = []
        for _ in arrivals:
            length = int(draw.integers(24, 65)) if patterns else lengths[0]
            tokens = self._tokens(draw, length)
            prompts.append((tokens * (lengths[0] // length + 1))[: lengths[0]])
        each = len(arrivals)
        requests = Requests(arrivals, np.full(each, lengths[0], np.int64), np.full(each, lengths[1], np.int64))
        return Work(
            name=name,
            requests=requests,
            prompts=prompts,
            adapter=draw.permutation(np.arange(each) % adapters) + 1 if adapters else None,
            greedy=(draw.random(each) < greedy).astype(np.int64),
            about={
                "rate_per_s": rate_per_s, "count": each, "adapters": adapters, "patterns": int(patterns),
                "greedy_share": greedy,
            },
        )  # fmt: skip

    def static(self, count: int, **options: Any) -> Work:
        return self.plain("static", 0.0, count, STATIC, **options)

    def shared(
        self,
        name: str,
        mix: SharedPrompts,
        rate_per_s: float,
        count: int,
        *,
        apart: bool = False,
    ) -> Work:
        """Prompts of which a share is the prefix of their group; some groups are asked for more.

        apart: the same lengths, but no prompt has a token in common with another.
        """
        share, groups, tokens = mix.share, mix.groups, mix.tokens
        arrivals = self._arrivals(name, rate_per_s, count)
        draw = self._draw(name)
        each = len(arrivals)
        weights = 1 / np.arange(1, groups + 1) ** 0.7
        group = draw.choice(groups, each, p=weights / weights.sum())
        mean = tokens * share
        lengths = draw.integers(round(0.7 * mean), round(1.3 * mean), groups)
        prefixes = [self._tokens(draw, int(length)) for length in lengths]
        own = draw.integers(round(0.5 * (tokens - mean)), round(1.5 * (tokens - mean)), each)
        outputs = draw.integers(64, 193, each)
        prompts = []
        for index, length in zip(group, own, strict=True):
            prefix = self._tokens(draw, int(lengths[index]))
            prompts.append((prefix if apart else prefixes[index]) + self._tokens(draw, int(length)))
        inputs = np.array([len(prompt) for prompt in prompts], np.int64)
        return Work(
            name=f"{name}-apart" if apart else name,
            requests=Requests(arrivals, inputs, outputs.astype(np.int64)),
            prompts=prompts,
            group=np.full(each, -1) if apart else group,
            prefix_tokens=np.zeros(each, np.int64) if apart else lengths[group],
            about={"rate_per_s": rate_per_s, "share": share, "count": each},
        )

    def over(self, fill: bool) -> Work:
        """Prefixes of 2,560 tokens that together exceed the KV cache: each once (fill), then any of them."""
        arrivals = np.zeros(OVER_GROUPS) if fill else self._arrivals("over", OVER_PER_S, COUNT)
        draw = self._draw("prefixes")
        prefixes = [self._tokens(draw, 2560) for _ in range(OVER_GROUPS)]
        draw = self._draw("over-fill" if fill else "over")
        each = len(arrivals)
        group = np.arange(OVER_GROUPS) if fill else draw.integers(0, OVER_GROUPS, each)
        own = draw.integers(64, 321, each)
        prompts = [prefixes[i] + self._tokens(draw, int(n)) for i, n in zip(group, own, strict=True)]
        return Work(
            name="over-fill" if fill else "over",
            requests=Requests(arrivals, own + 2560, np.full(each, 8 if fill else 64, np.int64)),
            prompts=prompts,
            group=group,
            prefix_tokens=np.full(each, 2560),
            about={"rate_per_s": 0.0 if fill else OVER_PER_S, "count": each},
            fresh=fill,
        )

    def cold(self, adapters: int) -> Work:
        """A short request for each adapter, one after another, none of which was loaded before."""
        draw = self._draw("cold")
        prompts = [self._tokens(draw, 64) for _ in range(adapters)]
        lengths = (np.full(adapters, 64, np.int64), np.full(adapters, 4, np.int64))
        requests = Requests(np.arange(adapters) * np.float64(0.4), *lengths)
        return Work(name="cold", requests=requests, prompts=prompts, adapter=np.arange(adapters) + 1)


class Steps:
    """Outputs of the engine core as they come in, noted on their way to the front end."""

    COLUMNS = (
        "core_us", "received_us", "outputs", "prompts", "prompt_tokens", "running", "waiting", "tokens", "local_cached",
        "external_cached", "kv_usage", "queries", "hits", "connector_queries", "connector_hits", "drafts", "drafted",
        "accepted",
    )  # fmt: skip

    def __init__(self, core: Any) -> None:
        self.rows: list[tuple[float, ...]] = []
        self.cached: dict[str, tuple[int, int]] = {}
        """Local and external cached tokens of a request."""
        self.transfers: list[tuple[int, str]] = []
        self.accepted_at: Ints = np.zeros(0, np.int64)
        self._get = core.get_output_async
        core.get_output_async = self._noted

    def clear(self) -> None:
        self.rows.clear()
        self.cached.clear()
        self.transfers.clear()
        self.accepted_at = np.zeros(0, np.int64)

    async def _noted(self) -> Any:
        got = await self._get()
        now = time.monotonic()
        try:
            self._note(got, now)
        except Exception:
            traceback.print_exc()
        return got

    def _note(self, got: Any, now: float) -> None:
        prefills = []
        for one in got.outputs:
            if one.prefill_stats is not None:
                prefills.append(one.prefill_stats)
                found = (one.prefill_stats.num_local_cached_tokens, one.prefill_stats.num_external_cached_tokens)
                self.cached[one.request_id.split("-")[0]] = found
        stats = got.scheduler_stats
        made = sum(len(one.new_token_ids) for one in got.outputs)
        cached = [sum(values) for values in zip(*(self._cached(prefill) for prefill in prefills), strict=True)] or [
            0,
            0,
        ]
        computed = sum(prefill.num_computed_tokens for prefill in prefills)
        head = (got.timestamp, now, len(got.outputs), len(prefills), computed)
        if stats is None:
            self.rows.append((*head, -1, -1, made, *cached, -1, *([0] * 7)))
            return
        cache, other, drafts = stats.prefix_cache_stats, stats.connector_prefix_cache_stats, stats.spec_decoding_stats
        counted = (cache.queries, cache.hits) if cache else (0, 0)
        connected = (other.queries, other.hits) if other else (0, 0)
        drafted = (drafts.num_drafts, drafts.num_draft_tokens, drafts.num_accepted_tokens) if drafts else (0, 0, 0)
        if drafts:
            found_at = np.array(drafts.num_accepted_tokens_per_pos)
            self.accepted_at = self.accepted_at + found_at if len(self.accepted_at) else found_at
        if stats.kv_connector_stats:
            self.transfers.append((len(self.rows), str(stats.kv_connector_stats)))
        running = (stats.num_running_reqs, stats.num_waiting_reqs + stats.num_skipped_waiting_reqs)
        usage = round(1e4 * stats.kv_cache_usage)
        self.rows.append((*head, *running, made, *cached, usage, *counted, *connected, *drafted))

    def _cached(self, prefill: Any) -> tuple[int, int]:
        return prefill.num_local_cached_tokens, prefill.num_external_cached_tokens

    def columns(self, begin_s: float) -> dict[str, list[int]]:
        """Ends of steps as differences, the first from `begin_s`; what the front end had them after."""
        if not self.rows:
            return {name: [] for name in self.COLUMNS}
        table = np.array(self.rows)
        core, received = table[:, 0] - begin_s, table[:, 1] - table[:, 0]
        whole = [np.diff(np.round(core * 1e6), prepend=0.0), np.round(received * 1e6), *table[:, 2:].T]
        return {name: column.astype(int).tolist() for name, column in zip(self.COLUMNS, whole, strict=True)}


@dataclass(slots=True)
class _Seen:
    """What came back of a request."""

    name: str = ""
    queued: float = float("nan")
    scheduled: float = float("nan")
    made: float = float("nan")
    first: float = float("nan")
    last: float = float("nan")
    tokens: int = 0
    pieces: int = 0
    cached: int = -1
    error: str = ""


class FeatureRunner(VllmRunner):
    """An engine whose requests may have adapters and given prompts."""

    adapters: Path | None = None

    def forget(self) -> None:
        """Drop cached prefixes."""
        self._loop.run_until_complete(self._engine.reset_prefix_cache())

    def config(self) -> Any:
        return self._engine.vllm_config

    def send(self, work: Work, limit_s: float) -> tuple[float, list[_Seen]]:
        """When the load began on the monotonic clock, and what came back of each request."""
        return self._loop.run_until_complete(self._send(work, limit_s))

    async def _send(self, work: Work, limit_s: float) -> tuple[float, list[_Seen]]:
        seen = [_Seen() for _ in work.prompts]
        epoch = time.monotonic() + 0.1
        tasks = [asyncio.ensure_future(self._ask(work, i, epoch, one)) for i, one in enumerate(seen)]
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return epoch, seen

    async def _ask(self, work: Work, index: int, epoch: float, seen: _Seen) -> None:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        await asyncio.sleep(max(0.0, epoch + float(work.requests.arrival_s[index]) - time.monotonic()))
        greedy = work.greedy is not None and bool(work.greedy[index])
        sampling = SamplingParams(
            max_tokens=int(work.requests.output_tokens[index]),
            ignore_eos=True,
            detokenize=False,
            temperature=0.0 if greedy else 1.0,
            output_kind=RequestOutputKind.DELTA,
        )
        adapter = int(work.adapter[index]) if work.adapter is not None else 0
        lora = LoRARequest(f"a{adapter}", adapter, str(adapter_path(self.adapters, adapter))) if adapter else None
        self._serial += 1
        seen.name = f"g{self._serial}"
        prompt = {"prompt_token_ids": list(work.prompts[index])}
        try:
            async for answer in self._engine.generate(prompt, sampling, seen.name, lora_request=lora):
                now = time.monotonic()
                made = sum(len(part.token_ids) for part in answer.outputs)
                if made and not seen.tokens:
                    seen.first = now
                    names = ("queued_ts", "scheduled_ts", "first_token_ts")
                    times = (getattr(answer.metrics, name, 0.0) or float("nan") for name in names)
                    seen.queued, seen.scheduled, seen.made = times
                if answer.num_cached_tokens is not None:
                    seen.cached = max(seen.cached, int(answer.num_cached_tokens))
                seen.tokens += made
                seen.pieces += bool(made)
                seen.last = now
        except Exception as reason:
            seen.error = f"{type(reason).__name__}: {reason}"[:200]


def adapter_path(folder: Path | None, adapter: int) -> Path:
    if folder is None:
        raise ValueError("this engine has no adapters")
    return folder / f"a{adapter}"


def write_adapters(folder: Path, config: Mapping[str, Any], count: int) -> None:
    """Random adapters of every product of a decoder's layers, in PEFT's format; they share one file of weights."""
    import torch
    from safetensors.torch import save_file

    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    head = int(config.get("head_dim") or hidden // int(config["num_attention_heads"]))
    heads, keys = head * int(config["num_attention_heads"]), head * int(config["num_key_value_heads"])
    shapes = {
        "self_attn.q_proj": (hidden, heads), "self_attn.k_proj": (hidden, keys), "self_attn.v_proj": (hidden, keys),
        "self_attn.o_proj": (heads, hidden), "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }  # fmt: skip
    weights = {}
    for layer in range(int(config["num_hidden_layers"])):
        for name, (before, after) in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            weights[f"{stem}.lora_A.weight"] = (0.01 * torch.randn(RANK, before)).bfloat16()
            weights[f"{stem}.lora_B.weight"] = (0.01 * torch.randn(after, RANK)).bfloat16()
    about = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "bias": "none",
        "target_modules": [name.split(".")[1] for name in shapes],
    }  # fmt: skip
    for adapter in range(1, count + 1):
        into = adapter_path(folder, adapter)
        into.mkdir(parents=True)
        (into / "adapter_config.json").write_text(json.dumps(about))
        path = into / "adapter_model.safetensors"
        if adapter == 1:
            save_file(weights, path)
        else:
            os.link(adapter_path(folder, 1) / path.name, path)


class Bench:
    """One engine, and what was measured on it so far, kept on disk."""

    def __init__(self, runner: FeatureRunner, maker: Maker, facts: dict[str, Any], out: Path, until_s: float) -> None:
        self._runner, self.make, self._out, self._until_s = runner, maker, out, until_s
        self.host: Path | None = None
        """Where the worker notes what its host takes for each step."""
        self._found = facts | {"loads": []}
        self._steps = Steps(runner.core)
        self._keep()

    def _keep(self) -> None:
        with gzip.open(self._out, "wt", compresslevel=5) as file:
            json.dump(self._found, file, separators=(",", ":"))

    def warm(self, **options: Any) -> None:
        """Have kernels compiled that the loads would else wait for."""
        for count, lengths in ((32, (512, 32)), (256, (128, 8)), (8, (2048, 8))):
            self._runner.send(self.make.plain("warm", 0.0, count, lengths, greedy=0.5, **options), 60.0)

    def run(self, work: Work) -> float:
        """Requests per second that the load finished with; 0 where it did not run."""
        span = float(np.max(work.requests.arrival_s))
        left = self._until_s - time.monotonic() - span
        if left < 2.0:
            print(f"{work.name}: out of time", file=sys.stderr, flush=True)
            self._found["loads"].append({"name": work.name, **work.about, "error": "out of time"})
            self._keep()
            return 0.0
        try:
            if work.fresh:
                self._runner.forget()
            row = self._measured(work, span + min(left, 60.0))
        except Exception as reason:
            traceback.print_exc()
            self._found["loads"].append({"name": work.name, **work.about, "error": str(reason)[:300]})
            self._keep()
            return 0.0
        self._found["loads"].append(row)
        self._keep()
        return float(row["requests"] / row["wall_s"])

    def _measured(self, work: Work, limit_s: float) -> dict[str, Any]:
        self._steps.clear()
        core, front = core_cpu_s(), time.process_time()
        begin, seen = self._runner.send(work, limit_s)
        front, core = time.process_time() - front, core_cpu_s() - core
        run = MeasuredRun(
            requests=work.requests,
            first_token_s=np.array([one.first for one in seen]) - begin,
            finish_s=np.array([one.last for one in seen]) - begin,
            scheduled_s=np.array([one.scheduled for one in seen]) - begin,
            queued_s=np.array([one.queued for one in seen]) - begin,
            made_s=np.array([one.made for one in seen]) - begin,
        )
        cached = [self._steps.cached.get(one.name, (-1, -1)) for one in seen]
        more = {
            "cached_tokens": [one.cached for one in seen], "local_cached": [local for local, _ in cached],
            "external_cached": [external for _, external in cached], "pieces": [one.pieces for one in seen],
        }  # fmt: skip
        wrong = [i for i, one in enumerate(seen) if one.tokens != work.requests.output_tokens[i]]
        errors = sorted({one.error for one in seen if one.error})
        if not np.any(np.isfinite(run.finish_s)):
            raise RuntimeError(f"no request was answered: {errors}")
        steps = self._steps.columns(begin)
        row = {
            "name": work.name, **work.about, "requests": len(seen), "begin_s": round(begin, 4),
            "wall_s": round(float(np.nanmax(run.finish_s)), 4), "front_cpu_s": round(front, 3),
            "core_cpu_s": round(core, 3), "incomplete": wrong, "errors": errors,
            "accepted_at": self._steps.accepted_at.tolist(), "transfers": self._steps.transfers[:],
            "each": request_columns(run) | work.columns() | more, "steps": steps,
        }  # fmt: skip
        if self.host is not None:
            time.sleep(2 * host_times.FLUSH_S)
            row["host"] = host_times.rows(self.host, begin)
        print(summary(row, run), file=sys.stderr, flush=True)
        return row


def summary(row: Mapping[str, Any], run: MeasuredRun) -> str:
    steps, each = row["steps"], row["each"]
    first, late = np.nanquantile(run.ttft_s, (0.5, 0.9)) * 1e3
    tokens = max(1, int(run.requests.input_tokens.sum()))
    hits = sum(max(0, cached) for cached in each["cached_tokens"]) / tokens
    return (
        f"{row['name']} {row.get('rate_per_s', 0):.3g}/s: {row['requests']} requests in {row['wall_s']:.2f} s "
        f"({row['requests'] / row['wall_s']:.2f}/s), TTFT p50 {first:.1f} p90 {late:.1f} ms, "
        f"TPOT p50 {np.nanmedian(run.tpot_s) * 1e3:.2f} ms, {len(steps['core_us'])} steps, cached {hits:.1%}, "
        f"external {sum(steps['external_cached'])}, drafted {sum(steps['drafted'])} accepted {sum(steps['accepted'])}, "
        f"incomplete {len(row['incomplete'])} {row['errors']}"
    )


def statics(bench: Bench, counts: Sequence[int] = (1, 8, 32, 128), **options: Any) -> None:
    for count in counts:
        bench.run(bench.make.static(count, **options))


def at_share(bench: Bench, make: Callable[[str, float, int], Work], name: str, most: float = 1e9) -> float:
    """A burst, and Poisson arrivals at a share of the rate it finished with; that share, or `most` where it is less."""
    saturation = bench.run(make(f"{name}-burst", 0.0, BURST))
    rate = min(most, round(SHARE * saturation, 2)) if saturation else min(most, PLAIN_PER_S)
    bench.run(make(name, rate, COUNT))
    return rate


def base(bench: Bench) -> None:
    for name, mix in SHARED.items():
        rate = at_share(bench, lambda n, r, c, m=mix: bench.make.shared(n, m, r, c), name)  # type: ignore[misc]
        if name == "shared-30":
            bench.run(bench.make.shared(name, mix, rate, COUNT, apart=True))
    statics(bench)
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT))
    bench.run(bench.make.over(fill=True))
    bench.run(bench.make.over(fill=False))
    bench.run(bench.make.plain("plain-burst", 0.0, BURST))


def lora_many(bench: Bench) -> None:
    bench.run(bench.make.cold(32))
    bench.warm(adapters=8)
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c, adapters=32), "plain", PLAIN_PER_S)
    statics(bench, (1, 8, 32), adapters=8)


def lora_few(bench: Bench) -> None:
    bench.run(bench.make.cold(4))
    bench.warm(adapters=4)
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT, adapters=4))
    statics(bench, adapters=4)
    statics(bench, (8, 128))


def ngram_off(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-half", PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))


def ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, patterns=True, greedy=1.0)
    statics(bench)
    bench.run(bench.make.plain("patterns-half", PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))
    bench.run(bench.make.plain("patterns-greedy", PLAIN_PER_S, COUNT, patterns=True, greedy=1.0))


def fp8_kv(bench: Bench) -> None:
    bench.run(bench.make.plain("plain", PLAIN_PER_S, COUNT))
    statics(bench)


def offload(bench: Bench) -> None:
    bench.run(bench.make.over(fill=True))
    bench.run(bench.make.over(fill=False))
    statics(bench, (8, 128))


def other_base(bench: Bench, mixes: Mapping[str, SharedPrompts] = OTHER_SHARED) -> None:
    for name, mix in mixes.items():
        at_share(bench, lambda n, r, c, m=mix: bench.make.shared(n, m, r, c), name)  # type: ignore[misc]
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c), "plain")


def other_lora(bench: Bench, adapters: int, slots: int) -> None:
    bench.run(bench.make.cold(adapters))
    bench.warm(adapters=slots)
    statics(bench, (8, 64), adapters=slots)
    at_share(bench, lambda n, r, c: bench.make.plain(n, r, c, adapters=adapters), "plain")
    bench.run(bench.make.plain("plain-slow", 4.0, COUNT // 2, adapters=adapters))


def other_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8, 64), patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-greedy", PLAIN_PER_S, COUNT, patterns=True, greedy=1.0))
    bench.run(bench.make.plain("patterns-half", 0.6 * PLAIN_PER_S, COUNT, patterns=True, greedy=0.5))


def check_lora(bench: Bench) -> None:
    bench.warm(adapters=4)
    statics(bench, (8,), adapters=4)
    bench.run(bench.make.plain("plain", 10.0, COUNT, (700, 200), adapters=4))


def check_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8,), patterns=True, greedy=1.0)
    bench.run(bench.make.plain("patterns-most", 9.0, COUNT, patterns=True, greedy=0.8))


def host_base(bench: Bench, adapters: int = 0) -> None:
    bench.warm(adapters=adapters)
    statics(bench, (1, 32), adapters=adapters)
    bench.run(bench.make.plain("plain", 8.0, COUNT // 2, adapters=adapters))
    bench.run(bench.make.plain("short", 20.0, COUNT // 2, (256, 64), adapters=adapters))
    bench.run(bench.make.plain("long", 4.0, COUNT // 8, (4096, 64), adapters=adapters))


def host_adapters(bench: Bench) -> None:
    bench.run(bench.make.cold(32))
    bench.warm(adapters=8)
    statics(bench, (8, 32), adapters=8)
    bench.run(bench.make.plain("plain", 5.0, COUNT // 2, adapters=32))


def host_ngram(bench: Bench) -> None:
    bench.warm(patterns=True)
    statics(bench, (8, 32), patterns=True, greedy=1.0)
    statics(bench, (8, 32))
    bench.run(bench.make.plain("patterns-half", 8.0, COUNT // 2, patterns=True, greedy=0.5))
    bench.run(bench.make.plain("patterns-greedy", 10.0, COUNT // 2, patterns=True, greedy=1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    model: str
    kv_gib: float
    arguments: Mapping[str, Any]
    loads: Callable[[Bench], None]
    takes_s: float
    """About how long its loads take; what is left of the time is shared out by it."""
    adapters: int = 0
    host_times: bool = False
    """Whether the worker notes what its host takes for each step (tools/host_times.py)."""


def _lora(slots: int, adapters: int) -> dict[str, Any]:
    return {"enable_lora": True, "max_loras": slots, "max_lora_rank": RANK, "max_cpu_loras": adapters}


ENGINES = {
    "base": Engine(model=DENSE, kv_gib=21.0, arguments={}, loads=base, takes_s=230.0),
    "lora-8": Engine(model=DENSE, kv_gib=14.0, arguments=_lora(8, 32), loads=lora_many, takes_s=95.0, adapters=32),
    "lora-4": Engine(model=DENSE, kv_gib=21.0, arguments=_lora(4, 4), loads=lora_few, takes_s=70.0, adapters=4),
    "ngram-off": Engine(model=OTHER, kv_gib=6.5, arguments={}, loads=ngram_off, takes_s=60.0),
    "ngram": Engine(model=OTHER, kv_gib=6.5, arguments={"speculative_config": DRAFTS}, loads=ngram, takes_s=110.0),
    "fp8-kv": Engine(model=DENSE, kv_gib=10.5, arguments={"kv_cache_dtype": "fp8"}, loads=fp8_kv, takes_s=60.0),
    "offload": Engine(
        model=DENSE,
        kv_gib=21.0,
        arguments={"kv_offloading_size": 32.0, "kv_offloading_backend": "native"},
        loads=offload,
        takes_s=70.0,
    ),
}
ENGINES |= {
    "other-base": Engine(model=UNSEEN, kv_gib=21.0, arguments={}, loads=other_base, takes_s=150.0),
    "other-lora-4": Engine(
        model=UNSEEN,
        kv_gib=21.0,
        arguments=_lora(4, 4),
        loads=lambda bench: other_lora(bench, 4, 4),
        takes_s=125.0,
        adapters=4,
    ),
    "other-lora-8": Engine(
        model=UNSEEN,
        kv_gib=14.0,
        arguments=_lora(8, 32),
        loads=lambda bench: other_lora(bench, 32, 8),
        takes_s=140.0,
        adapters=32,
    ),
    "other-ngram": replace(ENGINES["ngram"], model=UNSEEN_FIRST_RUNNER, kv_gib=14.0, loads=other_ngram, takes_s=125.0),
    "other-fp8-kv": replace(ENGINES["fp8-kv"], model=UNSEEN),
    "other-offload": replace(ENGINES["offload"], model=UNSEEN, loads=offload, takes_s=85.0),
}
ENGINES |= {
    "host-base": Engine(model=DENSE, kv_gib=10.0, arguments={}, loads=host_base, takes_s=85.0, host_times=True),
    "host-lora-4": Engine(
        model=DENSE,
        kv_gib=10.0,
        arguments=_lora(4, 4),
        loads=lambda bench: host_base(bench, 4),
        takes_s=100.0,
        adapters=4,
        host_times=True,
    ),
    "host-lora-8": Engine(
        model=DENSE,
        kv_gib=10.0,
        arguments=_lora(8, 32),
        loads=host_adapters,
        takes_s=85.0,
        adapters=32,
        host_times=True,
    ),
    "host-ngram": replace(ENGINES["ngram"], kv_gib=6.5, loads=host_ngram, takes_s=110.0, host_times=True),
}
ENGINES |= {
    "check-base": replace(
        ENGINES["other-base"],
        model="qwen3-14b",
        loads=lambda bench: other_base(bench, CHECK_SHARED),
        takes_s=165.0,
        host_times=True,
    ),
    "check-lora-4": replace(
        ENGINES["other-lora-4"], model="qwen3-4b", kv_gib=14.0, takes_s=80.0, loads=check_lora, host_times=True
    ),
    "check-ngram": replace(
        ENGINES["other-ngram"], model="qwen2.5-7b", kv_gib=10.0, takes_s=75.0, loads=check_ngram, host_times=True
    ),
}
BATCHES = {
    "first": ("base", "lora-8", "lora-4"),
    "second": ("ngram-off", "ngram", "fp8-kv", "offload"),
    "third": ("other-base", "other-lora-4", "other-lora-8"),
    "fourth": ("other-ngram", "other-fp8-kv", "other-offload"),
    "fifth": ("check-base", "check-lora-4", "check-ngram"),
    "host": ("host-base", "host-lora-4", "host-lora-8", "host-ngram"),
}


def measure(name: str, out: Path, hold: Path, model: str | None, scale: float) -> None:
    """Start one engine, say so, wait to be let on, and run its loads until the time that it is then told."""
    engine = ENGINES[name]
    config = config_of(model or engine.model)
    given = {
        "max_model_len": MAX_MODEL_LEN, "dtype": "bfloat16", "enable_prefix_caching": True,
        "kv_cache_memory_bytes": int(engine.kv_gib * 2**30), "gpu_memory_utilization": FREE,
    }  # fmt: skip
    if scale < 1:
        given |= {"kv_cache_memory_bytes": 2**27, "max_model_len": 4096}
    given |= engine.arguments
    with host_times.installed(hold.with_suffix(".steps")) if engine.host_times else nullcontext():
        runner = FeatureRunner(config, copy.deepcopy(given))
    settings = runner.settings()
    facts = {
        "schema": "gnomon.feature-loads/1", "engine": "vllm", "date": time.strftime("%Y-%m-%d"), "name": name,
        "versions": _versions(), "host": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "limits_w": _limits_w(), "model": engine.model, "arguments": given,
        "adapters": engine.adapters, "settings": settings | _chosen(runner.config()),
    }  # fmt: skip
    print(f"{name} started in {runner.startup_s:.0f} s: {facts['settings']}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="gnomon-adapters-") as folder:
        if engine.adapters:
            runner.adapters = Path(folder)
            write_adapters(runner.adapters, config, engine.adapters)
        hold.with_suffix(".ready").touch()
        going = hold.with_suffix(".go")
        while not going.exists():
            time.sleep(0.1)
        bench = Bench(runner, Maker(int(config["vocab_size"]), scale), facts, out, float(going.read_text()))
        bench.host = hold.with_suffix(".steps") if engine.host_times else None
        bench.warm()
        engine.loads(bench)


def _versions() -> dict[str, str]:
    try:
        return versions()
    except Exception:
        return {}


def _limits_w() -> dict[str, float]:
    try:
        return Card().limits_w()
    except Exception:
        return {}


def _chosen(config: Any) -> dict[str, Any]:
    """Settings that the options of this tool bear on, where this version of vLLM has them."""
    lora, drafts, transfer = config.lora_config, config.speculative_config, config.kv_transfer_config
    return {
        "cache_dtype": str(config.cache_config.cache_dtype),
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "max_loras": lora.max_loras if lora else 0,
        "max_cpu_loras": lora.max_cpu_loras if lora else 0,
        "drafts": str(drafts.method) if drafts else "",
        "connector": str(transfer.kv_connector) if transfer else "",
    }


@dataclass(slots=True)
class _Started:
    name: str
    hold: Path
    process: subprocess.Popen[bytes]

    def ready(self) -> bool:
        return self.hold.with_suffix(".ready").exists()

    def ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def engines(names: Sequence[str], out: Path, logs: Path, more: Sequence[str]) -> Iterator[list[_Started]]:
    """Engines that start at once, each the first of a process group that ends with the block."""
    started = []
    try:
        for name in names:
            hold = logs / name
            command = [sys.executable, "-m", "tools.feature_loads", name, str(out / f"{name}.json.gz")]
            with (logs / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*command, "--hold", str(hold), *more], stdout=log, stderr=log, start_new_session=True
                )
            started.append(_Started(name, hold, process))
        yield started
    finally:
        for one in started:
            _kill(one)


def _kill(one: _Started) -> None:
    try:
        os.killpg(one.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    one.process.wait()


def run_batch(names: Sequence[str], out: Path, budget_s: float, more: Sequence[str], power: bool) -> None:
    """Start engines at once, measure them in turn, and end within the time."""
    begin = time.monotonic()
    end = begin + budget_s
    out.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(prefix="gnomon-loads-"))
    samples = sampled(logs / "power.csv", HZ) if power else nullcontext()
    try:
        with engines(names, out, logs, more) as started, samples:
            limit = min(begin + START_S, end)
            while time.monotonic() < limit and not all(one.ready() or one.ended() for one in started):
                time.sleep(0.2)
            print(f"started after {time.monotonic() - begin:.0f} s: {[one.name for one in started if one.ready()]}")
            for place, one in enumerate(started):
                later = [other for other in started[place + 1 :] if not other.ended()]
                _measured_one(one, end - sum(ENGINES[other.name].takes_s for other in later), end)
                print(f"{one.name}: done {time.monotonic() - begin:.0f} s after the start", flush=True)
                print("\n".join(_told(logs / f"{one.name}.log")), flush=True)
    finally:
        _pack(logs, out)


def _measured_one(one: _Started, until: float, end: float) -> None:
    """Let an engine on, and wait for its end; one that is late to end is ended."""
    while not one.ready() and not one.ended() and time.monotonic() < until - 30:
        time.sleep(0.2)
    if one.ready():
        going = one.hold.with_suffix(".part")
        going.write_text(str(until))
        going.rename(one.hold.with_suffix(".go"))
        while not one.ended() and time.monotonic() < min(until + 20, end):
            time.sleep(0.2)
    _kill(one)


def _told(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line[:300] for line in lines if " requests in " in line or "started in" in line or "out of time" in line]
    return told if len(told) > 1 else [*told, *(line[:300] for line in lines[-25:])]


def _pack(logs: Path, out: Path) -> None:
    power = logs / "power.csv"
    if power.exists():
        with power.open("rb") as file, gzip.open(out / "power.csv.gz", "wb") as packed:
            shutil.copyfileobj(file, packed)
    with tarfile.open(out / "logs.tar.gz", "w:gz") as packed_logs:
        for log in sorted(logs.glob("*.log")):
            packed_logs.add(log, log.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*BATCHES, *ENGINES], help="a batch, or one of its engines")
    parser.add_argument("out", type=Path, help="folder of the measurements (of an engine: its file)")
    parser.add_argument("--only", help="engines of the batch, in order")
    parser.add_argument("--budget", type=float, default=550.0, help="seconds in all, the start counted in")
    parser.add_argument("--model", help="another model: to try this out")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests, below 1 to try this out")
    parser.add_argument("--no-power", action="store_true", help="without NVML's samples")
    parser.add_argument("--hold", type=Path, help="of an engine: touch HOLD.ready once started, go on with HOLD.go")
    asked = parser.parse_args()
    if asked.what in BATCHES:
        more = ["--scale", str(asked.scale), *(["--model", asked.model] if asked.model else [])]
        names = asked.only.split(",") if asked.only else BATCHES[asked.what]
        run_batch(names, asked.out, asked.budget, more, not asked.no_power)
        return
    code = 1
    try:
        measure(asked.what, asked.out, asked.hold or asked.out, asked.model, asked.scale)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        end_engine()
        os._exit(code)


if __name__ == "__main__":
    main()
