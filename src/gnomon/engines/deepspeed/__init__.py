"""DeepSpeed with Megatron's layers (Megatron-DeepSpeed): its pipeline, its optimizers, ZeRO."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="deepspeed",
    title="DeepSpeed",
    versions=("0.3", "0.5", "0.9", "0.14", "0.18"),
    trains="gnomon.engines.deepspeed.engine:DeepSpeed",
    training_operations="gnomon.engines.deepspeed.operations",
    place=5,
)
