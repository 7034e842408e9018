"""TorchTitan: FSDP2, DTensor, pipelining and torch.compile, as its published runs use them."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="torchtitan",
    title="TorchTitan",
    versions=("2024-eager", "2024", "2025", "2026"),
    trains="gnomon.engines.torchtitan.engine:TorchTitan",
    training_operations="gnomon.engines.torchtitan.operations",
    place=4,
)
