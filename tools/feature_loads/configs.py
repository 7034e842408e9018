"""The engines of tools/feature_loads and the batches in which they start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.feature_loads import loads
from tools.feature_loads.bench import Bench
from tools.feature_loads.runner import RANK
from tools.feature_loads.works import CHECK_SHARED

UNSEEN, UNSEEN_FIRST_RUNNER = "mistral-7b", "granite-3.3-8b"
"""Of the batches whose loads nothing was fitted to and nobody had seen when their model was made."""
DENSE, OTHER = "qwen3-8b", "glm-4-9b-0414"
"""OTHER runs on vLLM's first model runner with and without n-gram drafts, so that the two differ in nothing else."""
DRAFTS = {"method": "ngram_gpu", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


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
    "base": Engine(model=DENSE, kv_gib=21.0, arguments={}, loads=loads.base, takes_s=230.0),
    "lora-8": Engine(
        model=DENSE, kv_gib=14.0, arguments=_lora(8, 32), loads=loads.lora_many, takes_s=95.0, adapters=32
    ),
    "lora-4": Engine(model=DENSE, kv_gib=21.0, arguments=_lora(4, 4), loads=loads.lora_few, takes_s=70.0, adapters=4),
    "ngram-off": Engine(model=OTHER, kv_gib=6.5, arguments={}, loads=loads.ngram_off, takes_s=60.0),
    "ngram": Engine(
        model=OTHER, kv_gib=6.5, arguments={"speculative_config": DRAFTS}, loads=loads.ngram, takes_s=110.0
    ),
    "fp8-kv": Engine(model=DENSE, kv_gib=10.5, arguments={"kv_cache_dtype": "fp8"}, loads=loads.fp8_kv, takes_s=60.0),
    "offload": Engine(
        model=DENSE,
        kv_gib=21.0,
        arguments={"kv_offloading_size": 32.0, "kv_offloading_backend": "native"},
        loads=loads.offload,
        takes_s=70.0,
    ),
}
ENGINES |= {
    "other-base": Engine(model=UNSEEN, kv_gib=21.0, arguments={}, loads=loads.other_base, takes_s=150.0),
    "other-lora-4": Engine(
        model=UNSEEN,
        kv_gib=21.0,
        arguments=_lora(4, 4),
        loads=lambda bench: loads.other_lora(bench, 4, 4),
        takes_s=125.0,
        adapters=4,
    ),
    "other-lora-8": Engine(
        model=UNSEEN,
        kv_gib=14.0,
        arguments=_lora(8, 32),
        loads=lambda bench: loads.other_lora(bench, 32, 8),
        takes_s=140.0,
        adapters=32,
    ),
    "other-ngram": replace(
        ENGINES["ngram"], model=UNSEEN_FIRST_RUNNER, kv_gib=14.0, loads=loads.other_ngram, takes_s=125.0
    ),
    "other-fp8-kv": replace(ENGINES["fp8-kv"], model=UNSEEN),
    "other-offload": replace(ENGINES["offload"], model=UNSEEN, loads=loads.offload, takes_s=85.0),
}
ENGINES |= {
    "host-base": Engine(model=DENSE, kv_gib=10.0, arguments={}, loads=loads.host_base, takes_s=85.0, host_times=True),
    "host-lora-4": Engine(
        model=DENSE,
        kv_gib=10.0,
        arguments=_lora(4, 4),
        loads=lambda bench: loads.host_base(bench, 4),
        takes_s=100.0,
        adapters=4,
        host_times=True,
    ),
    "host-lora-8": Engine(
        model=DENSE,
        kv_gib=10.0,
        arguments=_lora(8, 32),
        loads=loads.host_adapters,
        takes_s=85.0,
        adapters=32,
        host_times=True,
    ),
    "host-ngram": replace(ENGINES["ngram"], kv_gib=6.5, loads=loads.host_ngram, takes_s=110.0, host_times=True),
}
ENGINES |= {
    "check-base": replace(
        ENGINES["other-base"],
        model="qwen3-14b",
        loads=lambda bench: loads.other_base(bench, CHECK_SHARED),
        takes_s=165.0,
        host_times=True,
    ),
    "check-lora-4": replace(
        ENGINES["other-lora-4"], model="qwen3-4b", kv_gib=14.0, takes_s=80.0, loads=loads.check_lora, host_times=True
    ),
    "check-ngram": replace(
        ENGINES["other-ngram"], model="qwen2.5-7b", kv_gib=10.0, takes_s=75.0, loads=loads.check_ngram, host_times=True
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
