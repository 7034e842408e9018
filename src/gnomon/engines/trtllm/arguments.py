"""Every flag of `trtllm-serve` and `trtllm-bench` 1.2 and every field of the YAML they read: which act in a plan, which
do not change its figures, and which do in ways that are not modelled.

Names are those of `tensorrt_llm/commands/serve.py`, `tensorrt_llm/bench/benchmark/throughput.py` and `TorchLlmArgs`
(`tensorrt_llm/llmapi/llm_args.py`) of the public repository; `tests/engines/data/trtllm_names.txt` lists them. A flag
sets the field that it stands for here.
"""

from __future__ import annotations

from gnomon.engines.command_line import FlagTable, names, unused_flags
from gnomon.engines.trtllm.options import ALIASES as SHORT_NAMES
from gnomon.engines.trtllm.options import OPTIONS
from gnomon.engines.trtllm.roles import GRAPH_ROLE

TITLE = "TensorRT-LLM 1.2"
FRACTION = next(path for path in SHORT_NAMES if "." in path)
"""The share of the memory for the cache, in the YAML."""
SETTINGS = {option.path or option.name: option.name for option in OPTIONS if option.written} | {
    FRACTION: SHORT_NAMES[FRACTION]
}
"""The setting behind a field."""
DEGREES = names("""
    tensor_parallel_size pipeline_parallel_size moe_expert_parallel_size moe_tensor_parallel_size
    enable_attention_dp""")
OWN = ("model", "backend", "dtype", "cuda_graph_config", "kv_cache_config.dtype", "server_role",
       "cache_transceiver_config")  # fmt: skip
