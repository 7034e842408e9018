"""An engine's own steps, measured from outside: single prompts, even decode batches, prompts beside decodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gnomon.calibrate.server_loads import Recorded, bursts, rates, together
from gnomon.calibrate.server_rows import server_rows
from gnomon.engines.replay import MeasuredRun, Runner
from gnomon.engines.vllm.runner import VllmRunner
from gnomon.spec import Requests

PROMPTS = (8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8000)
DECODES = ((1, 128), (1, 4096), (2, 512), (4, 512), (8, 512), (8, 4096), (16, 512), (24, 1024), (32, 256), (32, 1024),
           (32, 4096), (48, 512), (64, 256), (64, 1024), (96, 512), (128, 256), (128, 1024), (192, 256), (256, 128),
           (256, 512), (384, 128))  # fmt: skip
BESIDE = ((8, 256), (8, 1024), (32, 128), (32, 512), (32, 2048), (64, 1024), (128, 256), (128, 1024))
STEPS = 48
RATES = (100.0, 200.0, 400.0, 800.0, 1200.0)
"""Requests per second; beyond what the front end sustains at last."""


def prompts(runner: Runner, repeats: int = 4) -> Iterator[dict[str, Any]]:
    """Time to the first token of one prompt on an idle engine."""
    for tokens in PROMPTS:
        runs = [runner.replay(together(1, tokens, 1), seed=i) for i in range(repeats)]
        times = [float(run.ttft_s[0]) for run in runs]
        waits = [float(run.scheduled_s[0]) for run in runs]
        yield {
            "kind": "prompt",
            "tokens": tokens,
            "time_s": float(np.median(times)),
            "least_s": min(times),
            "scheduled_s": float(np.median(waits)),
        }


def decodes(runner: Runner) -> Iterator[dict[str, Any]]:
    """Median time of a step once all sequences decode; their prompts are in before the clock runs."""
    for count, tokens in DECODES:
        run = runner.replay(together(count, tokens, STEPS + 16), keep_tokens=True)
        gaps, context = _steady_gaps(run)
        yield {
            "kind": "decode",
            "sequences": count,
            "context": context,
            "time_s": float(np.median(gaps)),
            "p25_s": float(np.quantile(gaps, 0.25)),
            "p75_s": float(np.quantile(gaps, 0.75)),
        }


def _steady_gaps(run: MeasuredRun) -> tuple[np.ndarray[Any, Any], float]:
    """Gaps of one sequence's tokens while every sequence decodes, and the mean context meanwhile."""
    begin, end = float(np.max(run.first_token_s)), float(np.min(run.finish_s))
    last = np.array(run.tokens_s[int(np.argmax(run.first_token_s))])
    inside = last[(last >= begin) & (last <= end)][1:]
    return np.diff(inside), float(run.requests.input_tokens[0]) + STEPS / 2


def beside_requests(count: int, tokens: int) -> Requests:
    """`count` decodes, and three prompts that come while all of them run."""
    arrivals = np.concatenate([np.zeros(count), [0.7, 0.85, 1.0]])
    inputs = np.concatenate([np.full(count, 256), np.full(3, tokens)]).astype(np.int64)
    outputs = np.concatenate([np.full(count, 700 if count <= 16 else 450), np.full(3, 2)]).astype(np.int64)
    return Requests(arrivals, inputs, outputs)


def beside(runner: Runner) -> Iterator[dict[str, Any]]:
    """The longest gap that a prompt tears into a running decode batch: one mixed step."""
    for count, tokens in BESIDE:
        run = runner.replay(beside_requests(count, tokens), keep_tokens=True)
        gaps = []
        watched = np.array(run.tokens_s[0])
        for i in (count, count + 1, count + 2):
            near = int(np.searchsorted(watched, run.first_token_s[i]))
            gaps.append(float(np.max(np.diff(watched[max(0, near - 5) : near + 5]), initial=0.0)))
        yield {
            "kind": "beside",
            "sequences": count,
            "context": 256 + float(np.median(np.searchsorted(watched, run.first_token_s[count:]))),
            "tokens": tokens,
            "time_s": float(np.median(gaps)),
            "step_s": float(np.median(np.diff(watched[8:]))),
            "ttft_s": float(np.median(run.ttft_s[count:])),
            "scheduled_s": float(np.median(run.scheduled_s[count:] - run.requests.arrival_s[count:])),
        }


def frontend(runner: Runner) -> Iterator[dict[str, Any]]:
    """From the client's call to the scheduler, and from the engine's core to the client, under a steady load."""
    for rate in (5.0, 20.0):
        count = int(4 * rate)
        arrivals = np.arange(count) / rate
        stream = Requests(arrivals, np.full(count, 300, np.int64), np.full(count, 100, np.int64))
        run = runner.replay(stream)
        yield {
            "kind": "frontend",
            "rate_per_s": rate,
            "ingress_s": float(np.median(run.queued_s - arrivals)),
            "egress_s": float(np.median(run.first_token_s - run.made_s)),
        }


def served(runner: VllmRunner, model: str) -> list[dict[str, Any]]:
    """Bursts and rising rates of short requests, which keep front end, core and host busy, as rows."""
    recorded = Recorded(runner)
    runner.replay(together(256, 128, 8))
    loads = [recorded.run(load)[0] for load in (*bursts(), *rates(RATES))]
    return server_rows(model, loads, max(runner.settings()["capture_sizes"], default=0))


def parts(runner: Runner, model: str) -> list[dict[str, Any]]:
    """Prompts, decodes and both together; the first requests only warm the engine up."""
    runner.replay(together(4, 512, 32))
    rows = [*frontend(runner), *prompts(runner), *decodes(runner), *beside(runner)]
    return [{"model": model} | row for row in rows]


def measure(runner: VllmRunner, model: str) -> list[dict[str, Any]]:
    """All rows of one engine."""
    return parts(runner, model) + served(runner, model)
