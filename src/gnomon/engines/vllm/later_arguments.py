"""What releases after 0.24 changed of `vllm serve`'s flags, and the table of a release's flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from gnomon.engines.command_line import FlagTable, Unused, known_fields, names, unused_flags
from gnomon.engines.imported import WeightFormats
from gnomon.engines.vllm.arguments import ACTING, CHOICES, JSON, SEVERAL, SWITCHES, TABLE, UNUSED, dropped
from gnomon.engines.vllm.imported_drafts import BESIDE, DRAFTS, NOT_PRICED, OWN_HEADS, DraftFlags
from gnomon.engines.vllm.imported_weights import FORMATS, OTHER_CACHES, STORED
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

MORE_HEADS = names("""
    bailing_hybrid_mtp bailing_hybrid_v3_mtp dots3_note_mtp glm5_next_mtp hy_v4_mtp inkling_mtp kimi_k3_mtp
    qwen4_exp_mtp step5_mtp""")
MORE_DRAFTS, FEWER_DRAFTS = names("dspark"), names("medusa mlp_speculator")
MORE_FIELDS = names("""
    disable_eagle_block_drop disable_lookahead_block_hashes draft_lm_head_quantization dspark_draft_topk
    enable_adaptive_verification fly_entropy_threshold fly_entropy_top_k fly_window_size
    index_share_for_mtp_iteration kv_cache_dtype use_heterogeneous_vocab xpress_topc""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFlags:
    """What the flags of one release say."""

    table: FlagTable
    unused: Mapping[str, Unused]
    choices: Mapping[str, tuple[str, ...]]
    """Values that vLLM takes where Gnomon prices only some of them."""
    formats: WeightFormats
    drafts: DraftFlags


@cache
def release_flags(version: str) -> ReleaseFlags:
    """The flags of a release."""
    found = release(version)
    if found is FIRST:
        return ReleaseFlags(table=TABLE, unused=UNUSED, choices=CHOICES, formats=FORMATS, drafts=DRAFTS)
    kept = {name: why for name, why in UNUSED.items() if name not in (*GONE, *BACK)}
    old = dropped(found.title, (*(name for name in kept if kept[name] == _EARLIER), *GONE))
    unused = kept | unused_flags(NO_EFFECT, NOT_MODELLED) | old
    switched = frozenset(SWITCHED)
    stored = tuple(name for name in (*STORED, *MORE_METHODS) if name not in FEWER_METHODS)
    return ReleaseFlags(
        table=replace(
            TABLE,
            title=found.title,
            known=ACTING | unused.keys(),
            switches=(SWITCHES - frozenset(BACK)) | switched,
            negatable=(TABLE.negatable - frozenset(BACK)) | switched,
            several=SEVERAL | {"sleep-preserve-parameter-names"},
            json=JSON | frozenset(JSON_VALUES),
            aliases={"device-memory-utilization": "gpu-memory-utilization"},
            paired=True,
        ),
        unused=unused,
        choices={name: (*values, *MORE_CHOICES.get(name, ())) for name, values in CHOICES.items()},
        formats=replace(FORMATS, stored=stored, other_caches=(*OTHER_CACHES, *MORE_CACHES)),
        drafts=DraftFlags(
            heads=(*OWN_HEADS, *MORE_HEADS),
            not_priced=(*(name for name in NOT_PRICED if name not in FEWER_DRAFTS), *MORE_DRAFTS),
            beside=(*BESIDE, *MORE_FIELDS),
        ),
    )


_EARLIER = next(iter(dropped(FIRST.title, ("any",)).values()))


def most_known(fields: Iterable[str]) -> int:
    """How many fields of a configuration file are flags of one release, of the one that knows most of them."""
    names = list(fields)
    return max(known_fields(names, release_flags(version).table) for version in RELEASES)