"""Fields that are read one by one."""
REFUSED_ABOVE_ONE = {
    "context_parallel_size": "context parallelism (Helix) is not priced under TensorRT-LLM",
    "moe_cluster_parallel_size": "clusters of experts are not priced under TensorRT-LLM",
}
GROUPS = ("kv_cache_config", "cuda_graph_config", "moe_config", "scheduler_config")
"""Fields whose parts are told apart."""
NO_EFFECT = {
    "how clients reach the server, not what it computes": "host port",
    "how prompts and answers are written": "reasoning_parser tool_parser chat_template",
    "logs and metrics": """
        log_level otlp_traces_endpoint iter_stats_max_iterations request_stats_max_iterations return_perf_metrics
        perf_metrics_max_requests enable_iter_perf_stats enable_iter_req_stats print_iter_log max_stats_len
        kv_cache_config.event_buffer_max_size kv_cache_config.attention_dp_events_gather_period_ms
        enable_layerwise_nvtx_marker""",
    "where and how files are loaded, once at the start": """
        tokenizer custom_tokenizer tokenizer_mode tokenizer_revision skip_tokenizer_init trust_remote_code revision
        load_format checkpoint_loader checkpoint_format postprocess_tokenizer_dir enable_sleep""",
    "how processes find each other, and their chips": """
        gpus_per_node mpi_session orchestrator_type ray_placement_config metadata_server_config_file
        disagg_cluster_uri""",
    "which requests are refused": "fail_fast_on_attention_window_too_large max_input_len",
    "it is read by the TensorRT backend alone": "build_config",
}
"""Why no figure depends on fields."""
NOT_MODELLED = {
    "speculative decoding": "speculative_config decoding_config",
    "LoRA adapters": "enable_lora lora_config peft_cache_config",
    "blocks on the host": """
        kv_cache_config.host_cache_size kv_cache_config.onboard_blocks kv_cache_config.secondary_offload_min_priority
        kv_cache_config.use_uvm kv_connector_config""",
    "a cache that is sent to other servers": "disagg_cluster",
    "another size or window of the cache than the memory and the model say": """
        kv_cache_config.max_gpu_total_bytes kv_cache_config.max_attention_window kv_cache_config.sink_token_length
        kv_cache_config.cross_kv_cache_fraction kv_cache_config.mamba_ssm_cache_dtype
        kv_cache_config.copy_on_partial_reuse kv_cache_config.use_kv_cache_manager_v2
        kv_cache_config.max_util_for_resume""",
    "another choice of kernels than TensorRT-LLM's own": """
        torch_compile_config sparse_attention_config nvfp4_gemm_config enable_autotuner enable_min_latency
        use_cute_dsl_blockscaling_mm use_cute_dsl_blockscaling_bmm disable_flashinfer_sampling sampler_type
        sampler_force_async_worker moe_config.disable_finalize_fusion layer_wise_benchmarks_config""",
    "another choice of collectives than TensorRT-LLM's own": """
        allreduce_strategy moe_config.use_low_precision_moe_combine""",
    "other ways to share layers between ranks": """
        enable_lm_head_tp_in_adp pp_partition cp_config moe_config.max_num_tokens""",
    "expert load balancing and placement": "moe_config.load_balancer",
    "the scheduler beside its limits": """
        attention_dp_config batch_wait_timeout_ms batch_wait_timeout_iters batch_wait_max_tokens_ratio
        scheduler_config.dynamic_batch_config""",
    "other formats than the checkpoint's": "force_dynamic_quantization quant_config",
    "another network than the checkpoint's": "model_kwargs mm_encoder_only",
    "images, audio and video": "media_io_kwargs",
    "constrained or post-processed sampling": """
        guided_decoding_backend batched_logits_processor gather_generation_logits""",
    "the host's processes beside the engine's own": """
        garbage_collection_gen0_threshold ray_worker_extension_cls env_overrides""",
    "code of your own": "custom_module_dirs",
}
"""What fields do that no figure has in it."""
CHOICES = {
    "moe_config.backend": names("AUTO CUTLASS CUTEDSL WIDEEP TRTLLM DEEPGEMM VANILLA TRITON"),
    "attn_backend": names("TRTLLM VANILLA FLASHINFER FLASHINFER_STAR_ATTENTION"),
    "scheduler_config.capacity_scheduler_policy": names("GUARANTEED_NO_EVICT MAX_UTILIZATION STATIC_BATCH"),
    "scheduler_config.context_chunking_policy": names("FIRST_COME_FIRST_SERVED EQUAL_PROGRESS"),
}
"""Values that TensorRT-LLM takes where Gnomon prices only some of them."""
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)
FIELDS = frozenset((*SETTINGS, *DEGREES, *OWN, *REFUSED_ABOVE_ONE, *UNUSED)) - set(SHORT_NAMES.values())
"""All of them, and what flags alone say."""
FLAGS_ALONE = frozenset(
    names("""
    host port log_level tool_parser chat_template metadata_server_config_file server_role disagg_cluster_uri
    media_io_kwargs custom_module_dirs""")
)
"""What no field of the YAML says."""

