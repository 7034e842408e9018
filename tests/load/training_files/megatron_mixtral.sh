#!/usr/bin/env bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc-per-node 8 --nnodes 2 --node-rank ${NODE_RANK} --master-addr ${MASTER_ADDR} --master-port 29500 \
  pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear \
  --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 \
  --max-position-embeddings 32768 --attention-dropout 0.0 --hidden-dropout 0.0 --vocab-size 32000 \
  --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 \
  --moe-grouped-gemm --moe-token-dispatcher-type alltoall --overlap-param-gather --overlap-grad-reduce \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 8 \
  --expert-model-parallel-size 4 --use-distributed-optimizer --sequence-parallel \
  --micro-batch-size 1 --global-batch-size 256 --bf16 --lr 1e-4 --train-iters 500000 \
  --moe-expert-capacity-factor 1.5 --mock-data --tokenizer-type Llama2Tokenizer --tokenizer-model tok.model
