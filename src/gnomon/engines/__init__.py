"""Serving and training engines by name and version.

An engine is a folder here with an `engine.py`, whose `__init__.py` declares it (`declared.py`), or an entry point of
the group `gnomon.engines` of another package, which gives such a declaration. Nothing of an engine is imported before
it is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gnomon.engines.declared import EngineInfo
from gnomon.errors import GnomonError, InputError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from gnomon.engines.base import Deployment, Engine, KernelChoices, MemoryUse, TrainingEngine
    from gnomon.engines.operations import CommandReader, Operations
    from gnomon.engines.training.operations import TrainingOperations, TrainingReader
    from gnomon.spec import EngineChoice

__all__ = [
    "OWN",
    "Deployment",
    "Engine",
    "EngineInfo",
    "KernelChoices",
    "MemoryUse",
    "TrainingEngine",
    "engine",
    "engine_info",
    "engines",
    "kernel_choices",
    "kernels_of",
    "module_engine",
    "operated_engines",
    "operations_of",
    "planned_training_engine",
    "serving_engines",
    "training_engine",
    "training_engines",
    "training_operations_of",
    "training_target",
    "training_targets",
]

GROUP = "gnomon.engines"
"""The entry points by which other packages add engines."""
LIBRARIES = "nccl"
"""What runs where no engine is named: NCCL's collectives, and the serving kernels beside them."""

PROFILED = "vllm"
"""The engine whose kernels the shipped profiles of serving are fitted to."""
OWN = ("", LIBRARIES, "torch")
"""Kernels that every chip can be priced with; those of other frameworks need a profile of them."""


def __getattr__(name: str) -> Any:
    """The nouns of the contract, which import what prices a step; a list of engines needs none of them."""
    if name in ("Deployment", "Engine", "KernelChoices", "MemoryUse", "TrainingEngine"):
        return getattr(import_module("gnomon.engines.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _folders() -> frozenset[str]:
    return frozenset(path.parent.name for path in Path(__file__).parent.glob("*/engine.py"))


@cache
def _outside() -> dict[str, EntryPoint]:
    """Engines of other packages, by name; a folder here comes before them."""
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=GROUP) if one.name not in _folders()}


@cache
def engine_info(name: str) -> EngineInfo | None:
    """What an engine declares; nothing where there is none of that name."""
    if name in _folders():
        return cast(EngineInfo, import_module(f"{__name__}.{name}").ENGINE)
    if not name or name not in _outside():
        return None
    try:
        found = _outside()[name].load()
    except Exception as reason:  # whatever another package does when it is imported
        hint = f"Repair or remove the package behind the entry point {name} of {GROUP}."
        raise InputError(f"the engine {name} cannot be loaded: {reason}", where="--engine", hint=hint) from reason
    return cast(EngineInfo, found)


@cache
def engines() -> tuple[EngineInfo, ...]:
    """All declarations, in the order of lists."""
    found = [info for name in (*_folders(), *_outside()) if (info := engine_info(name))]
    return tuple(sorted(found, key=lambda info: (info.place, info.name)))


def serving_engines() -> tuple[str, ...]:
    """Names of the engines that serve."""
    return tuple(info.name for info in engines() if info.serves)


def training_engines() -> tuple[str, ...]:
    """Names of the engines that train."""
    return tuple(info.name for info in engines() if info.trains)


def operated_engines() -> tuple[str, ...]:
    """Names of the serving engines that plans are written and started for."""
    return tuple(info.name for info in engines() if info.operations)


def training_targets() -> dict[str, str]:
    """What training plans are exported to, in the order of lists, each with the engine that it starts."""
    return {info.training_target or info.name: info.name for info in engines() if info.training_operations}


def training_target(name: str) -> str:
    """What a training plan is exported to by a name or an alias; the name itself where none has it."""
    aliases = {alias: target for target, engine in training_targets().items() for alias in _aliases(engine)}
    return aliases.get(name, name)


