"""A step model compiled into tables: what the simulator calls a million times.

Dense operators depend on the number of tokens alone, logits on the rows sampled, decodes on the sequences and
their mean context. Each becomes a table or a curve once; a step is then a few look-ups, and what its prompts take
(`gnomon.cost.prompts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.host import HostModel
from gnomon.cost.machine import priced_dtype
from gnomon.cost.op_times import OpTimes
from gnomon.cost.prompts import PromptCost, Times, summed
from gnomon.cost.step import Curve, StepModel
from gnomon.spec.workload import Floats

ALIGNED = 16
"""Rows of the smallest tile of a GEMM: above the captured sizes dense operators are priced at both ends of
every such tile, and taken as straight inside, where no other begins."""
EACH = 256
"""Up to so many tokens dense operators are priced at every number: experts are visited one by one there."""

Pieces = tuple[list[int], list[float], list[float]]
"""Contexts, seconds there, and what each token beyond them adds."""


@dataclass(slots=True)
class TableStepCost:
    """The StepCost of a step model. `factors` multiplies each operator's time: one draw, or nothing."""

    model: StepModel
    max_context: int
    max_tokens: int
    max_sequences: int
    factors: Mapping[str, float] = field(default_factory=dict)
    _times: OpTimes = field(init=False)
    _sizes: Floats = field(init=False)
    _padded: NDArray[np.int64] = field(init=False)
    _parts: tuple[Times, Times, Times] = field(init=False)
    _dense: list[float] = field(init=False)
    _logits: list[float] = field(init=False)
    _decodes: list[float] = field(init=False)
    _prompts: PromptCost = field(init=False)
    host: HostModel = field(init=False)
    _gaps: list[float] = field(init=False)
    _launches: tuple[float, float] = field(init=False)
    """Of a captured step and of a larger one, before its sequences and prompts."""
    _launch_sequence: float = field(init=False)
    _launch_prompt: float = field(init=False)
    _largest: int = field(init=False)
    _curves: dict[int, Curve] = field(init=False)
    _attention: dict[int, Floats] = field(init=False)
    _lists: dict[int, Pieces] = field(init=False)

    def __post_init__(self) -> None:
        model, host = self.model, self.model.host
        self._times = OpTimes(model.graph, model.machine, max_context=self.max_context, max_tokens=self.max_tokens)
        above = np.arange(host.largest + 1, self.max_tokens + ALIGNED)
        sizes = above[(above <= EACH) | (above % ALIGNED <= 1)]
        self._sizes = np.concatenate([host.captured, sizes])
        self._padded = np.arange(max(self.max_tokens, host.largest) + 1)
        self._padded[1 : host.largest + 1] = [host.padded(few) for few in range(1, host.largest + 1)]
        self._parts = (
            self._times.by_rows("tokens", self._sizes),
            self._times.by_rows("logit_rows", np.arange(1.0, self.max_sequences + 1)),
            self._times.by_decodes(self.max_sequences),
        )
        self._draw(host, self.factors)

    def _launch_by(self, host: HostModel) -> None:
        self.host, self._curves = host, {}
        self._gaps = [host.gap(sequences) for sequences in range(self.max_sequences + 1)]
        self._launches, self._largest = (host.launch(0, 0, 0), host.launch(np.inf, 0, 0)), host.largest
        self._launch_sequence, self._launch_prompt = host.launch_sequence_s, host.launch_prompt_s

    def _draw(self, host: HostModel, factors: Mapping[str, float]) -> None:
        self._launch_by(host)
        self.factors = factors
        dense, logits, decodes = (summed(part, factors) for part in self._parts)
        self._dense = np.interp(self._padded, self._sizes, dense).tolist()
        self._logits, self._decodes = ([0.0, *part.tolist()] for part in (logits, decodes))
        self._prompts = PromptCost(self._times.prompts, factors)
        self._attention, self._lists = {}, {}

    def under(self, host: HostModel) -> TableStepCost:
        """The same operators with another host of the same captured sizes; they are not priced again."""
        assert host.captured == self.host.captured
        other = copy(self)
        other._launch_by(host)
        return other

    def drawn(self, draw: int) -> TableStepCost:
        """Operators and host under one draw of their errors."""
        other, machine = copy(self), self.model.machine
        ops = {op.name: (op.kind, priced_dtype(op)) for op in self.model.graph.ops}
        factors = {name: float(machine.factors(name, *of)[draw]) for name, of in ops.items()}
        other._draw(self.host.drawn(draw), factors)
        return other

    def dense_s(self, tokens: int) -> float:
        """Device seconds of everything that depends on the step's tokens alone, padding included."""
        return self._dense[tokens]

    def decode_curve(self, sequences: int) -> Curve:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self._curve(sequences)
        return curve

    def _curve(self, sequences: int) -> Curve:
        fixed = self.dense_s(sequences) + self._logits[sequences] + self._decodes[sequences] + self._gaps[sequences]
        seconds = self._attention_of(sequences) + fixed
        return Curve(self._times.knots, np.maximum(seconds, self.host.decode(sequences)))

    def _attention_of(self, sequences: int) -> Floats:
        """Seconds of decode attention at the knots, computed for several numbers of decodes at once."""
        if sequences not in self._attention:
            first = (sequences - 1) // self._times.at_once * self._times.at_once + 1
            self._attention |= enumerate(summed(self._times.attention(first), self.factors), first)
        return self._attention[sequences]

    def _pieces(self, sequences: int) -> Pieces:
        """Decode attention over the mean context, in plain floats."""
        x, y = self._times.knots, self._attention_of(sequences)
        slopes = np.diff(y) / np.diff(x)
        found = self._lists[sequences] = (x.tolist(), y.tolist(), [*slopes.tolist(), float(slopes[-1])])
        return found

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
        device = self._dense[decodes + new] + self._logits[sequences] + self._gaps[sequences]
        device += self._prompts.seconds(chunks, new, pairs, read)
        if decodes:
            mean, (knots, seconds, slopes) = decode_context / decodes, self._lists.get(decodes) or self._pieces(decodes)
            i = bisect_right(knots, mean) - 1
            device += self._decodes[decodes] + seconds[i] + slopes[i] * (mean - knots[i])
        return device

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        base = self._launches[tokens > self._largest]
        return base + self._launch_sequence * sequences + self._launch_prompt * prompts
