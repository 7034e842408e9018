"""The options of Megatron-LM's pretrain_gpt.py that Gnomon writes, by the kind of value they take."""

from __future__ import annotations

from collections.abc import Mapping

COMMIT, DATE = "d98e8a64dd", "2026-08-22"
"""Of the Megatron-LM these options are those of."""

Value = bool | int | float | str
SWITCHES = (
    "--swiglu",
    "--group-query-attention",
    "--qk-layernorm",
    "--disable-bias-linear",
    "--add-qkv-bias",
    "--untie-embeddings-and-output-weights",
    "--use-rope-scaling",
    "--moe-grouped-gemm",
    "--moe-shared-expert-gate",
    "--moe-router-enable-expert-bias",
    "--multi-latent-attention",
    "--sequence-parallel",
    "--bf16",
    "--fp16",
    "--accumulate-allreduce-grads-in-fp32",
    "--use-distributed-optimizer",
    "--use-megatron-fsdp",
    "--no-gradient-accumulation-fusion",
    "--overlap-grad-reduce",
    "--overlap-param-gather",
    "--use-precision-aware-optimizer",
    "--optimizer-cpu-offload",
    "--overlap-cpu-optimizer-d2h-h2d",
    "--async-save",
    "--mock-data",
    "--log-throughput",
)
WHOLE = (
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--num-query-groups",
    "--kv-channels",
    "--max-position-embeddings",
    "--rotary-base",
    "--vocab-size",
    "--make-vocab-size-divisible-by",
    "--num-experts",
    "--moe-router-topk",
    "--moe-ffn-hidden-size",
    "--moe-shared-expert-intermediate-size",
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--num-virtual-stages-per-pipeline-rank",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--q-lora-rank",
    "--kv-lora-rank",
    "--qk-head-dim",
    "--qk-pos-emb-head-dim",
    "--v-head-dim",
    "--moe-router-num-groups",
    "--moe-router-group-topk",
    "--micro-batch-size",
    "--global-batch-size",
    "--seq-length",
    "--train-iters",
    "--save-interval",
    "--recompute-num-layers",
    "--eval-iters",
    "--eval-interval",
    "--log-interval",
)
NUMBERS = (
    "--norm-epsilon",
    "--rope-scaling-factor",
    "--attention-dropout",
    "--hidden-dropout",
    "--optimizer-offload-fraction",
    "--lr",
    "--min-lr",
    "--lr-warmup-fraction",
    "--weight-decay",
    "--clip-grad",
    "--adam-beta1",
    "--adam-beta2",
    "--adam-eps",
)
TEXTS = (
    "--window-size",
    "--moe-layer-freq",
    "--recompute-modules",
    "--pipeline-model-parallel-layout",
    "--cp-comm-type",
    "--save",
)
CHOICES = {
    "--normalization": ("LayerNorm", "RMSNorm"),
    "--position-embedding-type": ("learned_absolute", "rope"),
    "--attention-backend": ("auto",),
    "--transformer-impl": ("transformer_engine",),
    "--moe-token-dispatcher-type": ("alltoall",),
    "--moe-router-score-function": ("softmax", "sigmoid"),
    "--fp8-format": ("hybrid",),
    "--fp8-recipe": ("delayed",),
    "--recompute-granularity": ("full", "selective"),
    "--recompute-method": ("uniform",),
    "--data-parallel-sharding-strategy": ("optim_grads", "optim_grads_params"),
    "--ckpt-format": ("fsdp_dtensor",),
    "--megatron-fsdp-main-grads-dtype": ("fp32", "bf16", "fp16"),
    "--megatron-fsdp-grad-comm-dtype": ("fp32", "bf16", "fp16"),
    "--main-grads-dtype": ("bf16",),
    "--exp-avg-dtype": ("bf16", "fp16"),
    "--exp-avg-sq-dtype": ("bf16", "fp16"),
    "--optimizer": ("adam", "sgd", "lion", "muon", "dist_muon"),
    "--lr-decay-style": ("cosine",),
    "--tokenizer-type": ("NullTokenizer",),
}


def words(values: Mapping[str, Value]) -> list[list[str]]:
    """Each option with its value, in the order given. A switch that is on stands alone; False leaves an option out."""
    return [[flag] if value is True else [flag, str(value)] for flag, value in values.items() if value is not False]
