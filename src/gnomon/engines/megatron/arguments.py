"""Options of Megatron-LM that an import does not turn into a plan, and why. Those of training that act are in
`imported.py`; an option that stands in neither is listed as one that nobody here knows."""

from __future__ import annotations

from gnomon.engines.command_line import unused_flags

NO_EFFECT = {
    "which tokens are trained on": (
        "data-path split mock-data tokenizer-type tokenizer-model tokenizer-name-or-path vocab-file merge-file "
        "data-cache-path train-data-path valid-data-path test-data-path per-split-data-args-path data-args-path "
        "num-workers dataloader-type reset-position-ids eod-mask-loss "
        "no-create-attention-mask-in-dataloader no-mmap-bin-files num-dataset-builder-threads tiktoken-pattern "
        "legacy-tokenizer trust-remote-code data-impl full-validation multiple-validation-sets "
        "sft-tokenizer-prompt-format"
    ),
    "hyperparameters, which no time depends on": (
        "adam-beta1 adam-beta2 adam-eps sgd-momentum weight-decay start-weight-decay end-weight-decay "
        "weight-decay-incr-style clip-grad lr min-lr lr-decay-style lr-decay-iters lr-decay-samples lr-warmup-fraction "
        "lr-warmup-iters lr-warmup-samples lr-warmup-init lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples "
        "override-opt-param-scheduler override-opt_param-scheduler use-checkpoint-opt-param-scheduler seed "
        "init-method-std init-method-xavier-uniform initial-loss-scale min-loss-scale loss-scale loss-scale-window "
        "hysteresis data-parallel-random-init muon-momentum muon-use-nesterov muon-scale-mode muon-num-ns-steps "
        "decoupled-lr decoupled-min-lr moe-aux-loss-coeff moe-z-loss-coeff moe-router-bias-update-rate "
        "moe-router-load-balancing-type moe-token-drop-policy moe-input-jitter-eps moe-router-topk-scaling-factor "
        "check-for-nan-in-loss-and-grad no-check-for-nan-in-loss-and-grad rerun-mode calculate-per-token-loss "
        "mtp-loss-scaling-factor"
    ),
    "what is logged and measured": (
        "log-interval log-throughput log-params-norm log-num-zeros-in-grad log-timers-to-tensorboard log-progress "
        "log-validation-ppl-to-tensorboard log-memory-to-tensorboard log-world-size-to-tensorboard "
        "log-batch-size-to-tensorboard log-loss-scale-to-tensorboard log-straggler log-energy "
        "tensorboard-dir tensorboard-log-interval tensorboard-queue-size timing-log-level timing-log-option "
        "wandb-project wandb-exp-name wandb-save-dir wandb-entity one-logger-project one-logger-run-name "
        "enable-one-logger disable-straggler-on-startup logging-level profile profile-step-start profile-step-end "
        "profile-ranks use-pytorch-profiler record-memory-history memory-snapshot-path no-barrier-with-level-1-timing"
    ),
    "evaluation, which plans do not price": "eval-iters eval-interval skip-train",
    "what is loaded before the first step, and how checkpoints are laid out": (
        "load finetune no-load-optim no-load-rng no-save-optim no-save-rng ckpt-format ckpt-fully-parallel-save "
        "ckpt-fully-parallel-load ckpt-assume-constant-structure no-ckpt-fully-parallel-save use-dist-ckpt "
        "dist-ckpt-format dist-ckpt-strictness auto-detect-ckpt-format exit-on-missing-checkpoint use-checkpoint-args "
        "no-use-tokenizer-model-from-checkpoint-args pretrained-checkpoint ckpt-step dist-ckpt-save-pre-mcore-014"
    ),
    "when and how processes meet and end": (
        "distributed-backend distributed-timeout-minutes distributed-timeout-seconds-after-init exit-interval "
        "exit-duration-in-mins exit-signal-handler local-rank lazy-mpu-init use-cpu-initialization "
        "no-initialization adlr-autoresume adlr-autoresume-interval use-mp-args-from-checkpoint-args "
        "enable-gloo-process-groups disable-gloo-process-groups manual-gc manual-gc-interval manual-gc-eval "
        "no-manual-gc-eval empty-unused-memory-level inprocess-restart use-tp-pp-dp-mapping"
    ),
    "the network is read by its shape or name": (
        "kv-channels swiglu normalization norm-epsilon layernorm-epsilon position-embedding-type "
        "use-rotary-position-embeddings rotary-base rotary-percent rotary-scaling-factor rotary-interleaved "
        "use-rope-scaling rope-scaling-factor no-rope-fusion max-position-embeddings "
        "untie-embeddings-and-output-weights disable-bias-linear add-qkv-bias qk-layernorm qk-l2-norm "
        "make-vocab-size-divisible-by multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim "
        "v-head-dim window-size apply-layernorm-1p squared-relu no-position-embedding moe-router-topk moe-layer-freq "
        "moe-shared-expert-intermediate-size moe-shared-expert-gate moe-router-score-function "
        "moe-router-enable-expert-bias moe-router-num-groups moe-router-group-topk moe-router-pre-softmax "
        "mscale mscale-all-dim beta-fast beta-slow original-max-position-embeddings group-query-attention "
        "apply-query-key-layer-scaling no-query-key-layer-scaling openai-gelu"
    ),
    "as it is priced": (
        "transformer-impl attention-backend use-flash-attn use-mcore-models no-masked-softmax-fusion "
        "attention-softmax-in-fp32 no-attention-softmax-in-fp32 accumulate-allreduce-grads-in-fp32 moe-grouped-gemm "
        "moe-token-dispatcher-type moe-flex-dispatcher-backend moe-enable-deepep moe-router-dtype moe-permute-fusion "
        "moe-router-force-load-balancing moe-deepep-num-sms moe-hybridep-num-sms "
        "moe-router-fusion no-gradient-accumulation-fusion no-async-tensor-model-parallel-allreduce "
        "overlap-cpu-optimizer-d2h-h2d min-offloaded-tensor-size "
        "cpu-offloading-retain-pinned-cpu-buffers use-torch-optimizer-for-cpu-offload delay-offload-until-cuda-graph "
        "use-precision-aware-optimizer megatron-fsdp-main-grads-dtype "
        "megatron-fsdp-grad-comm-dtype overlap-param-gather no-persist-layer-norm "
        "no-bias-swiglu-fusion no-bias-gelu-fusion no-bias-dropout-fusion bias-swiglu-fusion "
        "cross-entropy-loss-fusion cross-entropy-fusion-impl DDP-impl use-legacy-models "
        "fp8-amax-history-len fp8-amax-compute-algo fp8-margin fp8-interval moe-router-padding-for-fp8 "
        "moe-router-padding-for-quantization "
        "deallocate-pipeline-outputs align-grad-reduce align-param-gather use-sharp "
        "moe-shared-expert-overlap tp-comm-overlap-cfg tp-comm-bootstrap-backend"
    ),
}
NOT_MODELLED = {
    "gradients of weights in bf16 beside narrower GEMMs": "no-fp8-wgrad disable-fp8-wgrad",
    "a head in eight bits": "fp8-output-proj",
    "quantizers by tensor": "fp8-quantizer-factory fp4-quantizer-factory te-precision-config-file",
    "copies of sharded weights that are kept": "keep-fp8-transpose-cache",
    "tokens that go to experts in eight bits": "moe-dispatch-fwd-dtype moe-combine-bwd-dtype",
    "pipeline ranks that offload unequal shares": "delta-offload-bytes-across-pp-ranks",
    "batches that grow during the run": "rampup-batch-size",
    "layers by pipeline stage": (
        "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
        "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split standalone-embedding-stage"
    ),
    "gradients of weights that wait": "delay-wgrad-compute",
    "CUDA graphs by earlier options": "enable-cuda-graph external-cuda-graph",
    "states sharded over replicas too": "outer-dp-sharding-strategy",
    "registered buffers of NCCL": "nccl-ub use-nccl-ub nccl-communicator-config-path sharp-enabled-group",
    "weights gathered in four bits": "fp4-param-gather",
    "sequences of several documents": "variable-seq-lengths sft-packing hybrid-context-parallel",
    "logits in 16 bits": "fp16-lm-cross-entropy",
}
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)
