"""Mélange (Griggs et al. 2024): the cheapest mix of GPUs for requests of many sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil, erf, inf, log, log1p, sqrt
from typing import Any

import numpy as np

import gnomon
from gnomon.papers.base import Ours
from gnomon.spec.workload import Floats

MODEL, ENGINE, DTYPE = "llama-2-7b", "vllm@0.2.0", "fp16"
PRICES = {"L4": 0.70, "A10G": 1.01, "A100": 3.67, "H100": 7.516}
"""Dollars per hour, from the cheapest."""
CHIPS = {"L4": "L4", "A10G": "A10G", "A100": "A100-SXM-80GB", "H100": "H100-SXM-80GB"}
SIZES = (25, 100, 250, 500, 1000, 2000)
"""Of prompts and of answers, the largest of each bucket."""
BATCHES, CONTEXTS = (1, 4, 16, 64, 128, 256), (128, 1024)
CHAT = ((69.5, 1.5), (214.5, 1.0))
"""Mean and coefficient of variation, of prompts and of answers."""
SLOS = {120: 0.12, 40: 0.04}
RATES = (1, 2, 4, 8, 16, 32)
ALONE = {"H100": (4, 16, 32), "A100": (4, 16, 32), "A10G": (4, 16, 32), "L4": (4, 16, 32)}


def _ours(chip: str) -> dict[str, Any]:
    return {"on": CHIPS[chip], "engine": ENGINE, "dtype": DTYPE}


@cache
def _decodes(chip: str) -> tuple[Floats, Floats]:
    """Seconds of decode steps by batch: those without any context, and for each token of it in every sequence."""
    found = np.array([
        [
            gnomon.predict(MODEL, phase="decode", batch=batch, context=context, **_ours(chip)).time_s.value
            for context in CONTEXTS
        ]
        for batch in BATCHES
    ])  # fmt: skip
    slope = (found[:, 1] - found[:, 0]) / (CONTEXTS[1] - CONTEXTS[0])
    return found[:, 0] - slope * CONTEXTS[0], slope


@cache
def _prompt_s(chip: str, tokens: int) -> float:
    return gnomon.predict(MODEL, phase="prefill", batch=1, tokens=tokens, **_ours(chip)).time_s.value


@cache
def _held(chip: str) -> int:
    return gnomon.fit(MODEL, **_ours(chip)).kv_tokens


@cache
def _most(chip: str, prompt: int, answer: int, slo_s: float) -> float:
    """Requests of a size per second, of so many sequences that the cache holds them whole and the mean time per token
    keeps the limit. While a request makes its answer, each that shares its steps has a prompt before it once."""
    base, slope = _decodes(chip)
    context = prompt + answer / 2
    room = min(_held(chip) // (prompt + answer), BATCHES[-1])
    batches = np.arange(1, room + 1)
    step_s = np.interp(batches, BATCHES, base) + np.interp(batches, BATCHES, slope) * context
    spans_s = answer * step_s + batches * _prompt_s(chip, prompt)
    rates = np.where(spans_s / answer <= slo_s, batches / spans_s, 0.0)
    return float(rates.max(initial=0.0))


def _shares() -> dict[tuple[int, int], float]:
    """Of chat requests, those of each size."""

    def buckets(mean: float, cv: float) -> Floats:
        sigma = sqrt(log1p(cv * cv))
        ends = [0.5 * (1 + erf((log(size / mean) + sigma**2 / 2) / (sigma * sqrt(2)))) for size in SIZES]
        return np.diff([0.0, *ends]) / ends[-1]

    prompts, answers = (buckets(*one) for one in CHAT)
    return {
        (i, o): float(p * q) for i, p in zip(SIZES, prompts, strict=True) for o, q in zip(SIZES, answers, strict=True)
    }


@cache
def _loads(rate: float, slo_s: float) -> Mapping[str, Floats]:
    """GPUs of each kind that every size of the load would take by itself."""
    return {
        chip: np.array([
            rate * share / most if (most := _most(chip, *size, slo_s)) else inf for size, share in _shares().items()
        ])
        for chip in PRICES
    }  # fmt: skip


def _alone(chip: str, rate: float, slo_s: float) -> float:
    total = float(_loads(rate, slo_s)[chip].sum())
    return float(ceil(total)) if total < inf else inf


def _filled(left: Floats, loads: Floats, count: int, gain: Floats) -> Floats:
    """What is left of every size when so many GPUs take those first that gain most on them."""
    left, room = left.copy(), float(count)
    for at in np.argsort(-gain, kind="stable"):
        if room <= 0 or not np.isfinite(loads[at]):
            continue
        taken = min(left[at], room / loads[at]) if loads[at] else left[at]
        left[at] -= taken
        room -= taken * loads[at]
    return left


def _mix(rate: float, slo_s: float) -> float:
    """Dollars per hour of the cheapest mix: H100, A100 and A10G in every number that may pay, the rest on L4."""
    loads = _loads(rate, slo_s)
    best = min(PRICES[chip] * _alone(chip, rate, slo_s) for chip in PRICES)
    if best == inf:
        return inf
    every = np.ones(len(_shares()))
    small = np.minimum(PRICES["L4"] * loads["L4"], PRICES["A10G"] * loads["A10G"])
    for large in range(int(best / PRICES["H100"]) + 1):
        after_large = _filled(every, loads["H100"], large, _over(small, loads["H100"]))
        for middle in range(int((best - large * PRICES["H100"]) / PRICES["A100"]) + 1):
            after = _filled(after_large, loads["A100"], middle, _over(small, loads["A100"]))
            paid = large * PRICES["H100"] + middle * PRICES["A100"]
            for few in range(int(max(best - paid, 0) / PRICES["A10G"]) + 1):
                left = _filled(after, loads["A10G"], few, _over(loads["L4"], loads["A10G"]))
                rest = float((left * np.where(left > 1e-9, loads["L4"], 0.0)).sum())
                best = min(
                    best, paid + few * PRICES["A10G"] + (ceil(rest - 1e-9) if rest < inf else inf) * PRICES["L4"]
                )
    return best


def _over(one: Floats, other: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(one / other, nan=0.0, posinf=1e300)


def _per_dollar(chip: str, other: str, size: int) -> float:
    """Requests of one size for the money, over those of another chip."""
    ours, theirs = (_most(name, size, size, SLOS[120]) / PRICES[name] for name in (chip, other))
    return ours / theirs if theirs else inf


def figures() -> Iterator[Ours]:
    chat = SLOS[120]
    alone = PRICES["H100"] * _alone("H100", 1, chat)
    yield "chat, 120 ms, 1/s: saved against H100 alone", 100 * (1 - _mix(1, chat) / alone) if alone < inf else 0.0
    for rate in RATES:
        yield f"chat, 120 ms, {rate}/s: mix", _mix(rate, chat)
    for chip, rates in ALONE.items():
        for rate in rates:
            yield f"chat, 120 ms, {rate}/s: {chip} alone", _alone(chip, rate, chat)
    for rate in (8, 32):
        yield f"chat, 40 ms, {rate}/s: mix", _mix(rate, SLOS[40])
    least, most = SIZES[0], SIZES[-1]
    yield "smallest requests: A10G over A100, tokens per dollar", _per_dollar("A10G", "A100", least)
    yield "largest requests: A100 over A10G, tokens per dollar", _per_dollar("A100", "A10G", most)
