"""PyTorch: its cost model, and the built-in runner that executes training plans."""

from gnomon.engines.declared import EngineInfo

ENGINE = EngineInfo(
    name="torch",
    title="PyTorch",
    versions=("2.0", "2.11"),
    trains="gnomon.engines.torch.engine:Torch",
    runs_modules=True,
    place=3,
)
