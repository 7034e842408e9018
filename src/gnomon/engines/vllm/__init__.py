"""vLLM: its scheduler's limits, kernels, memory, host overheads, options and launch commands."""

from gnomon.engines.declared import EngineInfo

MEASURED = "0.24.0"
"""The version that host overheads, memory and options were measured on, and that is meant where none is named."""
ENGINE = EngineInfo(
    name="vllm",
    title="vLLM",
    versions=("0.2.0", "0.5.4", "0.24.0", "0.33.0"),
    default=MEASURED,
    serves="gnomon.engines.vllm.engine:Vllm",
    operations="gnomon.engines.vllm.operations",
    commands="gnomon.engines.vllm.operations",
    kernels="gnomon.engines.vllm.choices",
    place=1,
)
