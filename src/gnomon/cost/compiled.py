"""A graph on a machine, compiled into tables: what the simulator calls a million times.

Dense operators depend on the number of tokens alone, logits on the rows sampled, decodes on the sequences and
their mean context. Each becomes a table or a curve once; a step is then a few look-ups, and what its prompts take
(`gnomon.cost.prompts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from gnomon.cost.machine import Machine
from gnomon.cost.op_times import BLOCK, OpTimes, Times
from gnomon.cost.prompts import PromptCost
from gnomon.cost.step import Curve
from gnomon.graph import Graph
from gnomon.spec.workload import Floats

GRAIN = 32
"""Above the captured sizes dense operators are tabulated every so many tokens, rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """What the engine adds to the device's own work."""

    decode: Callable[[int], float]
    """Seconds between two decode steps of so many sequences that the host needs at least."""
    captured_launch_s: float
    """To prepare and launch a step with prompts, from captured pieces."""
    eager_launch_s: float
    """The same for a step larger than any captured one."""
    gap: Callable[[int], float]
    """Seconds the device idles between two steps of so many sequences."""
    captured: tuple[int, ...]
    """Token counts with a captured graph, rising; a smaller step is padded up to the next."""


@dataclass(slots=True)
class TableStepCost:
    """The StepCost of an engine. `factors` multiplies each operator's time: one draw, or nothing."""

    graph: Graph
    machine: Machine
    host: HostCost
    max_context: int
    max_tokens: int
    max_sequences: int
    factors: Mapping[str, float] = field(default_factory=dict)
    _times: OpTimes = field(init=False)
    _by_tokens: Times = field(init=False)
    _by_logits: Times = field(init=False)
    _tokens: list[float] = field(init=False)
    _logits: list[float] = field(init=False)
    _prompts: PromptCost = field(init=False)
    _curves: dict[int, Curve] = field(init=False)
    _attention: dict[int, Floats] = field(init=False)
    _lists: dict[int, tuple[list[int], list[float]]] = field(init=False)

    def __post_init__(self) -> None:
        edge = self.host.captured[-1] if self.host.captured else 0
        grid = [*self.host.captured, *range(edge + GRAIN, self.max_tokens + GRAIN, GRAIN)]
        self._times = OpTimes(self.graph, self.machine, max_context=self.max_context, max_tokens=self.max_tokens)
        self._by_tokens = self._times.by_rows("tokens", np.array(grid, float))
        self._by_logits = self._times.by_rows("logit_rows", np.arange(1.0, self.max_sequences + 1))
        self._draw(self.factors, self.host)

    def _draw(self, factors: Mapping[str, float], host: HostCost) -> None:
        self.factors, self.host = factors, host
        self._tokens, self._logits = ([0.0, *self._sum(of).tolist()] for of in (self._by_tokens, self._by_logits))
        self._prompts = PromptCost(self._times.prompts, factors)
        self._curves, self._attention, self._lists = {}, {}, {}

    def under(self, host: HostCost, factors: Mapping[str, float] | None = None) -> TableStepCost:
        """The same operators with another engine's share, or under another draw; they are not priced again."""
        other = copy(self)
        if factors is None:
            other.host, other._curves = host, {}
        else:
            other._draw(factors, host)
        return other

    def _sum(self, times: Times) -> Floats:
        return np.asarray(sum(seconds * self.factors.get(name, 1.0) for name, seconds in times))

    def dense_s(self, tokens: int) -> float:
        """Device seconds of everything that depends on the step's tokens alone, padding included."""
        captured = self.host.captured
        if captured and tokens <= captured[-1]:
            return self._tokens[1 + bisect_left(captured, tokens)]
        edge = captured[-1] if captured else 0
        return self._tokens[len(captured) + -(-(tokens - edge) // GRAIN)]

    def decode_curve(self, sequences: int) -> Curve:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self._curve(sequences)
        return curve

    def _curve(self, sequences: int) -> Curve:
        fixed = self.dense_s(sequences) + self._logits[sequences] + self.host.gap(sequences)
        seconds = self._decode_attention(sequences) + fixed
        return Curve(self._times.knots, np.maximum(seconds, self._decode_host(sequences)))

    def _decode_host(self, sequences: int) -> float:
        """A batch larger than any captured one is launched operator by operator."""
        captured = self.host.captured
        least = self.host.decode(sequences)
        return least if captured and sequences <= captured[-1] else max(least, self.host.eager_launch_s)

    def _decode_attention(self, sequences: int) -> Floats:
        """At the knots; worked out for a block of numbers of decodes at once."""
        if sequences not in self._attention:
            first = (sequences - 1) // BLOCK * BLOCK + 1
            self._attention |= enumerate(self._sum(self._times.decode(first)), first)
        return self._attention[sequences]

    def _attention_at(self, sequences: int, mean: float) -> float:
        """What decodes alone take, read off the same knots."""
        knots = self._lists.get(sequences)
        if knots is None:
            knots = (self._times.knots.tolist(), self._decode_attention(sequences).tolist())
            self._lists[sequences] = knots
        x, y = knots
        i = min(max(bisect_left(x, mean), 1), len(x) - 1)
        return y[i - 1] + (y[i] - y[i - 1]) * (mean - x[i - 1]) / (x[i] - x[i - 1])

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        if len(chunks) == 1:
            ((new, cached),) = chunks
            pairs, read = new * cached + new * (new + 1) // 2, new + cached
        else:
            new = pairs = read = 0
            for q, c in chunks:
                new += q
                pairs += q * c + q * (q + 1) // 2
                read += q + c
        sequences = decodes + len(chunks)
        device = self.dense_s(decodes + new) + self._logits[sequences] + self.host.gap(sequences)
        device += self._prompts.seconds(chunks, new, pairs, read)
        if decodes:
            device += self._attention_at(decodes, decode_context / decodes)
        return device

    def launch(self, tokens: int, sequences: int) -> float:
        captured = self.host.captured
        if captured and tokens <= captured[-1]:
            return self.host.captured_launch_s
        return self.host.eager_launch_s
