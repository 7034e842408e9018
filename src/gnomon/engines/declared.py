"""What an engine's folder says of itself: its name, what it does, and where its parts are. None is imported before the
engine is chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """One engine, as `ENGINE` in the `__init__.py` of its folder or behind an entry point of the group
    `gnomon.engines`. Parts are named `module:attribute`, or `module` where the module is the part."""

    name: str
    title: str
    """As its users write it: vLLM, Megatron-LM."""
    versions: tuple[str, ...]
    """Those that are described, the newest last."""
    default: str = ""
    """The version that is meant where none is named; the newest where this is empty."""
    serves: str = ""
    """Its `engines.base.Engine`, made with a version; empty where it does not serve."""
    trains: str = ""
    """Its `engines.base.TrainingEngine`, made with a version; empty where it does not train."""
    operations: str = ""
    """Its `engines.operations.Operations`: what starts a serving plan; empty where nothing here does."""
    training_operations: str = ""
    """Its `engines.training.operations.TrainingOperations`: what writes and reads training plans of it; empty where
    nothing here does."""
    training_target: str = ""
    """What `gnomon export` calls it for training plans, where that is not its name."""
    training_aliases: tuple[str, ...] = ()
    """What else people call that: launchers that its files are started by."""
    kernels: str = ""
    """Its `engines.base.KernelChoices`, where shipped profiles are fitted to its kernels."""
    framework: str = ""
    """Whose kernels it runs, where shipped profiles have a file of their own for them (`load/profiles.py`); empty where
    they are those that profiles are fitted to without one."""
    commands: str = ""
    """What reads its launch commands and configuration files (`engines.operations.CommandReader`)."""
    runs_modules: bool = False
    """Whether it runs any module as it is written: a traced one, and the published code of networks that no serving
    engine takes."""
    place: int = 100
    """Where lists name it; engines of one place are listed by name."""
