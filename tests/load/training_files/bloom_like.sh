#!/bin/bash
#SBATCH --nodes=48
#SBATCH --ntasks-per-node=1
# A large GPT with DeepSpeed's pipeline and ZeRO 1, its configuration written on the way.
N_GPUS=8
NNODES=48
PP_SIZE=12
TP_SIZE=4
MICRO_BATCH_SIZE=2
GLOBAL_BATCH_SIZE=2048
ZERO_STAGE=1
config_json="./ds_config.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "train_batch_size": $GLOBAL_BATCH_SIZE,
  "gradient_clipping": 1.0,
  "zero_optimization": { "stage": $ZERO_STAGE },
  "bf16": { "enabled": true },
  "steps_per_print": 2000,
  "wall_clock_breakdown": false
}
EOT
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $N_GPUS --nnodes $NNODES --rdzv_backend c10d"
export CMD="Megatron-DeepSpeed/pretrain_gpt.py \
    --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE \
    --num-layers 48 --hidden-size 8192 --num-attention-heads 64 --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size $MICRO_BATCH_SIZE --global-batch-size $GLOBAL_BATCH_SIZE --rampup-batch-size 192 16 9_765_625 \
    --train-samples 220000000 --bf16 --checkpoint-activations --attention-dropout 0 --hidden-dropout 0 \
    --lr 6e-5 --tokenizer-type GPT2BPETokenizer --vocab-file v.json --merge-file m.txt --data-path /data/x \
    --deepspeed --deepspeed_config ${config_json} --zero-stage ${ZERO_STAGE} --deepspeed-activation-checkpointing"
srun $LAUNCHER $CMD
