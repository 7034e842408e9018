#!/bin/bash
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=8
nodes_array=($(scontrol show hostnames $SLURM_JOB_NODELIST))
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
export NCCL_SOCKET_IFNAME="eth0"
CONFIG_FILE=${CONFIG_FILE:-"torchtitan_llama3_70b.toml"}
srun torchrun --nnodes 32 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint "$head_node_ip:29500" \
    -m torchtitan.train --job.config_file ${CONFIG_FILE} --training.local_batch_size 16
