"""What releases after 0.24 changed of `vllm serve`'s flags, and the table of a release's flags."""

from __future__ import annotations

from functools import cache

from gnomon.engines.vllm.arguments import (
    CHOICES,
    JSON,
    OTHER_CACHES,
    SEVERAL,
    STORED,
    SWITCHES,
    TABLE,
    UNUSED,
    FlagTable,
    dropped,
    names,
    unused,
)
from gnomon.engines.vllm.releases import FIRST, RELEASES, release

GONE = names("calculate-kv-scales max-long-partial-prefills max-num-partial-prefills override-attention-dtype")
"""Flags of 0.24 that 0.33 does not have."""
BACK = names("disable-log-requests")
"""Flags that 0.24 does not have, and that are a second name of another in 0.33."""
NO_EFFECT = {
    "how clients reach the server, not what it computes": "grpc-port sse-keep-alive-interval",
    "which tokens are made, not how fast": "watermark-config",
    "how prompts and answers are written": """
        anthropic-disabled-thinking-effort cohere-format cohere-is-reasoning-model reasoning-effort-map
        tool-strict-level trust-request-mm-kwargs""",
    "logs and metrics": """
        custom-histogram-buckets enable-per-request-metrics jit-monitor-mode log-level logging-config
        per-request-spec-decode-metrics""",
    "where and how files are loaded, once at the start": """
        sleep-mode-backend sleep-mode-offload-cudagraph sleep-preserve-parameter-names enable-nccl-comm-suspend""",
    "what is done when a process fails": "enable-fault-tolerance fault-tolerance-config watchdog-config",
}
NOT_MODELLED = {
    "LoRA adapters": "enable-moe-shared-loras max-lora-cls-labels",
    "other formats or layouts of the cache": """
        enable-mamba-shared-prefix-checkpoint prefix-cache-retention-interval prefix-match-unit swa-bounded-replay
        replayssm-buffer-len use-replayssm""",
    "another choice of kernels than vLLM's own": """
        kda-decode-backend kda-prefill-backend mamba-ssu-algorithm monokernel sparse-indexer-topk-backend
        dcp-q-replicate enable-hc-sp enable-batch-sharded-sampling""",
    "the scheduler beside its limits": """
        long-prefill-token-threshold-adaptive max-num-active-seqs max-num-queued-reqs max-num-queued-tokens
        max-num-scheduled-tokens""",
    "expert load balancing and placement": "elastic-ep-max-dp-size enable-scale-out",
    "how data-parallel ranks wait for each other": "dp-sync-interval",
    "several API server processes, and where processes run on the host": "enable-shm-tensor-arena",
    "another network than the checkpoint's": "engram-config model-class-overrides",
    "images, audio and video": """
        ec-manager-config mm-device-do-normalize mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-device
        video-pruning-method""",
    "constrained or post-processed sampling": "return-sampling-mask",
    "what is returned beside tokens": "aux-output-config enable-trace-replay",
}
SWITCHED = names("""
    cohere-is-reasoning-model dcp-q-replicate enable-batch-sharded-sampling enable-fault-tolerance enable-hc-sp
    enable-mamba-shared-prefix-checkpoint enable-moe-shared-loras enable-nccl-comm-suspend
    enable-per-request-metrics enable-scale-out enable-shm-tensor-arena enable-trace-replay
    long-prefill-token-threshold-adaptive mm-device-do-normalize monokernel return-sampling-mask
    sleep-mode-offload-cudagraph swa-bounded-replay trust-request-mm-kwargs use-replayssm""")
JSON_VALUES = names("""
    aux-output-config ec-manager-config engram-config fault-tolerance-config logging-config model-class-overrides
    reasoning-effort-map watchdog-config watermark-config""")
MORE_CHOICES = {
    "all2all-backend": names("moonep"),
    "moe-backend": names("""
        aiter_mega_moe aiter_triton_mxfp4_bf16 aiter_triton_mxfp4_mxfp4 b12x batched_triton
        flashinfer_moe_ep_cutedsl flashinfer_moe_ep_mega_deep_gemm hpc rdna3"""),
}
MORE_METHODS, FEWER_METHODS = names("nvfp4_per_token"), names("bitsandbytes")
MORE_CACHES = names("""
    int4_per_token_head nvfp4_4over6 nvfp4_ds_mla octave_k3v3 octave_k3v3_compact octave_k3v4 ultraquant_4bit""")


@cache
def flag_table(version: str) -> FlagTable:
    """The flags of a release."""
    found = release(version)
    if found is FIRST:
        return TABLE
    kept = {name: why for name, why in UNUSED.items() if name not in (*GONE, *BACK)}
    old = dropped(found.title, (*(name for name in kept if kept[name].why == _EARLIER), *GONE))
    return FlagTable(
        title=found.title,
        unused=kept | unused(NO_EFFECT, NOT_MODELLED) | old,
        switches=(SWITCHES - frozenset(BACK)) | frozenset(SWITCHED),
        several=SEVERAL | {"sleep-preserve-parameter-names"},
        json=JSON | frozenset(JSON_VALUES),
        choices={name: (*values, *MORE_CHOICES.get(name, ())) for name, values in CHOICES.items()},
        methods=tuple(name for name in (*STORED, *MORE_METHODS) if name not in FEWER_METHODS),
        caches=(*OTHER_CACHES, *MORE_CACHES),
        other_names={"device-memory-utilization": "gpu-memory-utilization"},
        paired=True,
    )


_EARLIER = next(iter(dropped(FIRST.title, ("any",)).values())).why


def every_flag() -> frozenset[str]:
    """Flags that any release has."""
    return frozenset().union(*(flag_table(version).known for version in RELEASES))