def _aliases(engine: str) -> tuple[str, ...]:
    info = engine_info(engine)
    return (info.name, *info.training_aliases) if info else ()


def module_engine() -> str:
    """The engine of traced modules, and of networks that no serving engine runs."""
    return next(info.name for info in engines() if info.runs_modules)


def engine(label: str) -> Engine:
    """The serving engine of `name` or `name@version`; a version that is not known is refused."""
    name, _, version = label.partition("@")
    made = _part(_serving(name).serves)
    return cast("Engine", made(version) if version else made())


def training_engine(label: str) -> TrainingEngine:
    """The training engine of `name` or `name@version`."""
    name, _, version = label.partition("@")
    made = _part(_training(name).trains)
    return cast("TrainingEngine", made(version) if version else made())


def planned_training_engine(choice: EngineChoice) -> TrainingEngine:
    """The training engine of a plan; errors name the plan's field."""
    field = "engine.name"
    try:
        _training(choice.name)
        field = "engine.version"
        return training_engine(choice.label)
    except GnomonError as error:
        error.where = field
        raise


def operations_of(name: str) -> Operations | None:
    """What writes and starts serving plans of an engine; nothing where it has none. Predictions never ask for it."""
    info = engine_info(name)
    return cast("Operations", _part(info.operations)) if info and info.operations else None


def training_operations_of(name: str) -> TrainingOperations | None:
    """What writes and reads training plans of an engine; nothing where it has none."""
    info = engine_info(name)
    return cast("TrainingOperations", _part(info.training_operations)) if info and info.training_operations else None


def command_readers() -> Iterator[tuple[str, CommandReader]]:
    """The engines whose launch commands can be read, by name."""
    for info in engines():
        if info.commands:
            yield info.name, cast("CommandReader", _part(info.commands))


def training_readers() -> Iterator[tuple[str, TrainingReader]]:
    """The training engines whose commands and configuration files can be read, by name."""
    for info in engines():
        if info.training_operations:
            yield info.name, cast("TrainingReader", _part(info.training_operations))


def kernel_choices(name: str = PROFILED) -> KernelChoices:
    """The kernels that a serving engine picks by chip and number format."""
    return cast("KernelChoices", _part(_serving(name).kernels))


def kernels_of(label: str, frameworks: Sequence[str]) -> str:
    """Whose kernels an engine runs, as `gnomon.cost.machine.Machine` names them: `name` or `name@version`,
    `nccl`, one of the `frameworks` that profiles were fitted to, or nothing."""
    name, _, version = label.partition("@")
    if name in ("", LIBRARIES) and not version:
        return LIBRARIES
    info = engine_info(name)
    if info and info.serves:
        engine(label)
        return info.framework
    if info and info.trains:
        training_engine(label)
        return "torch"
    own = (*serving_engines(), *training_engines())
    known = (*own, LIBRARIES, *(each for each in frameworks if each not in own))
    if name not in known:
        raise unknown_name("engine", name, known, hint=f"Known: {', '.join(known)}.")
    if version:
        raise InputError(f"{name} has no versions to choose from", hint=f"Give {name} alone.")
    return name


def _serving(name: str) -> EngineInfo:
    info = engine_info(name)
    return info if info and info.serves else _refused(info, name, serving_engines(), "serve")


def _training(name: str) -> EngineInfo:
    info = engine_info(name)
    return info if info and info.trains else _refused(info, name, training_engines(), "train")


def _refused(info: EngineInfo | None, name: str, known: tuple[str, ...], verb: str) -> EngineInfo:
    """Raises: an engine that does something else, or a name that none has."""
    if info is None:
        raise unknown_name("engine", name, known)
    raise InputError(f"{name} does not {verb}", where="--engine", hint=f"Engines that do: {', '.join(known)}.")


def _part(text: str) -> Any:
    """A part of an engine as its declaration names it."""
    module, _, attribute = text.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found
