#!/bin/bash
export HF_HOME=/scratch/hf
accelerate launch --config_file fsdp2.yaml --num_processes 4 \
    trl/scripts/sft.py \
    --model_name_or_path Qwen/Qwen3-8B \
    --dataset_name trl-lib/Capybara \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --max_length 2048 --packing \
    --torch_dtype bfloat16 --bf16 true \
    --use_peft --lora_r 32 --lora_alpha 16 \
    --max_steps 1000 --save_strategy no --output_dir Qwen3-8B-SFT
