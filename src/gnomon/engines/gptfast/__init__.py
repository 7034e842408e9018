"""gpt-fast: PyTorch's own compiled transformer, one static batch at a time."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="gptfast",
    title="gpt-fast",
    versions=("2024",),
    serves="gnomon.engines.gptfast.engine:GptFast",
    framework="torch",
    place=9,
)
