"""What a setting of vLLM is."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.setting import EngineSetting


@dataclass(frozen=True, slots=True)
class Option(EngineSetting):
    """One setting of vLLM."""

    step: int = 1
    written: str = ""
    """Its flag, where that is not its name."""
    always: bool = False
    """Written into a launch command even when it has its default."""
    flagged: bool = True
    """Whether vLLM has a flag for it; what it has none for says how vLLM is called."""

    @property
    def flag(self) -> str:
        return self.written or "--" + self.name.replace("_", "-")
