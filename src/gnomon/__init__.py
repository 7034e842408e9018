"""Gnomon predicts how long AI jobs take on GPUs, plans deployments and writes their launch configs.

    import gnomon

    gnomon.predict("llama-3.1-8b", on="H100", phase="decode", batch=32, context=1024).time_s.value

Everything public is listed in `__all__` and is imported when it is first used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon import papers
    from gnomon.api.calibrate import calibrate
    from gnomon.api.compare import compare
    from gnomon.api.explain import explain
    from gnomon.api.export import export
    from gnomon.api.fit import fit
    from gnomon.api.imported import import_plan
    from gnomon.api.known import chips, models, new_chip, techniques
    from gnomon.api.launch import launch
    from gnomon.api.ops import ops
    from gnomon.api.plan import plan_serving
    from gnomon.api.plan_training import plan_training
    from gnomon.api.predict import predict
    from gnomon.api.simulate import simulate_serving
    from gnomon.api.simulate_training import simulate_training
    from gnomon.api.sweep import sweep
    from gnomon.api.trace import trace
    from gnomon.api.tune import tune
    from gnomon.api.verify import verify
    from gnomon.errors import GnomonError
    from gnomon.papers.tried import try_idea

    __version__: str

__all__ = [
    "GnomonError",
    "__version__",
    "calibrate",
    "chips",
    "compare",
    "explain",
    "export",
    "fit",
    "import_plan",
    "launch",
    "models",
    "new_chip",
    "ops",
    "papers",
    "plan_serving",
    "plan_training",
    "predict",
    "simulate_serving",
    "simulate_training",
    "sweep",
    "techniques",
    "trace",
    "try_idea",
    "tune",
    "verify",
]

_HOMES = {
    "GnomonError": "gnomon.errors",
    "calibrate": "gnomon.api.calibrate",
    "chips": "gnomon.api.known",
    "compare": "gnomon.api.compare",
    "explain": "gnomon.api.explain",
    "export": "gnomon.api.export",
    "fit": "gnomon.api.fit",
    "import_plan": "gnomon.api.imported",
    "launch": "gnomon.api.launch",
    "models": "gnomon.api.known",
    "new_chip": "gnomon.api.known",
    "ops": "gnomon.api.ops",
    "plan_serving": "gnomon.api.plan",
    "plan_training": "gnomon.api.plan_training",
    "predict": "gnomon.api.predict",
    "simulate_serving": "gnomon.api.simulate",
    "simulate_training": "gnomon.api.simulate_training",
    "sweep": "gnomon.api.sweep",
    "techniques": "gnomon.api.known",
    "trace": "gnomon.api.trace",
    "try_idea": "gnomon.papers.tried",
    "tune": "gnomon.api.tune",
    "verify": "gnomon.api.verify",
}


class _Face(ModuleType):
    """Keeps `gnomon.export` the function when the package of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return _version()
    if name == "papers":
        return import_module("gnomon.papers")
    if name not in _HOMES:
        raise AttributeError(f"module 'gnomon' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gnomon")
    except PackageNotFoundError:
        return "0+unknown"


sys.modules[__name__].__class__ = _Face
