"""What a setting of vLLM is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `default` is None where it depends on the chip, the model or another setting."""

    name: str
    kind: type[int] | type[float] | type[bool] | type[str]
    what: str
    default: int | float | bool | str | None = None
    choices: tuple[str, ...] = ()
    low: float = 1
    high: float = 2**31
    step: int = 1
    written: str = ""
    """Its flag, where that is not its name."""
    always: bool = False
    """Written into a launch command even when it has its default."""
    flagged: bool = True
    """Whether vLLM has a flag for it; what it has none for says how vLLM is called."""
    unmodelled: str = ""
    """Why no figure depends on it, where none does."""
    idle: str = ""
    """Why an answer may not depend on it, of settings that others do depend on."""
    idle_under_load: str = ""
    """Why that of a simulated load may not, where it is another reason."""

    @property
    def flag(self) -> str:
        return self.written or "--" + self.name.replace("_", "-")
