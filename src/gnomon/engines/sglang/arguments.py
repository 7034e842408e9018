"""Every flag of SGLang 0.5.23's server: which act in a plan, which do not change its figures, and which do in ways that
are not modelled. `tests/engines/data/sglang_flags.txt` has the names that SGLang's own parser takes."""

from __future__ import annotations

from gnomon.engines.command_line import FlagTable, names, unused_flags
from gnomon.engines.sglang.options import OPTIONS

DEGREES = ("tp-size", "pp-size", "dp-size", "attn-dp-size", "ep-size")
LAYOUT = ("nnodes", "node-rank", "enable-dp-attention", "moe-a2a-backend", "load-balance-method")
OWN = names("""
    model-path config dtype quantization kv-cache-dtype disaggregation-mode disable-decode-cuda-graph
    cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-config cuda-graph-bs-decode model-type""")
"""Flags that are read one by one."""
SERVE_ONLY = ("model-type",)
"""Flags that `sglang serve` takes off before the server's parser sees them."""
REFUSED_ABOVE_ONE = {
    "dcp-size": "decode context parallelism under SGLang is not modelled",
    "attn-cp-size": "context parallelism under SGLang is not modelled",
    "moe-dp-size": "experts in data-parallel groups of their own are not modelled",
    "dwdp-size": "experts whose weights are fetched from other ranks are not modelled",
}
"""Degrees that would change the ranks of a replica."""
EVERYWHERE = names("""
    megamoe deepep deepep_v2 mooncake nixl ascend_fuseep flashinfer flashinfer_megamoe mori pplx""")
