#!/usr/bin/env bash
# TorchTitan 0.3, straight from its registry
set -ex
NGPU=${NGPU:-"8"}
PYTORCH_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
    --local-ranks-filter 0 --role rank --tee 3 \
    -m torchtitan.train --module llama3 --config llama3_8b \
    --parallelism.tensor_parallel_degree 2 --training.local-batch-size 2 --compile.enable activation-checkpoint:full
