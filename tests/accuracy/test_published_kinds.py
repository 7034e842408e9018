"""Training configurations of the kinds that people publish: each is predicted, or refused with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import GnomonError

BRIDGE, TITAN = "megatron@bridge", "torchtitan"
LONGEST = 1.0 / 0.02
"""Times that a step may take of what the chips' peak allows."""

ACCEPTED: dict[str, dict[str, Any]] = {
    "gpt-3 by SC21": {
        "model": "gpt3-175b", "on": "A100-SXM-80GB:768", "seq": 2048, "global_batch": 1536, "tp": 8, "pp": 12,
        "dtype": "fp16", "recompute": "full", "sequence_parallel": False, "engine": "megatron@2.4",
    },
    "interleaved with selective recompute": {
        "model": "gpt-529.6b", "on": "A100-SXM-80GB:280", "seq": 2048, "global_batch": 280, "tp": 8, "pp": 35, "vp": 3,
        "dtype": "fp16", "recompute": "selective", "engine": "megatron@3.0",
    },
    "megatron-core on H100": {
        "model": "llama-3-70b", "on": "H100:64", "seq": 8192, "global_batch": 128, "tp": 4, "pp": 4, "cp": 2, "zero": 1,
    },
    "distributed optimizer with fp8": {
        "model": "llama-3.1-405b", "on": "H100:1024", "seq": 8192, "global_batch": 512, "tp": 8, "pp": 8, "vp": 8,
        "cp": 2, "zero": 1, "dtype": "fp8", "engine": BRIDGE,
    },
    "FSDP on a rack": {
        "model": "llama-3-70b", "on": "GB200:64", "seq": 8192, "global_batch": 256, "micro_batch": 2, "zero": 3,
        "dtype": "fp8", "engine": BRIDGE,
    },
    "one node of GB300": {
        "model": "llama-3-8b", "on": "GB300:8", "seq": 8192, "global_batch": 128, "micro_batch": 2, "zero": 1,
        "dtype": "fp8", "engine": BRIDGE,
    },
    "experts in one node": {
        "model": "qwen3-30b-a3b", "on": "H100:16", "seq": 4096, "global_batch": 512, "pp": 2, "vp": 24, "ep": 8,
        "micro_batch": 2, "zero": 1, "engine": BRIDGE,
    },
    "experts over tensor-parallel ranks": {
        "model": "qwen3-235b-a22b", "on": "H100:256", "seq": 4096, "global_batch": 2048, "tp": 2, "pp": 8, "vp": 4,
        "ep": 32, "expert_tp": 1, "zero": 1, "dtype": "fp8", "engine": BRIDGE,
    },
    "latent attention and experts": {
        "model": "deepseek-v3", "on": "GB200:256", "seq": 4096, "global_batch": 4096, "pp": 4, "vp": 4, "ep": 64,
        "zero": 1, "engine": BRIDGE,
    },
    "multi-token prediction": {
        "model": "deepseek-v3", "on": "B200:256", "seq": 4096, "global_batch": 2048, "pp": 16, "ep": 8, "zero": 1,
        "mtp_layers": 1, "engine": BRIDGE,
    },
    "mixtral with context parallelism": {
        "model": "mixtral-8x22b", "on": "H100:128", "seq": 16384, "global_batch": 128, "tp": 2, "pp": 4, "cp": 2,
        "ep": 8, "expert_tp": 1, "zero": 1,
    },
    "windows and sinks": {
        "model": "gpt-oss-120b", "on": "B200:64", "seq": 4096, "global_batch": 512, "micro_batch": 1, "ep": 8,
        "zero": 1, "engine": BRIDGE,
    },
    "state spaces and attention": {
        "model": "nemotron-h-8b", "on": "H100:64", "seq": 8192, "global_batch": 256, "tp": 2, "zero": 1,
    },
    "gated deltas": {
        "model": "qwen3-next-80b-a3b", "on": "H200:64", "seq": 4096, "global_batch": 512, "pp": 4, "ep": 8, "zero": 1,
    },
    "diffusion of videos": {
        "model": "wan-2.1-t2v-14b", "on": "GB200:32", "seq": 37440, "global_batch": 64, "cp": 2, "zero": 3,
        "engine": BRIDGE,
    },
    "a diffusion transformer": {"model": "dit-xl-2-256", "on": "A100:8", "seq": 256, "global_batch": 256,
                                "micro_batch": 32},
    "an encoder-decoder": {"model": "t5-11b", "on": "A100:32", "seq": 128, "source": 512, "global_batch": 512,
                           "micro_batch": 4, "tp": 4},
    "speech": {"model": "whisper-large-v3", "on": "A100:8", "seq": 448, "global_batch": 256, "micro_batch": 8},
    "an encoder": {"model": "bert-large", "on": "A100:64", "seq": 512, "global_batch": 4096, "micro_batch": 16},
    "images with a frozen tower": {
        "model": "qwen2.5-vl-7b", "on": "H100:8", "seq": 4096, "global_batch": 64, "images": 1, "image": "672x672",
        "freeze": "vision", "zero": 1,
    },
    "FSDP2 with torch.compile": {
        "model": "llama-3-8b", "on": "H100:128", "seq": 8192, "global_batch": 256, "micro_batch": 2, "zero": 3,
        "recompute": "selective", "engine": TITAN,
    },
    "eager FSDP2 of 2024": {
        "model": "llama-3-70b", "on": "A100:64", "seq": 8192, "global_batch": 64, "zero": 3, "recompute": "full",
        "engine": "torchtitan@2024-eager",
    },
    "2D in fp8": {
        "model": "llama-3-70b", "on": "H100:256", "seq": 8192, "global_batch": 512, "micro_batch": 16, "tp": 8,
        "zero": 3, "recompute": "full", "dtype": "fp8", "engine": "torchtitan@2024",
    },
    "long sequences over ring attention": {
        "model": "llama-3.1-8b", "on": "H100:8", "seq": 131072, "global_batch": 2, "cp": 4, "zero": 3,
        "recompute": "full", "engine": TITAN,
    },
    "long sequences by heads": {
        "model": "llama-3.1-8b", "on": "H100:8", "seq": 65536, "global_batch": 2, "cp": 4, "cp_comm": "a2a", "zero": 1,
    },
    "split backwards": {
        "model": "llama-3-8b", "on": "H100:16", "seq": 4096, "global_batch": 64, "pp": 4, "vp": 2, "schedule": "zb-v",
        "engine": "torch",
    },
    "ZeRO-3 of 2022": {
        "model": "gpt-1008b", "on": "A100:1024", "seq": 1024, "global_batch": 8192, "micro_batch": 8, "zero": 3,
        "dtype": "fp16", "recompute": "full", "sequence_parallel": False, "engine": "deepspeed@0.5",
    },
    "3D under DeepSpeed": {
        "model": "gpt3-175b", "on": "A100:384", "seq": 2048, "global_batch": 2048, "micro_batch": 2, "tp": 4,
        "pp": 12, "zero": 1, "recompute": "full", "sequence_parallel": False, "engine": "deepspeed@0.5",
    },
    "ZeRO-3 with the optimizer on the host": {
        "model": "llama-2-13b", "on": "A100-SXM-40GB:8", "seq": 4096, "global_batch": 64, "zero": 3,
        "recompute": "full", "techniques": ("offload-optimizer",), "engine": "deepspeed",
    },
    "V100 of 2021": {
        "model": "gpt-18.4b", "on": "V100-SXM2-32GB:64", "seq": 1024, "global_batch": 256, "micro_batch": 2, "tp": 4,
        "pp": 4, "dtype": "fp16", "recompute": "full", "sequence_parallel": False, "engine": "megatron@2.4",
    },
    "FSDP of 2023": {
        "model": "llama-2-7b", "on": "A100-SXM-40GB:64", "seq": 2048, "global_batch": 1024, "micro_batch": 8, "zero": 3,
        "recompute": "full", "dtype": "bf16", "engine": "torch@2.0",
    },
    "the Trainer on a card at home": {
        "model": "llama-3.2-1b", "on": "RTX-4090", "seq": 2048, "global_batch": 16, "micro_batch": 1,
        "engine": "transformers",
    },
    "packed fine-tuning": {
        "model": "llama-2-7b", "on": "H100:8", "seq": 4096, "global_batch": 32, "zero": 1, "dtype": "fp8",
        "lengths": "lognormal:mean=250,cv=0.6", "packing": "ffd", "engine": BRIDGE,
    },
    "adapters": {
        "model": "llama-3-70b", "on": "H100:8", "seq": 4096, "global_batch": 32, "tp": 2, "pp": 4, "zero": 1,
        "dtype": "fp8", "techniques": ("lora:rank=32",), "engine": BRIDGE,
    },
    "adapters beside weights in four bits": {
        "model": "llama-2-7b", "on": "RTX-4090", "seq": 1024, "global_batch": 16, "micro_batch": 1,
        "techniques": ("qlora:rank=64",), "recompute": "full", "dtype": "bf16", "engine": "transformers",
    },
    "blocks of 32 on Blackwell": {
        "model": "llama-3-8b", "on": "B200:8", "seq": 8192, "global_batch": 8, "zero": 3, "recompute": "op",
        "dtype": "mxfp8", "engine": TITAN,
    },
    "asynchronous tensor parallelism by rows": {
        "model": "llama-3-70b", "on": "H100:256", "seq": 8192, "global_batch": 512, "micro_batch": 16, "tp": 8,
        "zero": 3, "recompute": "full", "dtype": "fp8-rows", "tp_overlap": True, "engine": "torchtitan@2025",
    },
    "replicas of shards": {
        "model": "llama-3-8b", "on": "H100:256", "seq": 8192, "global_batch": 256, "zero": 3, "dp_shard": 8,
        "recompute": "op", "engine": TITAN,
    },
    "Ulysses": {
        "model": "llama-2-7b", "on": "H100:8", "seq": 4096, "global_batch": 4, "cp": 8, "cp_comm": "a2a", "zero": 3,
        "recompute": "full", "sequence_parallel": False, "engine": "deepspeed",
    },
    "modules recomputed": {
        "model": "deepseek-v3", "on": "H100:1024", "seq": 4096, "global_batch": 8192, "tp": 2, "pp": 8, "vp": 4,
        "ep": 64, "expert_tp": 1, "zero": 1, "dtype": "fp8", "recompute": "modules=mla_up_proj+mlp", "engine": BRIDGE,
    },
    "activations on the host": {
        "model": "gpt-1008b", "on": "A100:1024", "seq": 1024, "global_batch": 8192, "micro_batch": 8, "zero": 3,
        "dtype": "fp16", "recompute": "full", "techniques": ("offload-activations",), "sequence_parallel": False,
        "engine": "deepspeed@0.5",
    },
    "AMD": {"model": "llama-3.1-70b", "on": "MI300X:8", "seq": 8192, "global_batch": 32, "tp": 8, "zero": 1},
    "TPU": {"model": "llama-2-70b", "on": "TPU-v4:64", "seq": 2048, "global_batch": 64, "tp": 8, "zero": 3,
            "recompute": "full"},
    "fp32": {"model": "gpt2-xl", "on": "V100-SXM2-32GB:8", "seq": 1024, "global_batch": 64, "dtype": "fp32"},
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "experts that no ranks hold": (
        {"model": "qwen3-235b-a22b", "on": "H100:256", "seq": 4096, "global_batch": 2048, "tp": 2, "pp": 8, "ep": 32},
        "16 ranks",
    ),
    "layers that do not divide": (
        {"model": "llama-3.1-405b", "on": "H100:8192", "seq": 8192, "global_batch": 2048, "tp": 8, "pp": 16, "vp": 8},
        "126 layers",
    ),
    "degrees beyond the chips": (
        {"model": "llama-3-8b", "on": "H100:8", "seq": 4096, "global_batch": 8, "tp": 8, "pp": 2},
        "--on|chips",
    ),
    "experts under TorchTitan": (
        {"model": "mixtral-8x7b", "on": "H100:8", "seq": 4096, "global_batch": 8, "zero": 3, "engine": TITAN},
        "not priced under TorchTitan",
    ),
    "batches that no rank can share": (
        {"model": "llama-3-8b", "on": "H100:16", "seq": 4096, "global_batch": 24},
        "multiple",
    ),
    "sequences beyond the context": (
        {"model": "llama-3-8b", "on": "H100:8", "seq": 131072, "global_batch": 8},
        "8,192",
    ),
    "biases of positions that a runner has no kernel of": (
        {"model": "mpt-7b", "on": "A100:8", "seq": 2048, "global_batch": 8, "engine": "torch@2.0"},
        "ALiBi",
    ),
    "four bits where no GEMM has them": (
        {"model": "llama-3-8b", "on": "H100:8", "seq": 8192, "global_batch": 8, "dtype": "nvfp4"},
        "no fp4",
    ),
    "fp8 without compiling": (
        {"model": "llama-3-8b", "on": "H100:8", "seq": 8192, "global_batch": 8, "zero": 3, "dtype": "fp8",
         "engine": "torchtitan@2024-eager"},
        "torch.compile",
    ),
}  # fmt: skip


def predicted(options: dict[str, Any]) -> Any:
    named = dict(options)
    return gnomon.simulate_training(named.pop("model"), **named)


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_people_publish_is_predicted(name: str) -> None:
    """No faster than the chips' peak, no absurd part of it, and with all that a rank holds in memory."""
    answer = predicted(ACCEPTED[name])
    assert 0 < answer.mfu <= answer.hfu < 1
    assert 1 / answer.mfu < LONGEST
    assert answer.step_time_s.low < answer.step_time_s.value < answer.step_time_s.high
    held = max(sum(part[name] for name in ("weights", "gradients", "optimizer")) for part in answer.memory_parts)
    assert 0 < held < answer.peak_memory_bytes.value
    assert answer.energy_j > 0


@pytest.mark.battery(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_with_a_reason(name: str) -> None:
    options, why = REFUSED[name]
    with pytest.raises(GnomonError, match=why) as refused:
        predicted(options)
    assert refused.value.hint
