"""TensorRT-LLM: its schedulers, kernels, memory, host overheads, options and launch commands."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="trtllm",
    title="TensorRT-LLM",
    versions=("1.2.1",),
    serves="gnomon.engines.trtllm.engine:Trtllm",
    operations="gnomon.engines.trtllm.operations",
    commands="gnomon.engines.trtllm.operations",
    framework="trtllm",
    place=3,
)
