"""Random plans that can be started: drawn from long lists, and kept where nothing refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from gnomon import fit
from gnomon.catalog import model_config_path
from gnomon.errors import GnomonError
from gnomon.execution.startable import startable
from gnomon.spec import EngineChoice, Goal, Plan, Recipe, ServingLoad, Strategy, TrainingLoad

SERVED = (
    "llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen2.5-7b", "qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b",
    "gpt-oss-120b", "gemma-3-4b", "mistral-7b", "deepseek-v3", "minimax-m2", "phi-4", "qwen2.5-vl-7b", "gpt-oss-20b",
    "granite-3.3-8b", "olmo-2-7b", "llama-2-13b", "bert-base", "qwen3-235b-a22b", "llama-4-scout", "glm-4.5-air",
)  # fmt: skip
CHIPS = (
    "H100", "H200", "A100-SXM-80GB", "A100-SXM-40GB", "L40S", "L4", "RTX-4090", "B200", "GB200", "MI300X", "MI355X",
    "T4", "RTX-3090", "Arc-Pro-B60", "A10", "H20-96GB",
)  # fmt: skip
NARROW = {
    "int4": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "int8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
                "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
            }
        },
    },
}
"""What the config of a checkpoint says that is quantised so."""
TRAINED = (
    "llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "mistral-7b", "llama-2-13b",
    "deepseek-v2-lite", "llama-3.1-405b", "gpt3-175b",
)  # fmt: skip
TRAINING_CHIPS = ("H100", "H200", "A100-SXM-80GB", "B200", "MI300X", "GB200")


def serving_plans(seed: int, count: int, folder: Path, engine: str = "vllm") -> list[Plan]:
    """So many plans that serve; checkpoints and traces they name lie in the folder."""
    if engine == "vllm":
        return _kept(seed, count, lambda random: _serving(random, folder), engine)
    return _kept(seed, count, lambda random: _served(random, folder, engine), engine)


def training_plans(seed: int, count: int) -> list[Plan]:
    return _kept(seed, count, _training, "megatron")


def _kept(seed: int, count: int, drawn: Callable[[Random], Plan | None], to: str) -> list[Plan]:
    random, found = Random(seed), []
    for _ in range(400 * count):
        plan = drawn(random)
        if plan is not None and _starts(plan, to):
            found.append(plan)
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} plans can be started")


def _starts(plan: Plan, to: str) -> bool:
    try:
        return bool(startable(plan, to, fit))
    except GnomonError:
        return False


def checkpoint(folder: Path, model: str, format: str) -> str:
    """A folder with the config of a model that is quantised so."""
    place = folder / f"{model}-{format}"
    place.mkdir(parents=True, exist_ok=True)
    config = json.loads(model_config_path(model).read_text())
    (place / "config.json").write_text(json.dumps(config | {"quantization_config": NARROW[format]}))
    return str(place)


def trace(random: Random, folder: Path) -> str:
    """Requests of mixed lengths, 50 to 5,000 of them."""
    rows, at = ["arrival_s,input_tokens,output_tokens"], 0.0
    for _ in range(random.choice((50, 300, 1000, 5000))):
        at += random.expovariate(3.0)
        rows.append(f"{at:.4f},{random.randint(1, 1500)},{random.randint(1, 400)}")
    file = folder / f"trace-{random.randrange(10**6)}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(rows) + "\n")
    return str(file)


def _load(random: Random, folder: Path) -> ServingLoad | None:
    way = random.randrange(4)
    if way == 0:
        return None
    if way == 1:
        return ServingLoad(trace=trace(random, folder), rate_per_s=random.choice((None, 2.0, 7.5)), requests=0)
    return ServingLoad(
        rate_per_s=random.choice((None, 0.5, 8.0)),
        input_tokens=random.choice((16, 200, 1024)),
        output_tokens=random.choice((1, 64, 256)),
        requests=random.choice((50, 5000)),
        seed=random.randrange(10),
    )


def _settings(random: Random) -> dict[str, Any]:
    choices: dict[str, tuple[Any, ...]] = {
        "max_model_len": (2048, 4096, 8192, 16384),
        "max_num_seqs": (32, 128, 256),
        "max_num_batched_tokens": (1024, 2048, 8192),
        "gpu_memory_utilization": (0.8, 0.9, 0.95),
        "block_size": (16, 32, 64),
        "async_scheduling": (True, False),
        "enforce_eager": (True, False),
        "enable_prefix_caching": (True, False),
        "max_cudagraph_capture_size": (64, 256),
    }
    taken = random.sample(sorted(choices), random.randint(0, 4))
    return {name: random.choice(choices[name]) for name in ("max_model_len", *taken)}


def _serving(random: Random, folder: Path) -> Plan | None:
    model, named, dtype = random.choice(SERVED), "", random.choice(("bf16", "bf16", "fp16", "fp8", "int4", "int8"))
    techniques = random.choice(((), (), (), ("swapped-sessions",)))
    if dtype in NARROW and random.random() < 0.7:
        place = checkpoint(folder, model, dtype)
        model, named = (place, "") if random.random() < 0.5 else (model, place)
        techniques = ("int4-weights",) if named and dtype == "int4" and random.random() < 0.5 else ()
    tp, pp, dp = random.choice((1, 2, 4, 8)), random.choice((1, 1, 1, 2)), random.choice((1, 1, 2))
    return Plan(
        model=model,
        chip=random.choice(CHIPS),
        replicas=random.choice((1, 1, 2, 3, 5, 13)),
        strategy=Strategy(
            tp=tp,
            pp=pp,
            dp=dp,
            ep=random.choice((1, 1, tp * dp)),
            cp=random.choice((1, 1, 1, 2)),
            techniques=techniques,
        ),
        dtype=dtype,
        kv_dtype=random.choice(("", "bf16", "fp8")),
        checkpoint=named,
        engine=EngineChoice(version=random.choice(("", "0.24", "0.24.0")), settings=_settings(random)),
        load=_load(random, folder),
        goals=random.choice(((), (Goal("tpot", "p90", 0.05),))),
    )


OTHER_ENGINES: dict[str, tuple[tuple[str, ...], str, dict[str, tuple[Any, ...]]]] = {
    "sglang": (
        ("", "0.5", "0.5.23"),
        "context_length",
        {
            "context_length": (2048, 4096, 8192, 16384),
            "max_running_requests": (32, 128, 256),
            "chunked_prefill_size": (1024, 2048, 8192, -1),
            "max_prefill_tokens": (8192, 32768),
            "prefill_max_requests": (4, 64),
            "mem_fraction_static": (0.7, 0.8, 0.85),
            "max_total_tokens": (40_000, 200_000),
            "page_size": (1, 16, 64),
            "schedule_policy": ("fcfs", "lpm", "lof"),
            "schedule_conservativeness": (0.5, 1.0, 1.3),
            "disable_radix_cache": (True, False),
            "enable_mixed_chunk": (True, False),
            "disable_overlap_schedule": (True, False),
            "disable_cuda_graph": (True, False),
            "disable_prefill_cuda_graph": (True, False),
            "cuda_graph_max_bs": (16, 200),
            "attention_backend": ("auto", "triton", "flashinfer"),
            "moe_runner_backend": ("auto", "triton"),
            "enable_torch_compile": (True, False),
            "stream_interval": (1, 8),
        },
    ),
    "trtllm": (
        ("", "1.2", "1.2.1"),
        "max_seq_len",
        {
            "max_seq_len": (2048, 4096, 8192, 16384),
            "max_batch_size": (32, 128, 512),
            "max_num_tokens": (2048, 8192, 16384),
            "kv_cache_free_gpu_memory_fraction": (0.7, 0.9, 0.95),
            "num_postprocess_workers": (0, 4),
            "enable_chunked_prefill": (True, False),
            "disable_overlap_scheduler": (True, False),
            "capacity_scheduler_policy": ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION"),
            "enable_block_reuse": (True, False),
            "enable_partial_reuse": (True, False),
            "tokens_per_block": (32, 64),
            "kv_cache_max_tokens": (0, 100_000),
            "cuda_graph_max_batch_size": (0, 64, 128, 256),
            "cuda_graph_enable_padding": (True, False),
            "cuda_graph_batch_sizes": ("1 2 4 8", "16 32"),
            "stream_interval": (1, 10),
        },
    ),
}
"""Versions, the setting of the longest sequence, and what other settings are drawn from."""


def _served(random: Random, folder: Path, engine: str) -> Plan | None:
    """A plan of another engine than vLLM."""
    versions, longest, choices = OTHER_ENGINES[engine]
    model, named, dtype = random.choice(SERVED), "", random.choice(("bf16", "bf16", "fp16", "fp8", "int4"))
    if dtype in NARROW and random.random() < 0.7:
        place = checkpoint(folder, model, dtype)
        model, named = (place, "") if random.random() < 0.5 else (model, place)
    tp, pp, dp = random.choice((1, 2, 4, 8)), random.choice((1, 1, 1, 2)), random.choice((1, 1, 2, 4))
    taken = random.sample(sorted(choices), random.randint(0, 6))
    settings = {name: random.choice(choices[name]) for name in (longest, *taken)}
    return Plan(
        model=model,
        chip=random.choice(CHIPS),
        replicas=random.choice((1, 1, 2, 3, 5, 13)),
        strategy=Strategy(tp=tp, pp=pp, dp=dp, ep=random.choice((1, 1, tp * dp))),
        dtype=dtype,
        kv_dtype=random.choice(("", "bf16", "fp8")),
        checkpoint=named,
        engine=EngineChoice(name=engine, version=random.choice(versions), settings=settings),
        load=_load(random, folder),
        goals=random.choice(((), (Goal("tpot", "p90", 0.05),))),
    )


def _training(random: Random) -> Plan | None:
    tp, pp, cp = random.choice((1, 2, 4, 8)), random.choice((1, 2, 4, 5)), random.choice((1, 1, 2))
    dp, vp = random.choice((1, 2, 4, 8, 16)), random.choice((1, 1, 2))
    interleaved = vp > 1 and pp > 1
    micro, zero = random.choice((1, 2)), random.choice((0, 1, 1, 2, 3))
    mode = "synchronous" if zero > 1 else random.choice(("synchronous", "asynchronous"))  # Megatron-FSDP has no other
    recipe = Recipe(
        micro_batch=micro,
        schedule="interleaved" if interleaved else "1f1b",
        recompute=random.choice(("none", "selective", "full")),
        zero=zero,
        optimizer=random.choice(("adamw", "adamw", "sgd", "lion", "muon")),
        sequence_parallel=tp > 1 and random.random() < 0.8,
        cp_comm=random.choice(("p2p", "a2a", "allgather")),
        expert_tp=random.choice((0, 1)),
    )
    return Plan(
        model=random.choice(TRAINED),
        chip=random.choice(TRAINING_CHIPS),
        replicas=1,
        strategy=Strategy(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            ep=random.choice((1, 1, 2, 4)),
            vp=vp if interleaved else 1,
            techniques=random.choice(
                ((), (), ("offload-optimizer:share=0.5",), (f"checkpoints:every=20,mode={mode}",))
            ),
        ),
        dtype=random.choice(("bf16", "bf16", "fp8")),
        engine=EngineChoice(name="megatron", settings=recipe.settings),
        load=TrainingLoad(seq=random.choice((1024, 2048, 4096)), global_batch=micro * dp * pp * random.choice((1, 4))),
    )
