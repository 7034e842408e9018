"""vLLM of 2023 and 2024, as published measurements have it: predicted, not started.

Both schedule a step when the one before it is done, in the process that runs the model, so that the host's work on
every sequence stands between two steps. 0.2 has no CUDA graphs. Figures are fitted by `python -m tools.vllm_early` to
one chip of each table and tested on the other; kernels, memory and schedulers are those of today's vLLM.
"""

from __future__ import annotations

from gnomon.engines.vllm.releases import Release, Tier

USUAL = (Tier(from_bytes=0, tokens=2048, sequences=256),)
"""On all chips, more tokens where the longest prompt has more (`SchedulerConfig`)."""
SHARE = 0.9
"""`EngineArgs.gpu_memory_utilization`."""
FIRST_SETTINGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size",
                  "front_end")  # fmt: skip
"""`EngineArgs` of 0.2.0, and how vLLM is called."""
LATER_SETTINGS = (
    *FIRST_SETTINGS, "enforce_eager", "enable_prefix_caching", "cpu_offload_gb", "enable_lora", "max_loras",
    "max_lora_rank", "max_cpu_loras", "expert_popularity",
)  # fmt: skip
"""`EngineArgs` of 0.5.4. Its drafts are not priced."""
EARLY = (
    Release(
        version="0.2.0",
        tiers=USUAL,
        second_runner=(),
        operated=False,
        takes=FIRST_SETTINGS,
        formats=("bf16", "fp16", "int4"),
        generations=("Volta", "Turing", "Ampere", "Ada", "Hopper"),
        memory_share=SHARE,
        whole_prompts=True,
        eager=True,
        shares_prefixes=False,
        host={
            "eager_base_us": 8000.0, "eager_layer_us": 462.5, "gap_us": 8000.0, "gap_sequence_us": 170.0,
            "decode_base_us": 0.0, "decode_sequence_us": 0.0, "launch_sequence_us": 170.0, "spread": 0.35,
        },
        fitted_on="Splitwise's table (2023), Llama-2-70B on A100s, decodes",
        tested_on="the same on H100s, whose hosts are faster: 39% too slow",
    ),
    Release(
        version="0.5.4",
        tiers=USUAL,
        second_runner=(),
        operated=False,
        takes=LATER_SETTINGS,
        degrees=("pp",),
        formats=("bf16", "fp16", "int4", "int8", "fp8"),
        caches=("bf16", "fp16", "fp8"),
        generations=("Volta", "Turing", "Ampere", "Ada", "Hopper", "CDNA2", "CDNA3"),
        memory_share=SHARE,
        whole_prompts=True,
        shares_prefixes=False,
        host={
            "gap_us": 600.0, "gap_sequence_us": 80.0, "decode_base_us": 0.0, "decode_sequence_us": 0.0, "spread": 0.3,
        },
        gap_ranks_us=900.0,
        fitted_on="LLM-Inference-Bench (2024), A100s",
        tested_on="the same on H100s: 13% off",
    ),
)  # fmt: skip
