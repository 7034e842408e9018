#!/usr/bin/env bash
deepspeed --hostfile=hostfile --master_port 29501 run_clm.py \
  --deepspeed ds_z3.json \
  --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
  --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 \
  --block_size 4096 --bf16 --gradient_checkpointing True \
  --learning_rate 2e-5 --num_train_epochs 1 --save_steps 500 --output_dir out --report_to wandb
