#!/bin/bash
torchrun --standalone --nproc_per_node=8 train.py \
  --model_name_or_path meta-llama/Llama-3.2-1B-Instruct --output_dir out \
  --per_device_train_batch_size 8 --max_seq_length 2048 --bf16 --fsdp "shard_grad_op auto_wrap" \
  --fsdp_config fsdp.json --optim adamw_torch_fused --tf32 True
