"""vLLM: its scheduler's limits, kernels, memory, host overheads, options and launch commands."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="vllm",
    title="vLLM",
    versions=("0.24.0",),
    serves="gnomon.engines.vllm.engine:Vllm",
    operations="gnomon.engines.vllm.operations",
    commands="gnomon.engines.vllm.operations",
    kernels="gnomon.engines.vllm.choices",
    place=1,
)
