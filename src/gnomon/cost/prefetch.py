"""Steps whose weights are copied from the host layer by layer, on a stream of their own, ahead of the layers.

Some layers have their weights on the host and share a few buffers on the chip. When one of them ends, the copy of the
one that is `ahead` of it among them begins; a layer waits for its own copy. How long steps wait in all is a maximum of
lines over the time of one layer: `T = max(copies + layers * c)`, each line a chain of copies and layers that wait for
each other. The lines are found once for a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gnomon.cost.draws import normals
from gnomon.graph.host_ops import HOST_READ
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import OperatorTime
from gnomon.spec.workload import Floats

NAME = "weights.prefetch"
WHOLE, PIECES, UNCAPTURED = 0, 1, 2
"""How a step runs: as one captured graph, whose end waits for all copies; as captured pieces between attentions, each
of which waits for the copies that it began; or kernel by kernel, where copies go on into the next step."""
SETTLED, STEPS = 4, 4
"""Steps until uncaptured ones repeat, and steps that are then averaged."""
NEVER, LONG = 1e-9, 1e3
"""Of the longest copy: layers that take next to nothing, and layers that hide every copy."""
DEPTH = 40


class Path(NamedTuple):
    """A moment on the longest chain that leads to it: seconds of copies and numbers of layers."""

    at_s: float
    copies_s: float
    layers: float

    def then(self, copies_s: float, layers: float, layer_s: float) -> Path:
        return Path(self.at_s + copies_s + layers * layer_s, self.copies_s + copies_s, self.layers + layers)


START = Path(0.0, 0.0, 0.0)
Line = tuple[float, float]
"""Seconds of copies, and layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySchedule:
    """Layers of one rank, and which of them are copied."""

    layers: int
    copies: tuple[tuple[int, float], ...]
    """Places of layers that are copied, rising, and the seconds of each copy."""
    ahead: int
    before_attention: float
    """Of a layer's time, the share before its attention begins: what a piece of a graph still runs of the next layer
    after a copy has begun."""

    def walk(self, how: int, layer_s: float) -> Path:
        """The end of a step whose layers take so long each."""
        return (self._whole, self._pieces, self._uncaptured)[how](layer_s)

    def _whole(self, layer_s: float) -> Path:
        return self._steps(layer_s, 1, joined=True)[0]

    def _uncaptured(self, layer_s: float) -> Path:
        ends = self._steps(layer_s, SETTLED + STEPS, joined=False)
        first, last = ends[SETTLED - 1], ends[-1]
        return Path(*((after - before) / STEPS for before, after in zip(first, last, strict=True)))

    def _steps(self, layer_s: float, steps: int, joined: bool) -> list[Path]:
        """Ends of steps, one after the other."""
        count, seconds = len(self.copies), [each for _, each in self.copies]
        index = {place: i for i, (place, _) in enumerate(self.copies)}
        ready, stream, now, ends = [START] * count, START, START, []
        for _ in range(steps):
            for place in range(self.layers):
                own = index.get(place)
                now = now if own is None else max(now, ready[own])
                now = now.then(0.0, 1.0, layer_s)
                if own is not None:
                    following = (own + self.ahead) % count
                    stream = max(stream, now).then(seconds[following], 0.0, layer_s)
                    ready[following] = stream
            now = max(now, stream) if joined else now
            ends.append(now)
        return ends

    def _pieces(self, layer_s: float) -> Path:
        now = START.then(0.0, float(self.layers), layer_s)
        for i, (place, _) in enumerate(self.copies):
            hidden = self.before_attention if place + 1 < self.layers else 0.0
            _, copy_s = self.copies[(i + self.ahead) % len(self.copies)]
            if copy_s > hidden * layer_s:
                now = now.then(copy_s, -hidden, layer_s)
        return now


@lru_cache(maxsize=256)
def lines_of(schedule: CopySchedule, how: int) -> tuple[Line, ...]:
    """Whose maximum is the time of a step."""
    most = max(seconds for _, seconds in schedule.copies)
    return _envelope(lambda layer_s: schedule.walk(how, layer_s), NEVER * most, LONG * most * len(schedule.copies))


