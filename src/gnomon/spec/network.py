"""One step of a network that is no plain decoder: what it is given."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.spec.preprocessor import ImageTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerInput:
    """What goes through a tower for each sequence of a training batch."""

    taken: ImageTokens
    pieces: int = 1
    """Pictures, or stretches of sound or text."""
    frozen: bool = False
    """It runs forward alone, and does not learn."""
    frozen_tail: bool = False
    """What leads from it to the decoder does not learn."""

    @property
    def sequences(self) -> int:
        """Of the tower, for each of the batch."""
        return self.pieces * self.taken.sequences

    @property
    def source(self) -> int:
        """Tokens that it leaves for each sequence."""
        return self.pieces * self.taken.merged


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStep:
    """`sequences` alike. With a tower, each sequence has `pieces` pictures or stretches of sound or text."""

    decode: bool
    sequences: int
    tokens: int
    """New ones of each sequence, those that pictures leave in its prompt included."""
    context: int = 0
    taken: ImageTokens | None = None
    pieces: int = 0

    @property
    def towered(self) -> int:
        """Sequences that go through the tower in this step."""
        return 0 if self.decode or self.taken is None else self.sequences * self.pieces * self.taken.sequences

    @property
    def source(self) -> int:
        """Tokens of the tower that each sequence has."""
        return 0 if self.taken is None else self.pieces * self.taken.merged
