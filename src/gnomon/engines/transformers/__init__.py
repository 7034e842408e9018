"""Hugging Face transformers as it trains: eager modules, SDPA, PyTorch's fused AdamW."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="transformers",
    title="transformers",
    versions=("5.17",),
    trains="gnomon.engines.transformers.engine:Transformers",
    training_operations="gnomon.engines.transformers.operations",
    training_aliases=("accelerate", "trainer"),
    place=6,
)