"""Backends of `--moe-a2a-backend` that spread experts over all ranks, whatever `--ep-size` says
(`_A2A_EP_SPANNING_BACKENDS`)."""
OTHER_BACKENDS = ("none", "ascend_tp")
ALIASES = {
    "model": "model-path", "nccl-init-addr": "dist-init-addr", "tensor-parallel-size": "tp-size",
    "decode-context-parallel-size": "dcp-size", "pipeline-parallel-size": "pp-size", "data-parallel-size": "dp-size",
    "attention-data-parallel-size": "attn-dp-size", "attention-context-parallel-size": "attn-cp-size",
    "moe-data-parallel-size": "moe-dp-size", "grpc-http-sidecar-port": "smg-http-sidecar-port",
    "context-bucket": "cuda-graph-prefill-max-context", "expert-parallel-size": "ep-size", "ep": "ep-size",
    "speculative-draft-model": "speculative-draft-model-path", "enable-hicache": "enable-hierarchical-cache",
    "hierarchical-sparse-attention-extra-config": "hisparse-config",
}  # fmt: skip
EARLIER = {"cuda-graph-max-bs": "cuda-graph-max-bs-decode", "cuda-graph-bs": "cuda-graph-bs-decode"}
"""Names of earlier versions, which 0.5.23 calls ambiguous."""
NO_EFFECT = {
    "how clients reach the server, not what it computes": """
        host port fastapi-root-path smg-grpc-mode grpc-mode grpc-port sidecar sidecar-args enable-http2
        http2-max-concurrent-streams http2-initial-connection-window-size ssl-keyfile ssl-certfile ssl-ca-certs
        ssl-keyfile-password enable-ssl-refresh api-key admin-api-key smg-http-sidecar-port
        grpc-response-timeout-secs enable-http-worker-reuseport""",
    "a name, not a size": "served-model-name weight-version forward-pass-metrics-worker-id",
    "which tokens are made, not how fast": """
        random-seed sampling-defaults preferred-sampling-params mlx-enable-sampling""",
    "how prompts and answers are written": """
        chat-template trust-request-chat-template hf-chat-template-name completion-template file-storage-path
        enable-cache-report return-input-ids return-output-ids default-chat-template-kwargs tool-server
        reasoning-parser tool-call-parser stream-response-default-include-usage enable-response-store
        allow-auto-truncate asr-max-buffer-seconds asr-max-concurrent-sessions""",
    "logs and metrics": """
        log-level log-level-http log-requests log-requests-level log-requests-format log-requests-target
        uvicorn-access-log-exclude-prefixes crash-dump-folder show-time-cost enable-metrics enable-mfu-metrics
        enable-metrics-for-all-schedulers load-snapshot-publish-interval tokenizer-metrics-custom-labels-header
        tokenizer-metrics-allowed-custom-labels extra-metric-labels bucket-time-to-first-token
        bucket-inter-token-latency bucket-e2e-request-latency prompt-tokens-buckets generation-tokens-buckets
        gc-warning-threshold-secs decode-log-interval enable-request-time-stats-logging kv-events-config
        load-publish-endpoint enable-forward-pass-metrics forward-pass-metrics-ipc-name enable-trace trace-modules
        otlp-traces-endpoint otlp-service-name export-metrics-to-file export-metrics-to-file-dir
        prefill-delayer-forward-passes-buckets prefill-delayer-wait-seconds-buckets expert-balancedness-report-mode
        spec-trace-dir""",
    "where and how files are loaded, once at the start": """
        tokenizer-path tokenizer-mode load-format model-loader-extra-config trust-remote-code revision
        model-config-parser quantization-param-path modelopt-checkpoint-restore-path modelopt-checkpoint-save-path
        modelopt-export-path startup-weight-load-mode custom-weight-loader weight-loader-disable-mmap
        weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads weight-loader-drop-cache-after-load
        remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
        remote-instance-weight-loader-send-weights-group-ports remote-instance-weight-loader-backend
        remote-instance-weight-loader-start-seed-via-transfer-engine engine-info-bootstrap-port modelexpress-config
        download-dir model-checksum delete-ckpt-after-loading decrypted-config-file decrypted-draft-config-file
        checkpoint-engine-wait-weights-before-ready weight-cache-mode weight-cache-socket weight-cache-timeout
        skip-server-warmup warmups pre-warm-nccl enable-cudagraph-gc enable-profile-cuda-graph
        disable-outlines-disk-cache enable-memory-saver enable-weights-cpu-backup
        enable-draft-weights-cpu-backup""",
    "how processes find each other, and their chips": """
        nccl-port dist-timeout dist-init-addr disaggregation-bootstrap-port
        gated-launch-port enable-p2p-check device base-gpu-id gpu-id-step
        watchdog-timeout soft-watchdog-timeout sleep-on-idle use-ray elastic-ep-scale-timeout""",
    "which requests are refused": """
        max-queued-requests abort-on-priority-when-disabled allowed-media-domains media-url-max-file-size-mb
        limit-mm-data-per-request trust-mm-content-hashes sampling-mask-max-tokens""",
}
"""Why no figure depends on flags."""
NOT_MODELLED = {
    "speculative decoding": """
        speculative-algorithm uno-lora-path speculative-draft-model-path speculative-draft-model-revision
        speculative-draft-load-format speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens
        speculative-dflash-block-size speculative-dspark-block-size speculative-dspark-sps-table-path
        speculative-dspark-confidence-sts-path speculative-dspark-align-verify-tokens-to-graph-tier
        speculative-accept-threshold-single speculative-accept-threshold-acc speculative-use-rejection-sampling
        speculative-token-map speculative-attention-mode speculative-draft-attention-backend
        speculative-dsa-topk-backend speculative-draft-kv-cache-dtype speculative-draft-window-size
        speculative-moe-runner-backend speculative-moe-a2a-backend speculative-enable-w4a4-mxfp4-megamoe
        speculative-draft-model-quantization enable-multi-layer-eagle speculative-adaptive
        speculative-adaptive-config speculative-ngram-min-bfs-breadth speculative-ngram-max-bfs-breadth
        speculative-ngram-match-type speculative-ngram-max-trie-depth speculative-ngram-capacity
        speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget
        speculative-ngram-external-corpus-max-tokens speculative-domino-candidate-pool-size
        speculative-use-block-verification speculative-draft-sink-size decoupled-spec-bind-endpoint
        decoupled-spec-connect-endpoints decoupled-spec-rank decoupled-spec-role""",
    "LoRA adapters": """
        enable-lora enable-lora-overlap-loading max-lora-rank lora-target-modules lora-paths max-loaded-loras
        max-loras-per-batch lora-eviction-policy lora-backend max-lora-chunk-size experts-shared-outer-loras
        lora-use-virtual-experts lora-strict-loading lora-drain-wait-threshold""",
    "weights on the host": """
        cpu-offload-gb offload-group-size offload-num-in-group offload-prefetch-step offload-mode
        ple-offload-embedding ple-offload-backend ple-offload-dir kt-weight-path kt-method kt-cpuinfer
        kt-threadpool-count kt-num-gpu-experts kt-max-deferred-experts-per-token enable-paged-experts
        paged-experts-num-resident""",
    "a KV cache beside the chip's memory": """
        enable-hierarchical-cache hicache-host-memory-mode hicache-ratio hicache-size hicache-write-policy
        hicache-io-backend hicache-mem-layout hicache-storage-backend hicache-storage-prefetch-policy
        hicache-storage-backend-extra-config hicache-storage-prefetch-retry-poll-interval
        hicache-storage-prefetch-retry-max-attempts hicache-host-memory-fraction
        enable-unified-cache-external-linker unified-cache-external-linker-backend
        unified-cache-external-linker-config enable-linker-mla-dedup enable-lmcache lmcache-config-file
        enable-flexkv flexkv-config-file""",
    "prefill and decode on servers of their own": """
        disaggregation-transfer-backend disaggregation-ib-device
        disaggregation-decode-enable-radix-cache disaggregation-decode-enable-offload-kvcache
        disaggregation-decode-retraction-backup num-reserved-decode-tokens disaggregation-decode-extra-slots
        disaggregation-decode-polling-interval optimistic-prefill-attempts disaggregation-enable-kv-checksum
        enable-pd-role-switch disaggregation-decode-host-receive-threshold disaggregation-decode-allocation-policy
        enable-pdmux pdmux-config-path sm-group-num""",
    "other formats, layouts or evictions of the cache": """
        radix-eviction-policy radix-eviction-policy-config enable-page-major-kv-layout enable-unified-memory
        enable-session-radix-cache radix-cache-backend enable-hisparse hisparse-config c128-page-size
        swa-full-tokens-ratio disable-hybrid-swa-memory swa-prefix-tails prefill-only-disable-kv-cache
        disable-chunked-prefix-cache max-mamba-cache-size mamba-full-memory-ratio mamba-ssm-dtype
        mamba-max-states-per-path enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds
        mamba-radix-cache-strategy mamba-track-interval enable-int8-mamba-checkpoint int8-mamba-ckpt-size
        strip-thinking-cache enable-streaming-session qsa-indexer-dtype prefill-kv-cache-dequant-dtype
        enable-encoder-swa-bounded-replay enable-decoder-swa-bounded-replay enable-kv-cache-sharding
        enable-dsa-cache-layer-split""",
    "another choice of kernels than SGLang's own": """
        decode-attention-backend prefill-attention-backend
        enable-lean-attention fp8-gemm-backend fp4-gemm-backend bf16-gemm-backend dsa-prefill-backend
        dsv4-prefill-backend dsa-decode-backend dsa-paged-mqa-logits-backend dsa-topk-backend
        disable-flashinfer-autotune flashinfer-autotune-skip-ops triton-attention-reduce-in-fp32
        triton-attention-num-kv-splits triton-attention-split-tile-size flashinfer-mla-disable-ragged
        enable-fused-qk-norm-rope enable-precise-embedding-interpolation enable-deepseek-v4-fp4-indexer
        dsv4-attn-backend enable-amd-monokernel monokernel-backend dsa-triton-union enable-dsa-fused-indexer
        enable-nvidia-megakernel sampling-backend mamba-backend linear-attn-backend linear-attn-decode-backend
        linear-attn-prefill-backend linear-attn-verify-backend enable-linear-replayssm linear-replayssm-cache-len
        enable-linear-replayssm-spec enable-fp32-lm-head enable-tf32-matmul enable-torch-compile-debug-mode
        torch-compile-max-bs enable-deterministic-inference rl-on-policy-target mm-attention-backend
        enable-fused-moe-sum-all-reduce flashinfer-mxfp4-moe-precision enable-w4a4-mxfp4-megamoe
        disable-shared-experts-fusion enforce-shared-experts-fusion""",
    "another choice of collectives than SGLang's own": """
        enable-nccl-nvls enable-symm-mem disable-custom-all-reduce enable-mscclpp enable-torch-symm-mem
        enable-scattered-sconv boundary-reduction enable-quant-communications
        enforce-disable-flashinfer-allreduce-fusion flashinfer-allreduce-fusion-backend
        enable-flashinfer-allreduce-fusion enable-aiter-allreduce-fusion disable-aiter-allreduce-fusion-in-prefill
        disable-aiter-allreduce-fusion-in-decode disable-flashinfer-cutlass-moe-fp4-allgather deepep-v2-mode
        deepep-mode fuseep-mode deepep-dispatcher-output-dtype deepep-config flashinfer-a2a-dispatch-type
        mooncake-ib-device dcp-comm-backend dcp-replicate-q-proj""",
    "other ways to share layers between ranks": """
        enable-prefill-cp cp-strategy enable-cp-decode-attn-tp enable-dp-lm-head enable-tp-lm-head-all-to-all
        enable-attn-tp-input-scattered enable-shared-experts-attn-tp shared-experts-tp-size enable-dense-mlp-attn-tp
        enable-layernorm-sp enable-megamoe-for-layernorm-sp disable-attn-tp-gather moe-dense-tp-size
        enable-dp-attention-local-control-broadcast pp-max-micro-batch-size pp-async-batch-depth""",
    "the captured sizes beside the largest": """
        cuda-graph-max-bs-prefill cuda-graph-bs-prefill cuda-graph-prefill-max-context
        cuda-graph-max-seq-len-prefill disable-cuda-graph-padding debug-cuda-graph""",
    "the scheduler beside its limits": """
        prefill-decode-interval prefill-decode-interval-min-bs enable-dynamic-chunking enable-priority-scheduling
        disable-priority-preemption default-priority-value schedule-low-priority-values-first
        priority-scheduling-preemption-threshold retraction-policy num-continuous-decode-steps
        scheduler-recv-interval enable-prefill-delayer prefill-delayer-max-delay-passes
        prefill-delayer-token-usage-low-watermark prefill-delayer-queue-min-ratio prefill-delayer-max-delay-ms
        min-free-slots-delay""",
    "overlapped micro-batches": """
        enable-two-batch-overlap enable-single-batch-overlap tbo-token-distribution-threshold""",
    "expert load balancing and placement": """
        ep-num-redundant-experts ep-dispatch-algorithm init-expert-location enable-eplb eplb-algorithm
        eplb-rebalance-num-iterations eplb-rebalance-layers-per-chunk eplb-min-rebalancing-utilization-threshold
        expert-distribution-recorder-mode expert-distribution-recorder-buffer-size elastic-ep-backend
        enable-elastic-expert-backup enable-waterfill elastic-ep-join-mode elastic-ep-join-rank-offset
        elastic-ep-initial-size max-ep-size""",
    "several tokenizer processes, and where processes run on the host": """
        tokenizer-backend tokenizer-worker-num detokenizer-worker-num enable-dynamic-batch-tokenizer
        dynamic-batch-tokenizer-batch-size dynamic-batch-tokenizer-batch-timeout enable-tokenizer-batch-encode
        disable-tokenizer-batch-decode batch-notify-size incremental-streaming-output numa-node gc-threshold""",
    "another network than the checkpoint's": """
        is-embedding model-impl json-model-override-args modelopt-quant quantize-and-serve rl-quant-profile
        skip-tokenizer-init encoder-only language-only language-model-only dllm-algorithm dllm-algorithm-config
        dllm-fdfo enable-mis""",
    "images, audio and video": """
        enable-multimodal enable-broadcast-mm-inputs-process enable-prefix-mm-cache mm-enable-dp-encoder
        mm-process-config mm-processor-worker-num mm-io-worker-num mm-preprocess-cache-size-mb enable-mm-global-cache
        image-processor-backend mm-global-cache-backend disable-fast-image-processor mm-feature-transport
        encoder-transfer-backend encoder-urls encoder-bootstrap-port encoder-register-urls
        enable-adaptive-dispatch-to-encoder""",
    "constrained or post-processed sampling": """
        grammar-backend constrained-json-whitespace-pattern constrained-json-disable-any-whitespace
        constrained-json-max-whitespace-cnt enable-strict-thinking enable-custom-logit-processor
        enable-return-hidden-states return-hidden-states-mode enable-return-routed-experts
        enable-return-indexer-topk enable-return-aux-hidden-states return-aux-hidden-state-layer-ids
        enable-watermark watermark-config""",
    "what profilers and checks add": """
        enable-layerwise-nvtx-marker kv-canary kv-canary-sweep-interval kv-canary-real-data
        debug-tensor-dump-output-folder debug-tensor-dump-layers debug-tensor-dump-input-file forward-hooks
        msprobe-dump-config""",
}
"""What flags do that no figure has in it."""
NEGATABLE = frozenset(
    names("""
    enable-tf32-matmul dcp-replicate-q-proj enable-tp-lm-head-all-to-all enable-fused-qk-norm-rope
    speculative-enable-w4a4-mxfp4-megamoe mm-enable-dp-encoder experts-shared-outer-loras lora-strict-loading
    dllm-fdfo ple-offload-embedding enable-decoder-swa-bounded-replay enable-dsa-fused-indexer""")
)
"""Switches that have a `--no-` form."""
SWITCHES = NEGATABLE | frozenset(
    names("""
    skip-tokenizer-init trust-remote-code is-embedding enable-multimodal enable-fp32-lm-head
    quantize-and-serve enable-dynamic-chunking enable-priority-scheduling disable-priority-preemption
    abort-on-priority-when-disabled schedule-low-priority-values-first disable-hybrid-swa-memory
    prefill-only-disable-kv-cache disable-radix-cache enable-page-major-kv-layout enable-unified-memory
    disable-chunked-prefix-cache disable-overlap-schedule enable-mixed-chunk enable-prefill-cp
    enable-dsa-cache-layer-split enable-cp-decode-attn-tp enable-kv-cache-sharding
    enable-dp-attention-local-control-broadcast enable-dp-lm-head enable-attn-tp-input-scattered
    enable-shared-experts-attn-tp enable-dense-mlp-attn-tp enable-layernorm-sp disable-attn-tp-gather
    enable-p2p-check mlx-enable-sampling sleep-on-idle use-ray smg-grpc-mode grpc-mode skip-server-warmup
    enable-http2 enable-ssl-refresh trust-request-chat-template enable-cache-report return-input-ids
    return-output-ids strip-thinking-cache enable-strict-thinking allow-auto-truncate
    stream-response-default-include-usage incremental-streaming-output enable-streaming-session
    enable-session-radix-cache log-requests show-time-cost enable-metrics enable-mfu-metrics
    enable-metrics-for-all-schedulers enable-request-time-stats-logging enable-forward-pass-metrics
    enable-trace export-metrics-to-file constrained-json-disable-any-whitespace enable-lean-attention
    disable-flashinfer-autotune disable-prefill-cuda-graph disable-decode-cuda-graph
    disable-cuda-graph-padding enable-profile-cuda-graph enable-cudagraph-gc debug-cuda-graph
    enable-layerwise-nvtx-marker enable-nccl-nvls enable-symm-mem triton-attention-reduce-in-fp32
    flashinfer-mla-disable-ragged enable-precise-embedding-interpolation enable-fused-moe-sum-all-reduce
    enable-deepseek-v4-fp4-indexer disable-custom-all-reduce enable-mscclpp enable-torch-symm-mem
    enable-scattered-sconv pre-warm-nccl enable-quant-communications
    enforce-disable-flashinfer-allreduce-fusion enable-aiter-allreduce-fusion enable-torch-compile
    enable-torch-compile-debug-mode speculative-dspark-align-verify-tokens-to-graph-tier
    speculative-use-rejection-sampling enable-multi-layer-eagle speculative-adaptive enable-w4a4-mxfp4-megamoe
    enable-eplb enable-elastic-expert-backup enable-waterfill disable-flashinfer-cutlass-moe-fp4-allgather
    disable-shared-experts-fusion enforce-shared-experts-fusion enable-mamba-cache-stochastic-rounding
    enable-int8-mamba-checkpoint enable-linear-replayssm enable-linear-replayssm-spec
    enable-hierarchical-cache enable-unified-cache-external-linker enable-hisparse
    enable-broadcast-mm-inputs-process enable-prefix-mm-cache trust-mm-content-hashes enable-mm-global-cache
    disable-fast-image-processor enable-lora enable-lora-overlap-loading lora-use-virtual-experts
    enable-two-batch-overlap enable-single-batch-overlap enable-lmcache enable-flexkv
    disaggregation-decode-enable-radix-cache disaggregation-decode-enable-offload-kvcache encoder-only
    language-only language-model-only enable-adaptive-dispatch-to-encoder enable-pdmux
    weight-loader-disable-mmap weight-loader-prefetch-checkpoints weight-loader-drop-cache-after-load
    remote-instance-weight-loader-start-seed-via-transfer-engine delete-ckpt-after-loading
    checkpoint-engine-wait-weights-before-ready enable-prefill-delayer enable-deterministic-inference
    enable-dynamic-batch-tokenizer enable-tokenizer-batch-encode disable-tokenizer-batch-decode
    enable-memory-saver enable-weights-cpu-backup enable-draft-weights-cpu-backup
    enable-custom-logit-processor enable-return-hidden-states enable-return-routed-experts
    enable-return-indexer-topk disable-outlines-disk-cache enable-mis disaggregation-enable-kv-checksum
    enable-pd-role-switch enable-linker-mla-dedup enable-encoder-swa-bounded-replay enable-response-store
    speculative-use-block-verification disable-aiter-allreduce-fusion-in-prefill
    disable-aiter-allreduce-fusion-in-decode enable-amd-monokernel enable-watermark enable-paged-experts
    enable-nvidia-megakernel enable-megamoe-for-layernorm-sp enable-http-worker-reuseport
    enable-return-aux-hidden-states disable-cuda-graph enable-dp-attention enable-flashinfer-allreduce-fusion""")
)
"""Flags without a value."""
SEVERAL = frozenset(
    names("""
    numa-node gc-threshold log-requests-target uvicorn-access-log-exclude-prefixes
    tokenizer-metrics-allowed-custom-labels bucket-time-to-first-token bucket-inter-token-latency
    bucket-e2e-request-latency prompt-tokens-buckets generation-tokens-buckets flashinfer-autotune-skip-ops
    cuda-graph-bs-decode cuda-graph-bs-prefill allowed-media-domains lora-target-modules lora-paths
    encoder-urls encoder-register-urls custom-weight-loader prefill-delayer-forward-passes-buckets
    prefill-delayer-wait-seconds-buckets debug-tensor-dump-layers return-aux-hidden-state-layer-ids""")
)
"""Flags with one or more values behind them."""
OPTIONAL = frozenset(
    [
        "uvicorn-access-log-exclude-prefixes",
        "lora-target-modules",
        "lora-paths",
        "custom-weight-loader",
        "model-checksum",
    ]
)
"""Flags whose value may be left out."""
JSON = frozenset(
    names("""
    radix-eviction-policy-config default-chat-template-kwargs preferred-sampling-params extra-metric-labels
    cuda-graph-config mm-process-config limit-mm-data-per-request unified-cache-external-linker-config
    json-model-override-args model-loader-extra-config""")
)
"""Flags whose value is JSON."""
CHOICES = {
    "schedule-policy": names("""
    lpm random fcfs dfs-weight lof priority routing-key hrrn shortest-prefill-first"""),
    "attention-backend": names("""
    triton torch_native flex_attention dsa nsa qsa dsv4 compressed fa3 fa4 flashinfer llada2_cfg_flashinfer
    flashmla trtllm_mla cutedsl_mla tokenspeed_mla trtllm_mha hpc_ops minicpm_flashattn minicpm_flashinfer
    aiter wave intel_amx ascend intel_xpu"""),
    "moe-runner-backend": names("""
    auto deep_gemm triton triton_kernel flashinfer_trtllm experimental_sgl_trtllm flashinfer_trtllm_routed
    flashinfer_cutlass flashinfer_mxfp4 flashinfer_cutedsl flashinfer_megamoe cutlass aiter marlin humming
    experimental_sgl_marlin lora_cutedsl lora_triton lora_marlin hpc_ops megamoe intel_xpu"""),
}
"""Values that SGLang takes where Gnomon knows only some of them."""
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)
SETTINGS = {option.flag.lstrip("-"): option.name for option in OPTIONS}
"""The setting behind a flag."""
ACTING = frozenset((*DEGREES, *LAYOUT, *OWN, *REFUSED_ABOVE_ONE, *SETTINGS))
KNOWN = ACTING | UNUSED.keys()
TABLE = FlagTable(
    title="SGLang 0.5.23",
    known=KNOWN,
    switches=SWITCHES,
    negatable=NEGATABLE,
    several=SEVERAL,
    optional=OPTIONAL,
    json=JSON,
    aliases={**ALIASES, **EARLIER},
    place=False,
)
