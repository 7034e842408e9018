"""HybriMoE (Zhong et al. 2025): experts shared out between processor, link and GPU, and a cache of those used most."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.spec import Pool

QWEN, MODELS = "qwen2-57b-a14b", ("mixtral-8x7b", "qwen2-57b-a14b", "deepseek-v2-lite")
CACHED, LENGTHS = (0.25, 0.5, 0.75), (32, 128, 512, 1024)
DECODE_S, PROMPT_S = 0.21, 1.47
"""The ablation's baseline, by which the processor's rates are solved."""
PROMPT, CONTEXT = 128, 128
STATIC, SHARED, CACHE, ALL = ("misses=cpu,keeps=any", "keeps=any", "misses=cpu", "")
EAGER = {"enforce_eager": True}
"""A schedule that is another one in every step is not captured."""
FAST_TFLOP_S = 100.0
"""At which a prompt of the baseline already takes longer than it did: processors are bound by bytes alone."""
STEPS = 24


@cache
def _machine() -> Pool:
    """Six channels of DDR4-2666, and ten of the processor's cores."""
    rates = host(cores=10, memory_gib=256, memory_gb_s=128, adam_gparam_s=2.0, link_gb_s=31.5)
    return cluster("RTX-A6000", 1, 1, rates)


@cache
def _seconds(model: str, how: str, cached: float, tokens: int, gb_s: float, tflop_s: float) -> float:
    """A decode step of one sequence, or a prompt of so many tokens."""
    words = ",".join(filter(None, (f"cached={cached}", how, f"cpu_gb_s={gb_s:.6g}", f"cpu_tflop_s={tflop_s:.6g}")))
    load: dict[str, Any] = {"phase": "prefill", "tokens": tokens} if tokens else {"phase": "decode", "context": CONTEXT}
    given: dict[str, Any] = {"dtype": "int4", "settings": EAGER, "techniques": (f"expert-offload:{words}",)}
    found = gnomon.predict(model, on=_machine(), **given, **load)
    return float(found.time_s.value)


def _solved(target_s: float, seconds: Any, low: float, high: float) -> float:
    """The rate at which the baseline takes as long as it did."""
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if seconds(middle) > target_s else (low, middle)
    return high


@cache
def _rates() -> tuple[float, float]:
    gb_s = _solved(DECODE_S, lambda rate: _seconds(QWEN, STATIC, CACHED[0], 0, rate, FAST_TFLOP_S), 1.0, 1000.0)
    tflop_s = _solved(PROMPT_S, lambda rate: _seconds(QWEN, STATIC, CACHED[0], PROMPT, gb_s, rate), 1e-3, FAST_TFLOP_S)
    return gb_s, tflop_s


def _gain(model: str, how: str, cached: float, tokens: int) -> float:
    return _seconds(model, STATIC, cached, tokens, *_rates()) / _seconds(model, how, cached, tokens, *_rates())


def figures() -> Iterator[Ours]:
    quarter = "Qwen2, a quarter cached"
    yield f"{quarter}: decode, all of it over the baseline", _gain(QWEN, ALL, CACHED[0], 0)
    yield f"{quarter}: decode, scheduling alone", _gain(QWEN, SHARED, CACHED[0], 0)
    yield f"{quarter}: decode, caching alone", _gain(QWEN, CACHE, CACHED[0], 0)
    yield f"{quarter}: prompt, all of it over the baseline", _gain(QWEN, ALL, CACHED[0], PROMPT)
    yield f"{quarter}: prompt, scheduling alone", _gain(QWEN, SHARED, CACHED[0], PROMPT)
    cases = list(product(MODELS, CACHED))
    yield "decode, mean of networks and cached shares", fmean(_gain(model, ALL, share, 0) for model, share in cases)
    prompts = (_gain(model, ALL, share, tokens) for (model, share), tokens in product(cases, LENGTHS))
    yield "prompts, mean of networks, cached shares and lengths", fmean(prompts)
