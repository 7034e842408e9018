"""Every flag of `vllm serve`: which act in a plan, which do not change its figures, and which do in ways that are
not modelled. The lists are those of 0.24; `later_arguments.py` has what later releases changed. `tests/oracles` checks
them against vLLM's own parser."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.engines.command_line import FlagTable, Unused, names, unused_flags
from gnomon.engines.vllm.options import OPTIONS
from gnomon.engines.vllm.releases import FIRST

DEGREES = {
    "tensor-parallel-size": "tp",
    "pipeline-parallel-size": "pp",
    "data-parallel-size": "dp",
    "decode-context-parallel-size": "cp",
}
LAYOUT = (
    "nnodes",
    "node-rank",
    "headless",
    "data-parallel-size-local",
    "data-parallel-rank",
    "data-parallel-start-rank",
    "data-parallel-hybrid-lb",
    "data-parallel-external-lb",
)
"""How the processes of one replica are spread over nodes."""
OWN = ("model", "config", "enable-expert-parallel", "dtype", "quantization", "kv-cache-dtype", "quantization-config",
       "cudagraph-capture-sizes", "compilation-config", "enable-chunked-prefill", "optimization-level",
       "prefill-context-parallel-size", "kv-offloading-backend", "speculative-config", "spec-method", "spec-model",
       "spec-tokens")  # fmt: skip
"""Flags that are read one by one."""
SHORT = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size", "-pcp": "prefill-context-parallel-size", "-ep": "enable-expert-parallel",
    "-q": "quantization", "-n": "nnodes", "-r": "node-rank", "-asc": "api-server-count", "-sc": "speculative-config",
    "-cc": "compilation-config", "-ac": "attention-config", "-dc": "diffusion-config", "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank", "-dpl": "data-parallel-size-local", "-dpa": "data-parallel-address",
    "-dpp": "data-parallel-rpc-port", "-dpb": "data-parallel-backend", "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb", "-dpm": "data-parallel-multi-port-external-lb",
}  # fmt: skip
NO_EFFECT = {
    "how clients reach the server, not what it computes": """
        host port uds api-key ssl-keyfile ssl-certfile ssl-ca-certs enable-ssl-refresh ssl-cert-reqs ssl-ciphers
        root-path middleware allow-credentials allowed-origins allowed-methods allowed-headers
        enable-request-id-headers disable-fastapi-docs enable-offline-docs h11-max-incomplete-event-size
        h11-max-header-count data-parallel-supervisor-port dp-supervisor-probe-interval-s
        dp-supervisor-probe-timeout-s dp-supervisor-probe-failure-threshold grpc shutdown-timeout""",
    "a name, not a size": "served-model-name response-role",
    "which tokens are made, not how fast": """
        seed generation-config override-generation-config logprobs-mode use-fp64-gumbel fingerprint-mode
        fingerprint-value""",
    "how prompts and answers are written": """
        chat-template chat-template-content-format trust-request-chat-template default-chat-template-kwargs
        enable-auto-tool-choice exclude-tools-when-tool-choice-none tool-call-parser tool-parser-plugin tool-server
        reasoning-parser reasoning-parser-plugin reasoning-config return-tokens-as-token-ids tokens-only
        enable-prompt-tokens-details enable-force-include-usage enable-tokenizer-info-endpoint
        interleave-mm-strings io-processor-plugin""",
    "logs and metrics": """
        log-config-file max-log-len enable-log-outputs enable-log-deltas log-error-stack uvicorn-log-level
        disable-uvicorn-access-log disable-access-log-for-endpoints enable-server-load-tracking disable-log-stats
        aggregate-engine-logging enable-log-requests show-hidden-metrics-for-version otlp-traces-endpoint
        kv-cache-metrics kv-cache-metrics-sample cudagraph-metrics enable-mfu-metrics
        enable-logging-iteration-details jit-monitor-verbose kv-events-config fail-on-environ-validation""",
    "where and how files are loaded, once at the start": """
        tokenizer tokenizer-mode tokenizer-revision trust-remote-code revision code-revision hf-config-path
        config-format hf-token load-format download-dir safetensors-load-strategy safetensors-prefetch-num-threads
        safetensors-prefetch-block-size model-loader-extra-config ignore-patterns use-tqdm-on-load
        pt-load-map-location max-parallel-loading-workers allow-deprecated-quantization enable-ep-weight-filter
        allowed-local-media-path allowed-media-domains enable-sleep-mode enable-cumem-allocator
        weight-transfer-config""",
    "how processes find each other": """
        master-addr master-port distributed-timeout-seconds cpu-distributed-timeout-seconds data-parallel-address
        data-parallel-rpc-port data-parallel-backend data-parallel-multi-port-external-lb device-ids
        distributed-executor-backend""",
}
"""Why no figure depends on flags."""
NOT_MODELLED = {
    "LoRA adapters": """
        lora-modules lora-dtype enable-tower-connector-lora fully-sharded-loras lora-target-modules default-mm-loras
        specialize-active-lora enable-mixed-moe-lora-format""",
    "which parameters stay on the host": "cpu-offload-params offload-params",
    "a cache that is sent to other servers": "kv-transfer-config ec-transfer-config",
    "a size of the cache other than what the memory leaves": "kv-cache-memory-bytes num-gpu-blocks-override",
    "other formats or layouts of the cache": """
        calculate-kv-scales kv-cache-dtype-skip-layers mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size
        mamba-cache-mode enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds
        disable-hybrid-kv-cache-manager kv-sharing-fast-prefill prefix-caching-hash-algo override-attention-dtype""",
    "another choice of kernels than vLLM's own": """
        attention-backend attention-config mamba-backend linear-backend kernel-config ir-op-priority
        enable-flashinfer-autotune gdn-prefill-backend disable-custom-all-reduce disable-cascade-attn
        mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-path
        mm-encoder-fp8-scale-save-margin dcp-comm-backend enable-flash-late-interaction""",
    "the scheduler beside its limits": """
        max-num-partial-prefills max-long-partial-prefills long-prefill-token-threshold scheduler-cls
        scheduler-reserve-full-isl watermark prefill-schedule-interval disable-chunked-mm-input stream-interval
        performance-mode""",
    "overlapped micro-batches": "enable-dbo ubatch-size dbo-decode-token-threshold dbo-prefill-token-threshold",
    "expert load balancing and placement": """
        eplb-config expert-placement-strategy enable-elastic-ep enable-return-routed-experts""",
    "the layout of a cache that ranks share": "dcp-kv-cache-interleave-size cp-kv-cache-interleave-size",
    "how data-parallel ranks wait for each other": "disable-nccl-for-dp-synchronization",
    "several API server processes, and where processes run on the host": """
        api-server-count renderer-num-workers numa-bind numa-bind-nodes numa-bind-cpus ray-workers-use-nsight""",
    "another network than the checkpoint's": """
        hf-overrides model-impl runner convert pooler-config diffusion-config disable-sliding-window
        language-model-only mm-encoder-only skip-tokenizer-init enable-prompt-embeds""",
    "images, audio and video": """
        limit-mm-per-prompt enable-mm-embeds media-io-kwargs mm-processor-kwargs mm-processor-cache-gb
        mm-processor-cache-type mm-shm-cache-max-object-size-mb mm-encoder-tp-mode skip-mm-profiling
        video-pruning-rate mm-tensor-ipc""",
    "constrained or post-processed sampling": "structured-outputs-config logits-processors max-logprobs",
    "what profilers add": "profiler-config collect-detailed-traces enable-layerwise-nvtx-tracing",
    "code of your own": "worker-cls worker-extension-cls additional-config",
}
"""What flags do that no figure has in it."""
REMOVED = names("""
    swap-space num-scheduler-steps use-v2-block-manager disable-log-requests preemption-mode
    multi-step-stream-outputs guided-decoding-backend speculative-model num-speculative-tokens worker-use-ray
    engine-use-ray rope-scaling rope-theta max-seq-len-to-capture max-context-len-to-capture cuda-graph-sizes
    task enable-reasoning device tokenizer-pool-size num-lookahead-slots disable-async-output-proc
    disable-frontend-multiprocessing override-neuron-config use-v1 max-paddings""")
"""Flags of earlier versions that scripts still have."""
SWITCHES = frozenset(
    names("""
    headless grpc data-parallel-multi-port-external-lb disable-log-stats aggregate-engine-logging
    trust-request-chat-template return-tokens-as-token-ids enable-auto-tool-choice
    exclude-tools-when-tool-choice-none enable-prompt-tokens-details enable-server-load-tracking
    enable-force-include-usage enable-tokenizer-info-endpoint enable-log-outputs enable-log-deltas
    log-error-stack tokens-only disable-uvicorn-access-log allow-credentials enable-ssl-refresh
    enable-request-id-headers disable-fastapi-docs enable-offline-docs enable-flash-late-interaction
    trust-remote-code allow-deprecated-quantization enforce-eager enable-return-routed-experts use-fp64-gumbel
    disable-sliding-window disable-cascade-attn skip-tokenizer-init enable-prompt-embeds enable-sleep-mode
    enable-cumem-allocator use-tqdm-on-load enable-mamba-cache-stochastic-rounding numa-bind
    data-parallel-hybrid-lb data-parallel-external-lb enable-expert-parallel enable-ep-weight-filter enable-dbo
    enable-elastic-ep disable-nccl-for-dp-synchronization enable-eplb ray-workers-use-nsight
    disable-custom-all-reduce enable-prefix-caching calculate-kv-scales kv-sharing-fast-prefill
    language-model-only enable-mm-embeds mm-encoder-only interleave-mm-strings skip-mm-profiling enable-lora
    enable-tower-connector-lora fully-sharded-loras specialize-active-lora enable-mixed-moe-lora-format
    kv-cache-metrics cudagraph-metrics enable-layerwise-nvtx-tracing enable-mfu-metrics
    enable-logging-iteration-details jit-monitor-verbose enable-chunked-prefill disable-chunked-mm-input
    scheduler-reserve-full-isl disable-hybrid-kv-cache-manager async-scheduling enable-flashinfer-autotune
    fail-on-environ-validation enable-log-requests use-v2-block-manager disable-log-requests worker-use-ray
    engine-use-ray enable-reasoning disable-async-output-proc disable-frontend-multiprocessing use-v1""")
)
"""Flags without a value."""
ONE_WAY = ("headless", "grpc", "data-parallel-multi-port-external-lb", "disable-log-stats", "aggregate-engine-logging")
"""Switches that have no `--no-` form."""
SEVERAL = frozenset(
    names("""
    lora-modules api-key allowed-media-domains served-model-name logits-processors ignore-patterns
    numa-bind-nodes numa-bind-cpus kv-cache-dtype-skip-layers cpu-offload-params offload-params
    lora-target-modules collect-detailed-traces cudagraph-capture-sizes""")
)
"""Flags with one or more values behind them."""
OPTIONAL = ("hf-token",)
"""Flags whose value may be left out."""
REPEATED = ("middleware",)
"""Flags that may be given several times."""
JSON = frozenset(
    names("""
    default-chat-template-kwargs allowed-origins allowed-methods allowed-headers quantization-config
    pooler-config override-generation-config eplb-config limit-mm-per-prompt media-io-kwargs mm-processor-kwargs
    default-mm-loras ir-op-priority speculative-config diffusion-config kv-transfer-config kv-events-config
    ec-transfer-config compilation-config attention-config reasoning-config kernel-config
    structured-outputs-config profiler-config weight-transfer-config""")
)
"""Flags whose value is JSON."""
JSON_OR_TEXT = frozenset(["hf-overrides", "model-loader-extra-config", "pt-load-map-location", "additional-config"])

CHOICES = {
    "all2all-backend": names("""
    allgather_reducescatter deepep_high_throughput deepep_low_latency deepep_v2 flashinfer_all2allv
    flashinfer_nvlink_one_sided flashinfer_nvlink_two_sided mori_high_throughput mori_low_latency naive nixl_ep
    pplx"""),
    "moe-backend": names("""
    aiter auto cutlass deep_gemm deep_gemm_mega_moe emulation flashinfer_b12x flashinfer_cutedsl
    flashinfer_cutlass flashinfer_trtllm flydsl humming marlin triton triton_unfused"""),
}
"""Values that vLLM takes where Gnomon prices only some of them."""


def dropped(title: str, flags: Iterable[str]) -> dict[str, Unused]:
    """Flags that a release no longer has."""
    return dict.fromkeys(flags, Unused(why=f"a flag of earlier versions, which {title} does not have", affects=False))


UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED) | dropped(FIRST.title, REMOVED)
SETTINGS = {option.flag.lstrip("-"): option.name for option in OPTIONS if option.flagged and "." not in option.flag}
"""The setting behind a flag."""
ACTING = frozenset((*DEGREES, *LAYOUT, *OWN, *SETTINGS)) - UNUSED.keys()
KNOWN = ACTING | UNUSED.keys()
TABLE = FlagTable(
    title=FIRST.title,
    known=KNOWN,
    switches=SWITCHES,
    negatable=SWITCHES - set(ONE_WAY),
    several=SEVERAL,
    optional=frozenset(OPTIONAL),
    repeated=frozenset(REPEATED),
    json=JSON,
    json_or_text=JSON_OR_TEXT,
    short=SHORT,
    folded=True,
    dotted=True,
)
