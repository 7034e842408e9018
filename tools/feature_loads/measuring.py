"""Starts one engine of tools/feature_loads and runs its loads."""

from __future__ import annotations

import copy
import os
import platform
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tools.feature_loads.bench import Bench
from tools.feature_loads.configs import ENGINES
from tools.feature_loads.runner import FeatureRunner, write_adapters
from tools.feature_loads.works import Maker
from tools.power_samples import Card
from tools.server_loads import MAX_MODEL_LEN

from gnomon.engines.vllm.runner import versions
from gnomon.load import config_of
from tools import host_times

FREE = 0.03
"""Share of the GPU's memory that must be free when an engine starts; the size of its KV cache is given."""


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
