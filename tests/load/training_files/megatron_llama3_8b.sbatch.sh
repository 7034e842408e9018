#!/bin/bash
#SBATCH --job-name=llama3-8b
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
# Pretraining of an 8B model; data and tokenizer are on the shared file system.
set -e
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_SL=1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
TP=2
PP=2
DATA=/lustre/tokens/part_00_text_document

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000
    --swiglu
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --attention-dropout 0.0
    --hidden-dropout 0.0
)
TRAIN_ARGS=(
    --micro-batch-size 1
    --global-batch-size 512
    --train-iters 100000
    --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --lr-warmup-iters 2000
    --weight-decay 0.1 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95
    --bf16
    --recompute-granularity selective
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --tp-comm-overlap
)
LOG_ARGS=( --log-interval 10 --tensorboard-dir /lustre/tb --eval-iters 10 --eval-interval 1000 )

srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES --rdzv_backend c10d \
    --rdzv_endpoint $MASTER_ADDR:29500 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${LOG_ARGS[@]}" \
    --data-path $DATA --split 99,1,0 --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B \
    --save /lustre/ckpt --save-interval 500 --ckpt-format torch_dist --async-save
