"""Serving and training engines by name and version."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.base import Deployment, Engine, MemoryUse, TrainingEngine
from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.spec import EngineChoice

__all__ = [
    "OWN",
    "Deployment",
    "Engine",
    "MemoryUse",
    "TrainingEngine",
    "engine",
    "kernels_of",
    "planned_training_engine",
    "training_engine",
]

SERVING = ("vllm",)
TRAINING = ("megatron", "torch", "torchtitan", "deepspeed", "transformers")
LIBRARIES = "nccl"
"""What runs where no engine is named: NCCL's collectives, and the serving kernels beside them."""

OWN = ("", LIBRARIES, "torch")
"""Kernels that every chip can be priced with; those of other frameworks need a profile of them."""


def engine(label: str) -> Engine:
    """The serving engine of `name` or `name@version`; a version that is not known is refused."""
    name, _, version = label.partition("@")
    _check_name(name, SERVING, TRAINING, "serve")
    from gnomon.engines.vllm.engine import Vllm

    return Vllm(version)


def training_engine(label: str) -> TrainingEngine:
    """The training engine of `name` or `name@version`."""
    name, _, version = label.partition("@")
    _check_name(name, TRAINING, SERVING, "train")
    given = {"version": version} if version else {}
    if name == "torch":
        from gnomon.engines.torch.engine import Torch

        return Torch(**given)
    if name == "torchtitan":
        from gnomon.engines.torchtitan.engine import TorchTitan

        return TorchTitan(**given)
    if name == "deepspeed":
        from gnomon.engines.deepspeed.engine import DeepSpeed

        return DeepSpeed(**given)
    if name == "transformers":
        from gnomon.engines.transformers.engine import Transformers

        return Transformers(**given)
    from gnomon.engines.megatron.engine import Megatron

    return Megatron(**given)


def planned_training_engine(choice: EngineChoice) -> TrainingEngine:
    """The training engine of a plan; errors name the plan's field."""
    field = "engine.name"
    try:
        _check_name(choice.name, TRAINING, SERVING, "train")
        field = "engine.version"
        return training_engine(choice.label)
    except GnomonError as error:
        error.where = field
        raise


def kernels_of(label: str, frameworks: Sequence[str]) -> str:
    """Whose kernels an engine runs, as `gnomon.cost.machine.Machine` names them: `name` or `name@version`,
    `nccl`, one of the `frameworks` that profiles were fitted to, or nothing."""
    name, _, version = label.partition("@")
    if name in ("", LIBRARIES) and not version:
        return LIBRARIES
    if name in SERVING:
        engine(label)
        return ""
    if name not in TRAINING:
        known = (*SERVING, *TRAINING, LIBRARIES, *(each for each in frameworks if each not in (*SERVING, *TRAINING)))
        if name not in known:
            raise unknown_name("engine", name, known, hint=f"Known: {', '.join(known)}.")
        if version:
            raise InputError(f"{name} has no versions to choose from", hint=f"Give {name} alone.")
        return name
    training_engine(label)
    return "torch"


def _check_name(name: str, known: tuple[str, ...], others: tuple[str, ...], verb: str) -> None:
    if name in others:
        raise InputError(f"{name} does not {verb}", where="--engine", hint=f"Engines that do: {', '.join(known)}.")
    if name not in known:
        raise unknown_name("engine", name, known)
