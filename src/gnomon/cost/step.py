"""The seam between cost and simulation: seconds of an engine's step, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Seconds of a decode step over the mean number of cached tokens a sequence.

    `context` holds whole, rising numbers starting at 0; between two of them the time is linear, and
    the last slope goes on for ever.
    """

    context: NDArray[np.int64]
    seconds: NDArray[np.float64]


class StepCost(Protocol):
    """Seconds of a step, padding included."""

    def decode_curve(self, sequences: int) -> Curve:
        """The curve of steps in which `sequences` requests each make one token: one after another, so
        the larger of what device and host need."""

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Device seconds of a step with prompt chunks (new tokens, tokens cached before them) beside
        `decodes` decodes whose cached tokens sum to `decode_context`. `chunks` is never empty."""

    def launch(self, tokens: int, sequences: int) -> float:
        """Host seconds to prepare and launch such a step of so many tokens and sequences. They run while
        the device works on the step before; only then do the outputs of that one leave the engine."""
