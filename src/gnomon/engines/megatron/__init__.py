"""Megatron-LM: training with tensor, pipeline and data parallelism."""
