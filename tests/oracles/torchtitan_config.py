"""TorchTitan's own configuration on a CPU: its kernels in Triton, which nothing here calls, are left out."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"


class _Kernels(ModuleType):
    """Any name of a module that needs a GPU to be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **named: None


def manager() -> Any:
    """TorchTitan's `ConfigManager` class."""
    pytest.importorskip("torchtitan", reason="TorchTitan is not installed; run `make test-oracles`")
    sys.modules.setdefault(KERNELS, _Kernels(KERNELS))
    from torchtitan.config.manager import ConfigManager

    return ConfigManager


def parsed(folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that TorchTitan makes of a recipe and the words of its command."""
    made = manager()
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("recipe", None)
    from torchtitan.components.quantization import float8, mx, nvfp4

    for module in (float8, mx, nvfp4):
        monkeypatch.setattr(module, "has_cuda_capability", lambda *version: True)
    config = made().parse_args(words)
    sys.modules.pop("recipe", None)
    return config
