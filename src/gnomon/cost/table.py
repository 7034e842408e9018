"""A step model compiled into tables: what the simulator calls a million times.

Dense operators depend on the number of tokens alone, logits on the rows sampled, decodes on the sequences and
their mean context. Each becomes a table or a curve once; a step is then a few look-ups, and what its prompts take
(`gnomon.cost.prompts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.draws import normals
from gnomon.cost.governor import Governor
from gnomon.cost.host import HostModel
from gnomon.cost.machine import priced_dtype
from gnomon.cost.op_times import OpTimes
from gnomon.cost.overlap import LaneTables
from gnomon.cost.prompts import PromptCost, Times, Work, summed
from gnomon.cost.step import Curve, StepModel, parts_of
from gnomon.spec.workload import Floats

ALIGNED = 16
"""Rows of the smallest tile of a GEMM: above the captured sizes dense operators are priced at both ends of
every such tile, and taken as straight inside, where no other begins."""
EACH = 256
"""Up to so many tokens dense operators are priced at every number: experts are visited one by one there."""

NOTHING: Work = (0.0, 0.0, 0.0)
Columns = tuple[list[float], list[float], list[float]]
"""Seconds, clocked seconds and joules at several sizes."""
Pieces = tuple[list[int], list[float], list[float], list[float]]
"""Contexts, and there seconds, clocked seconds and joules."""


@dataclass(slots=True)
class TableStepCost:
    """The StepCost of a step model. `factors` multiplies each operator's time: one draw, or nothing."""

    model: StepModel
    max_context: int
    max_tokens: int
    max_sequences: int
    factors: Mapping[str, float] = field(default_factory=dict)
    each: int = field(init=False, default=1)
    """Tokens that a decode runs: its last one, and drafts."""
    _times: OpTimes = field(init=False)
    _sizes: Floats = field(init=False)
    _padded: NDArray[np.int64] = field(init=False)
    _parts: tuple[Times, Times, Times] = field(init=False)
    _dense: Columns = field(init=False)
    _prompt_dense: Columns = field(init=False)
    """Of steps without prompts, and of those with them."""
    _logits: Columns = field(init=False)
    _decodes: Floats = field(init=False)
    _prompts: PromptCost = field(init=False)
    host: HostModel = field(init=False)
    _gaps: list[float] = field(init=False)
    _launches: tuple[float, float] = field(init=False)
    """Of a captured step and of a larger one, before its sequences and prompts."""
    _launch_sequence: float = field(init=False)
    _launch_prompt: float = field(init=False)
    _largest: int = field(init=False)
    _of_prompts: Mapping[str, float] = field(init=False)
    """`factors` in steps with prompts."""
    _clock_factor: float = field(init=False, default=1.0)
    _joule_factor: float = field(init=False, default=1.0)
    """What this draw multiplies by: the seconds that a lower clock adds, and joules."""
    _drawn: int | None = field(init=False, default=None)
    """Which draw this is, for what images add."""
    _lanes: LaneTables | None = field(init=False, default=None)
    """By how much operators of one step overlap, where some run at the same time."""
    _works: dict[int, Floats] = field(init=False)
    _attention: dict[int, Floats] = field(init=False)
    _lists: dict[int, Pieces] = field(init=False)

    def __post_init__(self) -> None:
        model, host = self.model, self.model.host
        if model.drafting is not None:
            self.each = 1 + model.drafting.drafts
            self.max_tokens += self.max_sequences * model.drafting.drafts
        self._times = OpTimes(model.graph, model.machine, max_context=self.max_context, max_tokens=self.max_tokens)
        above = np.arange(host.largest + 1, self.max_tokens + ALIGNED)
        sizes = above[(above <= EACH) | (above % ALIGNED <= 1)]
        self._sizes = np.concatenate([host.captured, sizes])
        self._padded = np.arange(max(self.max_tokens, host.largest) + 1)
        self._padded[1 : host.largest + 1] = [host.padded(few) for few in range(1, host.largest + 1)]
        self._parts = (
            self._times.by_rows("tokens", self._sizes),
            self._times.by_rows("logit_rows", np.arange(1.0, self.max_sequences * self.each + 1)),
            self._times.by_decodes(self.max_sequences),
        )
        self._draw(host, self.factors, self.factors)

    def _launch_by(self, host: HostModel) -> None:
        self.host, self._works = host, {}
        self._gaps = [host.gap(sequences) for sequences in range(self.max_sequences + 1)]
        self._launches, self._largest = (host.launch(0, 0, 0), host.launch(np.inf, 0, 0)), host.largest
        self._launch_sequence, self._launch_prompt = host.launch_sequence_s, host.launch_prompt_s

    def _draw(self, host: HostModel, factors: Mapping[str, float], of_prompts: Mapping[str, float]) -> None:
        self._launch_by(host)
        self.factors, self._of_prompts = factors, of_prompts
        dense, logits, decodes = (summed(part, factors) for part in self._parts)
        self._dense = self._prompt_dense = self._padded_columns(dense)
        if of_prompts != factors:
            self._prompt_dense = self._padded_columns(summed(self._parts[0], of_prompts))
        self._logits = _columns(np.append(0.0, row) for row in logits)
        self._decodes = np.insert(decodes, 0, 0.0, axis=1)
        self._prompts = PromptCost(self._times.prompts, of_prompts)
        self._attention, self._lists = {}, {}
        overlap = self.model.overlap
        self._lanes = LaneTables(overlap, self.model.graph.ops, self._seconds_of) if overlap is not None else None

    def _seconds_of(self, names: Container[str], prompts: bool) -> list[float]:
        """Of the operators that are named, by the number of tokens, padding included."""
        named = [one for one in self._parts[0] if not one.name or one.name in names]
        return self._padded_columns(summed(named, self._of_prompts if prompts else self.factors))[0]

    def _padded_columns(self, dense: Floats) -> Columns:
        return _columns(np.interp(self._padded, self._sizes, row) for row in dense)

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
        factors, of_prompts = (
            {name: float(machine.factors(name, *of, prompts=prompts)[draw]) for name, of in ops.items()}
            for prompts in (False, True)
        )
        other.model = _drawn_options(self.model, draw)
        other._draw(self.host.drawn(draw), factors, of_prompts)
        other._drawn = draw
        other._clock_factor, other._joule_factor = (
            float(drawn[draw]) for drawn in (machine.clock_factors, machine.joule_factors)
        )
        return other

    @property
    def governor(self) -> Governor:
        return self.model.machine.governor

    def dense_s(self, tokens: int) -> float:
        """Device seconds of everything that depends on the step's tokens alone, padding included."""
        return self._dense[0][tokens]

    def padded(self, tokens: int) -> int:
        """The size that a step of so many tokens runs at."""
        return int(self._padded[tokens])

    def dense_work(self, tokens: int, prompts: bool) -> Work:
        """What depends on the step's tokens alone, padding included, before a draw's factors of clock and joules; of a
        step with prompts or without."""
        seconds, clocked, joules = self._prompt_dense if prompts else self._dense
        return seconds[tokens], clocked[tokens], joules[tokens]

    def scaled(self, work: Work) -> Work:
        """With a draw's factors of clock and joules."""
        return work[0], work[1] * self._clock_factor, work[2] * self._joule_factor

    def by_tokens(self, names: Container[str], prompts: bool) -> tuple[Columns, Columns]:
        """`dense_work` by the number of tokens without padding: of the operators that are named, and of the others."""
        factors = self._of_prompts if prompts else self.factors
        every, sizes = np.arange(self._padded.size), self._sizes
        named = [one for one in self._parts[0] if not one.name or one.name in names]
        others = [one for one in self._parts[0] if one.name not in names]
        first, second = (
            _columns(np.interp(every, sizes, row) for row in summed(part, factors)) for part in (named, others)
        )
        return first, second

    def decode_work(self, decodes: int, decode_context: int) -> Work:
        """A step of decodes alone, without what the host needs at least."""
        knots, times, clocks, powers = self._lists.get(decodes) or self._pieces(decodes)
        mean = decode_context / decodes
        after = min(bisect_right(knots, mean), len(knots) - 1)
        share = (mean - knots[after - 1]) / (knots[after] - knots[after - 1])
        found = [
            each[after - 1] + (each[after] - each[after - 1]) * share + dense[decodes] + logits[decodes]
            for each, dense, logits in zip((times, clocks, powers), self._dense, self._logits, strict=True)
        ]
        attention_s = times[after - 1] + (times[after] - times[after - 1]) * share
        seconds = found[0] - self._hidden_s(decodes, attention_s)
        waits = self._copies_s(seconds - self._logits[0][decodes], decodes, 0)
        return self.scaled((seconds + waits + self._gaps[decodes], min(found[1], seconds), found[2]))

    def _hidden_s(self, tokens: int, decodes_s: float, prompts_s: float = 0.0) -> float:
        """Of a step whose decodes' and prompts' attention take so long; with prompts where they take any."""
        if self._lanes is None:
            return 0.0
        if prompts_s:
            return self._lanes.mixed_s(tokens, decodes_s, prompts_s)
        return float(self._lanes.decodes_s(tokens, np.array([decodes_s]))[0])

    def _copies_s(self, layers_s: float, tokens: int, prompts: int) -> float:
        """What a step waits for copies of weights whose layers take so long."""
        prefetch = self.model.prefetch
        return prefetch.wait_s(layers_s, prefetch.how(tokens, prompts, self._largest)) if prefetch is not None else 0.0

    def decode_curve(self, sequences: int, slowdown: float = 1.0, more: Work = NOTHING) -> Curve:
        """`more` is added to every step."""
        return self._curve(sequences, slowdown, more, 0)

    def varied_curve(self, sequences: int, slowdown: float, variant: int) -> Curve:
        _, missing, _ = parts_of(variant)
        run = sequences * self.each - missing * (self.each - 1)
        return self._curve(sequences, slowdown, self._varied(run, variant), missing)

    def _varied(self, tokens: int, variant: int) -> Work:
        """What adapters and images add."""
        adapters, _, images = parts_of(variant)
        seconds, clocked, joules = NOTHING
        if adapters:
            assert self.model.adapters is not None
            seconds, clocked, joules = self.model.adapters.work(int(self._padded[tokens]), adapters)
        if images:
            assert self.model.tower is not None
            tower = self.model.tower.work(images, self._drawn)
            seconds, clocked, joules = seconds + tower[0], clocked + tower[1], joules + tower[2]
        return seconds, clocked, joules

    def _drafted(self, sequences: int) -> Work:
        """Until the next drafts of so many sequences are written; a model that writes them is a share of this one."""
        drafting = self.model.drafting
        assert drafting is not None
        share, rows = drafting.passes * drafting.share, drafting.passes * drafting.head
        dense, logits = self._dense, self._logits
        work = [share * part[sequences] + rows * row[sequences] for part, row in zip(dense, logits, strict=True)]
        return work[0] + drafting.base_s + drafting.sequence_s * sequences, work[1], work[2]

    def _curve(self, sequences: int, slowdown: float, more: Work, missing: int) -> Curve:
        """`missing` of the sequences have no drafts."""
        key = sequences + missing * (1 << 32)
        work = self._works.get(key)
        if work is None:
            run = sequences * self.each - missing * (self.each - 1)
            fixed = [part[run] + rows[run] for part, rows in zip(self._dense, self._logits, strict=True)]
            fixed_work = np.array(fixed) + self._decodes[:, sequences]
            if self.each > 1:
                fixed_work = fixed_work + np.array(self._drafted(sequences))
            work = self._works[key] = self._attention_of(sequences) + fixed_work[:, None]
        seconds, clocked, joules = work if more is NOTHING else work + np.array(more)[:, None]
        if self._lanes is not None:
            attention_s = self._attention_of(sequences)[0] + self._decodes[0, sequences]
            seconds = seconds - self._lanes.decodes_s(sequences * self.each - missing * (self.each - 1), attention_s)
            clocked = np.minimum(clocked, seconds)
        prefetch = self.model.prefetch
        if prefetch is not None:
            how = prefetch.how(sequences, 0, self._largest)
            seconds = seconds + prefetch.wait_array_s(seconds - self._logits[0][sequences], how)
        clocked, joules = clocked * self._clock_factor, joules * self._joule_factor
        device = seconds + self._gaps[sequences] + (slowdown - 1) * clocked
        least = self.host.decode(sequences) if self.each == 1 else self._verify(sequences, missing)
        return Curve(self._times.knots, np.maximum(device, least), clocked, joules)

    def _verify(self, sequences: int, missing: int) -> float:
        """Least seconds of a step with drafts on the host."""
        assert self.model.drafting is not None
        least, tokens = self.host.decode(sequences), sequences * self.each
        least = max(least, self.model.drafting.ragged_s) if missing else least
        return least if tokens <= self._largest else max(least, self.host.launch(tokens, sequences, 0))

    def _attention_of(self, sequences: int) -> Floats:
        """Work of decode attention at the knots, computed for several numbers of decodes at once."""
        if sequences not in self._attention:
            first = (sequences - 1) // self._times.at_once * self._times.at_once + 1
            found = summed(self._times.attention(first), self.factors)
            self._attention |= enumerate(np.moveaxis(found, 1, 0), first)
        return self._attention[sequences]

    def _pieces(self, sequences: int) -> Pieces:
        """Decodes over the mean context, in plain floats."""
        work = self._attention_of(sequences) + self._decodes[:, sequences, None]
        found = self._lists[sequences] = (self._times.knots.tolist(), *_columns(work))
        return found

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.mixed_work(decodes, decode_context, chunks)[0]

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], missing: int = 0
    ) -> Work:
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
        seconds, clocked, joules = self._prompts.work(chunks, new, pairs, read)
        prompts_s, decodes_s = seconds, 0.0
        tokens, rows = decodes + new, sequences
        if self.each > 1:
            run = decodes * self.each - missing * (self.each - 1)
            tokens, rows = run + new, run + len(chunks)
            more = self._drafted(sequences)
            seconds, clocked, joules = seconds + more[0], clocked + more[1], joules + more[2]
        dense_s, dense_clocked, dense_j = self._prompt_dense
        logits_s, logits_clocked, logits_j = self._logits
        seconds += dense_s[tokens] + logits_s[rows] + self._gaps[sequences]
        clocked += dense_clocked[tokens] + logits_clocked[rows]
        joules += dense_j[tokens] + logits_j[rows]
        if decodes:
            knots, times, clocks, powers = self._lists.get(decodes) or self._pieces(decodes)
            mean = decode_context / decodes
            after = bisect_right(knots, mean)
            if after == len(knots):
                after -= 1
            i = after - 1
            share = (mean - knots[i]) / (knots[after] - knots[i])
            decodes_s = times[i] + (times[after] - times[i]) * share
            seconds += decodes_s
            clocked += clocks[i] + (clocks[after] - clocks[i]) * share
            joules += powers[i] + (powers[after] - powers[i]) * share
        if self._lanes is not None:
            seconds -= self._hidden_s(tokens, decodes_s, prompts_s)
            clocked = min(clocked, seconds)
        if self.model.prefetch is not None:
            seconds += self._copies_s(seconds - logits_s[rows] - self._gaps[sequences], tokens, len(chunks))
        return seconds, clocked * self._clock_factor, joules * self._joule_factor

    def varied_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], variant: int) -> Work:
        _, missing, _ = parts_of(variant)
        seconds, clocked, joules = self.mixed_work(decodes, decode_context, chunks, missing)
        run = decodes * self.each - missing * (self.each - 1)
        more = self._varied(run + sum(new for new, _ in chunks), variant)
        return seconds + more[0], clocked + more[1] * self._clock_factor, joules + more[2] * self._joule_factor

    def varied_launch(self, tokens: int, variant: int) -> float:
        adapters, *_ = parts_of(variant)
        if not adapters or tokens <= self._largest:
            return 0.0
        assert self.model.adapters is not None
        return self.model.adapters.launch()

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        base = self._launches[tokens > self._largest]
        return base + self._launch_sequence * sequences + self._launch_prompt * prompts


def _drawn_options(model: StepModel, draw: int) -> StepModel:
    """What adapters and drafts take on the host follows the draw of the host; copies have their own."""
    adapters, drafting, host, prefetch = model.adapters, model.drafting, model.host, model.prefetch
    if adapters is None and drafting is None and prefetch is None:
        return model
    return replace(
        model,
        adapters=adapters and adapters.drawn(float(normals(host.source)[draw])),
        drafting=drafting and drafting.drawn(float(host.factors[draw])),
        prefetch=prefetch and prefetch.drawn(draw),
    )


def _columns(work: Iterable[Floats]) -> Columns:
    """Seconds, clocked seconds and joules in plain floats."""
    seconds, clocked, joules = (row.tolist() for row in work)
    return seconds, clocked, joules
