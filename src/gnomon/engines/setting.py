"""What a setting of a serving engine is, in what all engines share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """One setting of an engine. `default` is None where it depends on the chip, the model or another setting."""

    name: str
    kind: type[int] | type[float] | type[bool] | type[str]
    what: str
    default: int | float | bool | str | None = None
    choices: tuple[str, ...] = ()
    low: float = 1
    high: float = 2**31
    unmodelled: str = ""
    """Why no figure depends on it, where none does."""
    idle: str = ""
    """Why an answer may not depend on it, of settings that others do depend on."""
    idle_under_load: str = ""
    """Why that of a simulated load may not, where it is another reason."""
