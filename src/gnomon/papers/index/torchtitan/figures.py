"""TorchTitan (Liang et al. 2024): tokens per second and memory of its tables, and what each addition gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec.answers import TrainingReport

EAGER, COMPILED = "torchtitan@2024-eager", "torchtitan@2024"
GIB, SHORT = 1024.0**3, 8192
ADDED: dict[str, Mapping[str, Any]] = {
    "FSDP": {"engine": EAGER, "dtype": "bf16"},
    "and torch.compile": {"engine": COMPILED, "dtype": "bf16"},
    "and Float8": {"engine": COMPILED, "dtype": "fp8"},
}
FLOAT8 = {"engine": COMPILED, "dtype": "fp8", "recompute": "full"}
STAGES = 8
LONG = {(32768, 1): 8, (65536, 2): 4, (131072, 4): 2, (262144, 8): 1}
"""Data-parallel ranks by tokens of a sequence and context-parallel ranks, in tables 2 and 6."""


@cache
def _step(model: str, chips: int, words: tuple[tuple[str, Any], ...]) -> TrainingReport:
    longest = replace(load_model(model), max_context=max(seq for seq, _ in LONG))
    return gnomon.simulate_training(longest, on=f"H100-SXM-96GB:{chips}", **dict(words))


def _run(model: str, chips: int, **words: Any) -> TrainingReport:
    return _step(model, chips, tuple(sorted(words.items())))


def _rate(found: TrainingReport) -> float:
    """Tokens per second of a GPU."""
    job = found.step.job
    tokens = job.load.global_batch * job.load.seq
    return float(tokens / (found.step_time_s.value * found.plan.strategy.ranks))


def _data_parallel(chips: int, added: str) -> TrainingReport:
    """Tables 1 and 3."""
    words = dict(ADDED[added]) | {"seq": SHORT, "global_batch": 2 * chips, "micro_batch": 2}
    return _run("llama-3.1-8b", chips, zero=3, recompute="selective", **words)


def _two(asynchronous: bool) -> TrainingReport:
    """Table 4."""
    words = FLOAT8 | {"seq": SHORT, "global_batch": 512, "micro_batch": 16}
    return _run("llama-3.1-70b", 256, tp=8, zero=3, tp_overlap=asynchronous, **words)


def _three(parts: int) -> TrainingReport:
    """Table 5: as many micro-batches as pipeline ranks."""
    words = FLOAT8 | {"seq": SHORT, "global_batch": 256, "micro_batch": 32 // STAGES}
    way = {"vp": parts, "schedule": "interleaved"} if parts > 1 else {"schedule": "1f1b"}
    return _run("llama-3.1-405b", 512, tp=8, pp=STAGES, zero=2, tp_overlap=True, **words, **way)


def _gains() -> Iterator[Ours]:
    one = _rate(_data_parallel(128, "and Float8")) / _rate(_data_parallel(128, "FSDP"))
    yield "1D, 8B on 128 GPUs: torch.compile and Float8 over plain FSDP", one
    yield "2D, 70B on 256 GPUs: asynchronous TP over none", _rate(_two(True)) / _rate(_two(False))
    yield "3D, 405B on 512 GPUs: interleaved over 1F1B", _rate(_three(2)) / _rate(_three(1))


def _row(name: str, found: TrainingReport) -> Iterator[Ours]:
    yield f"{name}: a GPU", _rate(found)
    yield f"{name}: memory", found.reserved_memory_bytes / GIB


def _short() -> Iterator[Ours]:
    for added in ADDED:
        yield from _row(f"Table 1, {added}", _data_parallel(8, added))
        yield f"Table 3, {added}: a GPU", _rate(_data_parallel(128, added))
    for name, found in (("2D", _two(False)), ("and asynchronous TP", _two(True))):
        yield from _row(f"Table 4, {name}", found)
    for name, parts in (("1F1B", 1), ("interleaved", 2)):
        yield from _row(f"Table 5, {name}", _three(parts))


def _long() -> Iterator[Ours]:
    for (seq, cp), copies in LONG.items():
        words = FLOAT8 | {"seq": seq, "cp": cp, "micro_batch": 1}
        name = f"FSDP {copies}, CP {cp}, {seq:,} tokens: a GPU"
        yield f"Table 2, {name}", _rate(_run("llama-3.1-8b", 8, global_batch=copies, zero=3, **words))
        if cp in (1, 8):
            batch = {"global_batch": 8 * copies, "tp": 8, "pp": STAGES, "schedule": "1f1b"}
            yield f"Table 6, {name}", _rate(_run("llama-3.1-405b", 512, zero=2, tp_overlap=True, **words, **batch))


def figures() -> Iterator[Ours]:
    yield from _gains()
    yield from _short()
    yield from _long()
