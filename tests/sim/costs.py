"""Made-up step costs, with the cliffs and knots of real ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.cost.governor import Governor
from gnomon.cost.step import Curve

KNOTS = np.array([0, 1, 7, 8, 40, 41, 100, 350])


class Unmetered:
    """A step cost that knows no joules."""

    governor: Governor | None = None

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        raise NotImplementedError

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        raise NotImplementedError

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]
    ) -> tuple[float, float, float]:
        raise NotImplementedError

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        raise NotImplementedError


class Cliffs(Unmetered):
    """Jumps between captured sizes of the batch, and cliffs over the context."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        padded = 1 << (sequences - 1).bit_length()
        steps = np.array([0.0, 0.01, 0.02, 0.5, 0.55, 0.2, 0.9, 2.0])
        return Curve(KNOTS, self.scale * (5e-3 + 1e-4 * padded + 1e-3 * steps * (1 + sequences / 7)))

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = decodes + sum(new for new, _ in chunks)
        pairs = sum(new * (cached + new / 2) for new, cached in chunks)
        return self.scale * (6e-3 + 1.7e-4 * tokens + 3e-7 * pairs + 2e-7 * decode_context)

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return self.scale * ((23e-3 if tokens > 24 else 1e-3) + 1e-4 * sequences + 3e-4 * prompts)


class Dyadic(Unmetered):
    """Times that are sums of powers of two, so that sums are exact and ties are real ties."""

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        return Curve(np.array([0]), np.array([2.0**-7 + 2.0**-12 * (sequences // 4)]))

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return 2.0**-6 + 2.0**-12 * sum(new for new, _ in chunks)

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return 2.0**-5 if tokens > 32 else 2.0**-9


class Smooth(Unmetered):
    """Like an 8B model on one H100: bandwidth-bound decodes and compute-bound prompts."""

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        context = np.array([0, 1024, 4096])
        return Curve(context, 7e-3 + 2e-5 * sequences + 5e-8 * sequences * context)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = sum(new for new, _ in chunks)
        return max(7e-3 + 2e-5 * decodes, 1e-4 * tokens) + 5e-8 * decode_context + 2e-4

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return 3e-3 if tokens <= 512 else 20e-3


class Flat(Unmetered):
    """Two seconds with prompts, one without: sums a reader can do."""

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        return Curve(np.array([0]), np.array([1.0]))

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return 2.0

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return 0.0


class Adapted(Unmetered):
    """Another cost, to which adapters in a step add."""

    def __init__(self, inner: Unmetered) -> None:
        self.inner = inner
        self.decode_curve, self.mixed, self.launch = inner.decode_curve, inner.mixed, inner.launch  # type: ignore[method-assign]

    def varied_curve(self, sequences: int, slowdown: float, variant: int) -> Curve:
        plain = self.decode_curve(sequences)
        return Curve(plain.context, plain.seconds + 2.0**-10 * variant)

    def varied_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], variant: int
    ) -> tuple[float, float, float]:
        return self.mixed(decodes, decode_context, chunks) + 2.0**-9 * variant, 0.0, 0.0

    def varied_launch(self, tokens: int, variant: int) -> float:
        return 2.0**-11 * variant


class Metered:
    """Another cost, with a share of its time that follows the clock, and joules: prompts draw more than the limit
    allows, decodes as much, or a little less or more by their number and context."""

    def __init__(self, inner: Unmetered, governor: Governor, host_s: float = 0.0) -> None:
        self.inner, self.governor, self.host_s = inner, governor, host_s

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        plain = self.inner.decode_curve(sequences)
        watts = 300.0 + 40.0 * (sequences % 9)
        joules = watts * float(plain.seconds[0]) + 1e-3 * sequences * plain.context
        clocked = (0.2 + 0.05 * (sequences % 5)) * plain.seconds
        seconds = np.maximum(plain.seconds + (slowdown - 1) * clocked, self.host_s)
        return Curve(plain.context, seconds, clocked, joules)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.inner.mixed(decodes, decode_context, chunks)

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]
    ) -> tuple[float, float, float]:
        seconds = self.mixed(decodes, decode_context, chunks)
        return seconds, 0.6 * seconds, (700.0 + 2.0 * len(chunks)) * seconds

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return self.inner.launch(tokens, sequences, prompts)
