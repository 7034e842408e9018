"""SGLang: its scheduler and radix cache, memory, host overheads, options and launch commands."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="sglang",
    title="SGLang",
    versions=("0.5.23",),
    serves="gnomon.engines.sglang.engine:Sglang",
    operations="gnomon.engines.sglang.operations",
    commands="gnomon.engines.sglang.operations",
    framework="sglang",
    place=2,
)
