"""What windowed attention attends to: the last so many tokens, or those of its own chunk.

A batch is known by its sums, so its sequences are taken as equal: exact for equal ones, by the mean for others.
`in_chunks` has the sums of chunks that are known one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True)
class Window:
    """A token sees itself and what stands before it, `length` tokens in all. One that does not slide (`chunked`)
    begins anew at every multiple of its length."""

    length: int
    chunked: bool = False

    def seen(self, position: Floats) -> Floats:
        """Tokens that the token at a position sees; the first stands at 1."""
        if self.chunked:
            return np.asarray(np.mod(np.maximum(position - 1, 0.0), self.length) + np.minimum(position, 1.0))
        return np.minimum(position, self.length)

    def below(self, position: Floats) -> Floats:
        """What all tokens up to a position see, together."""
        whole = self.length * (self.length + 1) / 2
        if self.chunked:
            chunks = np.floor(position / self.length)
            rest = position - chunks * self.length
            return np.asarray(chunks * whole + rest * (rest + 1) / 2)
        first = np.minimum(position, self.length)
        return np.asarray(first * (first + 1) / 2 + (position - first) * self.length)

    def decode_context(self, batch: Batch) -> Floats:
        """The sum over decodes of the cached tokens each reads."""
        n = np.maximum(batch.decodes, 1e-9)
        return np.minimum(batch.decode_context, batch.decodes * self.seen(batch.decode_context / n))

    def prefill_pairs(self, batch: Batch) -> Floats:
        """Query-key pairs of all prompt chunks; never more than without the window."""
        n = np.maximum(batch.prefills, 1e-9)
        new, cached = batch.prefill_tokens / n, batch.cached / n
        return np.minimum(batch.prefill_pairs, batch.prefills * (self.below(cached + new) - self.below(cached)))

    def prefill_context(self, batch: Batch) -> Floats:
        """Tokens whose keys and values the prompt chunks read."""
        n = np.maximum(batch.prefills, 1e-9)
        return np.asarray(batch.prefill_tokens + batch.prefills * self._before(batch.cached / n))

    def _before(self, cached: Floats) -> Floats:
        """Cached tokens that the first new one sees."""
        return np.asarray(np.mod(cached, self.length) if self.chunked else np.minimum(cached, self.length - 1.0))

    def in_chunks(self, chunks: Sequence[tuple[int, int]]) -> tuple[float, float]:
        """Pairs of prompt chunks (new tokens, cached tokens), and tokens they read."""
        new, cached = np.asarray(chunks, float).T
        pairs = np.sum(self.below(cached + new) - self.below(cached))
        return float(pairs), float(np.sum(new + self._before(cached)))

    def bends(self, longest: int) -> tuple[int, ...]:
        """Cached tokens up to `longest` at which what a decode sees stops growing as it did. Where it begins anew, so
        does what a kernel makes of a short context: a few more tell that it grows again."""
        if not self.chunked:
            return (self.length - 1, self.length) if self.length <= longest else ()
        steps = [-1, 0, *(2**power for power in range(4, self.length.bit_length(), 2) if 2**power < self.length)]
        ends = range(self.length, longest + 1, self.length)
        return tuple(end + step for end in ends for step in steps if end + step <= longest)
