#!/bin/bash
# 128 nodes of eight, started by hand on each of them.
GPUS_PER_NODE=8
NNODES=128
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $RANK --master_addr $HOST --master_port 6000"
python -m torch.distributed.launch $DISTRIBUTED_ARGS pretrain_gpt.py \
       --tensor-model-parallel-size 8 \
       --pipeline-model-parallel-size 16 \
       --num-layers 96 \
       --hidden-size 12288 \
       --num-attention-heads 96 \
       --micro-batch-size 1 \
       --global-batch-size 1536 \
       --rampup-batch-size 16 16 5859375 \
       --train-samples 146484375 \
       --seq-length 2048 \
       --max-position-embeddings 2048 \
       --checkpoint-activations \
       --fp16 \
       --DDP-impl local \
       --lr 6.0e-5 \
       --data-path /data/text_document --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
       --some-site-option 7
