"""DeepSpeed with Megatron's layers (Megatron-DeepSpeed): its pipeline, its optimizers, ZeRO."""
