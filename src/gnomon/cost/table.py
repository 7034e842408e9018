"""A step model compiled into tables: what the simulator calls a million times.

Dense operators depend on the number of tokens alone, logits on the rows sampled, decodes on the sequences and
their mean context. Each becomes a table or a curve once; a step is then a few look-ups, and what its prompts take
(`gnomon.cost.prompts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from gnomon.cost.host import HostModel
from gnomon.cost.machine import priced_dtype
from gnomon.cost.op_times import BLOCK, OpTimes, Times
from gnomon.cost.prompts import PromptCost
from gnomon.cost.step import Curve, StepModel
from gnomon.spec.workload import Floats

GRAIN = 32
"""Above the captured sizes dense operators are tabulated every so many tokens, rounded up."""


@dataclass(slots=True)
class TableStepCost:
    """The StepCost of a step model. `factors` multiplies each operator's time: one draw, or nothing."""

    model: StepModel
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
        model, host = self.model, self.model.host
        grid = [*host.captured, *range(host.largest + GRAIN, self.max_tokens + GRAIN, GRAIN)]
        self._times = OpTimes(model.graph, model.machine, max_context=self.max_context, max_tokens=self.max_tokens)
        self._by_tokens = self._times.by_rows("tokens", np.array(grid, float))
        self._by_logits = self._times.by_rows("logit_rows", np.arange(1.0, self.max_sequences + 1))
        self._draw(self.factors)

    @property
    def host(self) -> HostModel:
        return self.model.host

    def _draw(self, factors: Mapping[str, float]) -> None:
        self.factors = factors
        self._tokens, self._logits = ([0.0, *self._sum(of).tolist()] for of in (self._by_tokens, self._by_logits))
        self._prompts = PromptCost(self._times.prompts, factors)
        self._curves, self._attention, self._lists = {}, {}, {}

    def under(self, host: HostModel) -> TableStepCost:
        """The same operators with another host; they are not priced again."""
        other = copy(self)
        other.model, other._curves = replace(self.model, host=host), {}
        return other

    def drawn(self, draw: int) -> TableStepCost:
        """Operators and host under one draw of their errors."""
        other, machine = self.under(self.host.drawn(draw)), self.model.machine
        ops = {op.name: (op.kind, priced_dtype(op)) for op in self.model.graph.ops}
        other._draw({name: float(machine.factors(name, *of)[draw]) for name, of in ops.items()})
        return other

    def _sum(self, times: Times) -> Floats:
        return np.asarray(sum(seconds * self.factors.get(name, 1.0) for name, seconds in times))

    def dense_s(self, tokens: int) -> float:
        """Device seconds of everything that depends on the step's tokens alone, padding included."""
        captured = self.host.captured
        if tokens <= self.host.largest:
            return self._tokens[1 + bisect_left(captured, tokens)]
        return self._tokens[len(captured) + -(-(tokens - self.host.largest) // GRAIN)]

    def decode_curve(self, sequences: int) -> Curve:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self._curve(sequences)
        return curve

    def _curve(self, sequences: int) -> Curve:
        fixed = self.dense_s(sequences) + self._logits[sequences] + self.host.gap(sequences)
        seconds = self._decode_attention(sequences) + fixed
        return Curve(self._times.knots, np.maximum(seconds, self.host.decode(sequences)))

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
        return self.host.launch(tokens)
