"""PyTorch: its cost model, and the built-in runner that executes training plans."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="torch",
    title="PyTorch",
    versions=("2.0", "2.11"),
    trains="gnomon.engines.torch.engine:Torch",
    training_operations="gnomon.engines.torch.operations",
    training_target="torchrun",
    runs_modules=True,
    place=3,
)
