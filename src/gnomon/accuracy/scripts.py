"""How InferenceX started the servers whose rows are compared: what its table does not say and its scripts do.

Facts of `benchmarks/` and `perf-changelog.yaml` of github.com/SemiAnalysisAI/InferenceX, by model, chip and release.
All of them send random prompts over HTTP in a closed loop (`--request-rate inf --max-concurrency N`, lengths even
between 0.8 of the nominal one and it) and turn prefix caching off or send nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BLACKWELL = ("B200", "B300", "GB200", "GB300")
HOPPER = ("H100", "H200")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerScript:
    """What one script sets. `settings` are vLLM's; a value of None is what the row's clients are."""

    models: tuple[str, ...]
    chips: tuple[str, ...]
    precision: str = ""
    """How the row's number format begins; any where it is empty."""
    until: str = ""
    """The first release that it does not hold for; all where it is empty."""
    kv_dtype: str | None = None
    expert_parallel: bool = False
    """Whether experts are spread over the tensor-parallel ranks whatever the row says."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_input: float = 0.0
    """Tokens of a step, over those of the nominal prompt, where it follows them."""


_BATCHED = {"max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.9}
SCRIPTS = (
    ServerScript(  # 70b_fp8_b200_docker.sh, 70b_fp4_b200_docker.sh
        models=("llama-3.1-70b",), chips=BLACKWELL, kv_dtype="fp8", settings=_BATCHED | {"max_num_seqs": 512}
    ),
    # 70b_fp8_h100_slurm.sh, 70b_fp8_h200_slurm.sh. They ask for a cache in fp8, and the rows say 16 bits: with 2 H100
    # and prompts of 8192 tokens, 32 and 64 clients have the same TPOT (52.4 ms) and 64 wait 59 s for their first token,
    # as where the cache holds 31 sequences; in fp8 it would hold 62.
    ServerScript(models=("llama-3.1-70b",), chips=HOPPER, settings=_BATCHED | {"max_num_seqs": None}),
    ServerScript(  # gptoss_fp4_b200.sh; the cache is in fp8 from 0.11.2 on (perf-changelog, pull request 273)
        models=("gpt-oss-120b",),
        chips=BLACKWELL,
        kv_dtype="fp8",
        settings=_BATCHED | {"max_num_seqs": 512, "max_cudagraph_capture_size": 2048, "moe_activation": "mxfp8"},
    ),
    ServerScript(  # gptoss_fp4_h100.sh of November and December 2025: Triton's experts (pull request 327 changed them)
        models=("gpt-oss-120b",),
        chips=HOPPER,
        until="0.13",
        settings=_BATCHED | {"max_num_seqs": None, "max_cudagraph_capture_size": 2048},
    ),
    ServerScript(  # gptoss_fp4_h100.sh, gptoss_fp4_h200.sh
        models=("gpt-oss-120b",),
        chips=HOPPER,
        settings=_BATCHED | {"max_num_seqs": None, "max_cudagraph_capture_size": 2048, "moe_backend": "marlin"},
    ),
    ServerScript(  # minimaxm2.5_fp8_b200.sh of March 2026: expert parallelism always on, FlashInfer's experts off
        models=("minimax-m2",),
        chips=BLACKWELL,
        precision="fp8",
        until="0.19",
        expert_parallel=True,
        settings={"gpu_memory_utilization": 0.95, "block_size": 32, "moe_backend": "triton"},
    ),
    ServerScript(  # minimaxm2.5_fp8_b300.sh, which says that it is the B200's
        models=("minimax-m2",),
        chips=BLACKWELL,
        precision="fp8",
        kv_dtype="fp8",
        settings={"gpu_memory_utilization": 0.9, "block_size": 32, "max_cudagraph_capture_size": 2048},
        by_input=2.0,
    ),
    ServerScript(  # minimaxm2.5_fp4_b300.sh, which says that it is the B200's
        models=("minimax-m2",),
        chips=BLACKWELL,
        precision="nvfp4",
        kv_dtype="fp8",
        settings={"gpu_memory_utilization": 0.9, "max_cudagraph_capture_size": 2048},
        by_input=2.0,
    ),
    ServerScript(  # minimaxm2.5_fp8_h100.sh
        models=("minimax-m2",), chips=("H100",), settings={"gpu_memory_utilization": 0.9, "max_num_seqs": 256}
    ),
)


def script_of(model: str, chip: str, precision: str, version: str) -> ServerScript | None:
    """The script that a row of InferenceX is of; None where none is known. A row without a release is older than those
    that have one."""
    for found in SCRIPTS:
        known = model in found.models and chip.startswith(found.chips) and precision.startswith(found.precision)
        if known and (not found.until or _release(version) < _release(found.until)):
            return found
    return None


def _release(version: str) -> tuple[int, ...]:
    parts = version.partition(" ")[0].split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0, 0)