SERVE_FIELDS = {
    "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size", "cp_size": "context_parallel_size",
    "ep_size": "moe_expert_parallel_size", "cluster_size": "moe_cluster_parallel_size",
    "free_gpu_memory_fraction": FRACTION,
}  # fmt: skip
"""Fields of flags that have another name."""
SERVE = FlagTable(
    title=f"trtllm-serve of {TITLE}",
    known=frozenset(
        names("""
    tokenizer custom_tokenizer host port backend custom_module_dirs log_level max_beam_width max_batch_size
    max_num_tokens max_seq_len tp_size pp_size cp_size ep_size cluster_size gpus_per_node free_gpu_memory_fraction
    num_postprocess_workers trust_remote_code revision config reasoning_parser tool_parser
    metadata_server_config_file server_role fail_fast_on_attention_window_too_large otlp_traces_endpoint
    disagg_cluster_uri enable_chunked_prefill media_io_kwargs chat_template""")
    ),
    switches=frozenset(
        ["trust_remote_code", "fail_fast_on_attention_window_too_large", "enable_chunked_prefill"]
    ),
    repeated=frozenset(["custom_module_dirs"]),
    json=frozenset(["media_io_kwargs"]),
    aliases={
        "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "context_parallel_size": "cp_size",
        "moe_expert_parallel_size": "ep_size", "moe_cluster_parallel_size": "cluster_size",
        "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction", "extra_llm_api_options": "config",
    },
    abbreviated=False,
)  # fmt: skip
BENCH_FIELDS = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "ep": "moe_expert_parallel_size",
    "cluster_size": "moe_cluster_parallel_size", "kv_cache_free_gpu_mem_fraction": FRACTION,
    "beam_width": "max_beam_width",
}  # fmt: skip
BENCH_UNUSED = unused_flags(
    {
        "the load, which a plan's questions name": """
            dataset eos_id max_input_len num_requests warmup target_input_len target_output_len concurrency
            streaming""",
        "where results are written": "report_json iteration_log output_json request_json workspace log_level",
        "where and how files are loaded, once at the start": "revision",
    },
    {"images, audio and video": "modality", "speculative decoding": "medusa_choices"},
)
BENCH = FlagTable(
    title=f"trtllm-bench of {TITLE}",
    known=frozenset(
        names("""
    model model_path engine_dir backend config max_batch_size max_num_tokens max_seq_len beam_width
    kv_cache_free_gpu_mem_fraction tp pp ep cluster_size enable_chunked_context disable_chunked_context
    scheduler_policy custom_module_dirs""")
    ) | BENCH_UNUSED.keys(),
    switches=frozenset(["streaming", "enable_chunked_context", "disable_chunked_context"]),
    repeated=frozenset(["custom_module_dirs"]),
    aliases={"extra_llm_api_options": "config"},
    short={"-m": "model", "-w": "workspace"},
    abbreviated=False,
)  # fmt: skip
WORKER_FIELDS = {
    "tensor-parallel-size": "tensor_parallel_size", "pipeline-parallel-size": "pipeline_parallel_size",
    "expert-parallel-size": "moe_expert_parallel_size", "enable-attention-dp": "enable_attention_dp",
    "max-batch-size": "max_batch_size", "max-num-tokens": "max_num_tokens", "max-seq-len": "max_seq_len",
    "max-beam-width": "max_beam_width", "free-gpu-memory-fraction": FRACTION, "gpus-per-node": "gpus_per_node",
    "load-format": "load_format", "guided-decoding-backend": "guided_decoding_backend",
}  # fmt: skip
"""Fields of flags of Dynamo's worker (`components/src/dynamo/trtllm/backend_args.py` of 1.3)."""
WORKER_UNUSED = unused_flags(
    {
        "a name, not a size": "served-model-name",
        "how processes find each other": """
            namespace endpoint discovery-backend request-plane event-plane connector""",
        "how prompts and answers are written": """
            dyn-tool-call-parser dyn-reasoning-parser custom-jinja-template endpoint-types
            exclude-tools-when-tool-choice-none""",
        "logs and metrics": "publish-kv-events",
        "where and how files are loaded, once at the start": "model-loader-extra-config allowed-local-media-path",
    },
    {
        "fields that override those of the YAML": "override-engine-args",
        "blocks of the size that the router counts in": "kv-block-size",
        "images, audio and video": """
            enable-multimodal modality encode-endpoint max-file-size-mb frontend-decoding""",
        "who assigns requests to data-parallel ranks": """
            conversation-affinity conversation-affinity-dp-rank-source""",
    },
)
_NEGATABLE = frozenset(
    names("""
    enable-attention-dp publish-kv-events enable-multimodal frontend-decoding conversation-affinity
    exclude-tools-when-tool-choice-none""")
)
WORKER = FlagTable(
    title="Dynamo's worker of TensorRT-LLM",
    known=frozenset(("model", "config", GRAPH_ROLE.lstrip("-"), *WORKER_FIELDS, *WORKER_UNUSED)),
    switches=_NEGATABLE,
    negatable=_NEGATABLE,
    aliases={
        "model-path": "model", "extra-engine-args": "config", "publish-events-and-metrics": "publish-kv-events",
    },
    place=False,
)  # fmt: skip