def _envelope(walk: Callable[[float], Path], low: float, high: float) -> tuple[Line, ...]:
    """The lines of a convex, piecewise linear function, each found at a point where it is the largest."""
    found: dict[Line, None] = {}

    def between(one: Path, other: Path, depth: int) -> None:
        if abs(one.layers - other.layers) < 1e-9 or depth == 0:
            return
        cross = (one.copies_s - other.copies_s) / (other.layers - one.layers)
        middle = walk(cross)
        if middle.at_s <= (one.copies_s + one.layers * cross) * (1 + 1e-9):
            return
        found[middle.copies_s, middle.layers] = None
        between(one, middle, depth - 1)
        between(middle, other, depth - 1)

    ends = walk(low), walk(high)
    for end in ends:
        found[end.copies_s, end.layers] = None
    between(*ends, DEPTH)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchCost:
    """What steps wait for copies, beyond the time of their layers. Pipeline stages run one after the other."""

    schedules: tuple[CopySchedule, ...]
    """Of stages that copy."""
    layers: int
    """Of all stages, those that copy nothing too."""
    bytes: float
    """Copied in each step, by all stages."""
    spread: float
    """What the time of copies may be off by (log)."""
    source: str
    least: float = 0.0
    """What no draw multiplies it by less than: the data sheet's bandwidth over the one that copies are priced at."""
    factor: float = 1.0
    captured: bool = True
    """Whether copies are part of captured graphs; else they go on from step to step."""

    @property
    def factors(self) -> Floats:
        """What each draw multiplies the time of copies by."""
        return np.asarray(np.maximum(np.exp(self.spread * normals(f"prefetch/{self.source}")), self.least))

    def drawn(self, draw: int) -> PrefetchCost:
        return replace(self, factor=float(self.factors[draw]))

    def wait_s(self, layers_s: float, how: int) -> float:
        """Seconds that a step waits whose layers take so long in all."""
        total = 0.0
        each = layers_s / self.layers
        for one in self.schedules:
            longest = max(self.factor * copies + layers * each for copies, layers in lines_of(one, how))
            total += max(longest - one.layers * each, 0.0)
        return total

    def wait_array_s(self, layers_s: Floats, how: int, factor: Floats | float = 1.0) -> Floats:
        """`wait_s` of many steps, with a factor of copies for each."""
        each, total = layers_s / self.layers, np.zeros_like(layers_s)
        for one in self.schedules:
            lines = [self.factor * factor * copies + layers * each for copies, layers in lines_of(one, how)]
            longest = np.max(lines, axis=0)
            total += np.maximum(longest - one.layers * each, 0.0)
        return total

    def line(self, steps: Batch, layers_s: Floats, drawn: Floats, largest: int) -> OperatorTime:
        """Of these steps, whose layers take `layers_s` each, in all `drawn` under each draw; graphs are captured of up
        to `largest` tokens."""
        hows = [
            self.how(tokens, prompts, largest) for tokens, prompts in zip(steps.tokens, steps.prefills, strict=True)
        ]
        ratio, value, draws = drawn / float(layers_s.sum()), 0.0, np.zeros_like(drawn)
        for seconds, how in zip(layers_s.tolist(), hows, strict=True):
            value += self.wait_s(seconds, how)
            draws += self.wait_array_s(seconds * ratio, how, self.factors)
        return OperatorTime(
            op=NAME, kind=HOST_READ, time_s=Estimate(value, draws, Provenance.FORMULA, self.source), bound="host link",
            count=steps.size, flops=0.0, bytes=self.bytes * steps.size,
        )  # fmt: skip

    def how(self, tokens: float, prompts: float, largest: int) -> int:
        """How a step of so many tokens runs, with prompts or without."""
        if tokens > largest or not self.captured:
            return UNCAPTURED
        return PIECES if prompts else WHOLE
