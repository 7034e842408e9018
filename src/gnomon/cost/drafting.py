"""What speculative decoding adds to a step beside the tokens that it verifies: writing the next drafts."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """Seconds after a step until the drafts of its sequences are there."""

    drafts: int
    """Of each sequence."""
    base_s: float = 0.0
    sequence_s: float = 0.0
    ragged_s: float = 0.0
    """At least, of a step without prompts in which a sequence has no draft: it is not captured whole, and the host
    launches its pieces one by one."""
    passes: int = 0
    """Of a model that writes one token of each sequence in a pass."""
    share: float = 0.0
    """Of the large model's time in everything that follows the tokens alone, what a pass takes."""
    head: float = 0.0
    """Of the time of its head."""

    def drawn(self, host: float) -> DraftCost:
        """With a host that takes so many times as long."""
        return replace(self, ragged_s=self.ragged_s * host)
