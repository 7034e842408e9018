"""Megatron-LM: training with tensor, pipeline and data parallelism."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="megatron",
    title="Megatron-LM",
    versions=("2.4", "3.0", "bridge", "2026.08"),
    trains="gnomon.engines.megatron.engine:Megatron",
    training_operations="gnomon.engines.megatron.operations",
    place=2,
)
