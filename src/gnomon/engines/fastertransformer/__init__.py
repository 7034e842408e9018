"""FasterTransformer: NVIDIA's C++ library before TensorRT-LLM, and THUDM's copy of it for GLM-130B."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="fastertransformer",
    title="FasterTransformer",
    versions=("5.1",),
    serves="gnomon.engines.fastertransformer.engine:FasterTransformer",
    framework="torch",
    place=8,
)
