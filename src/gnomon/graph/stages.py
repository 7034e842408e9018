"""A network cut into the stages of a pipeline: which layers each holds, and what passes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gnomon.graph.dtypes import STATE, width
from gnomon.graph.ops import TOKENS, Collective, Op
from gnomon.spec import Block, Model, Strategy

ENDS = ("embedding", "head")
"""What comes before the layers of a network, and after them."""
PASSED = 2
"""Streams that leave a stage: what the last layer made, and the residual it has not been added to yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers from `start` up to `end`, after the embedding where it is first and before the head where it is last."""

    start: int
    end: int
    first: bool
    last: bool

    @property
    def ends(self) -> tuple[str, ...]:
        """Those of `ENDS` that it has."""
        return tuple(end for end, held in zip(ENDS, (self.first, self.last), strict=True) if held)

    @property
    def layers(self) -> int:
        return self.end - self.start

    def of(self, model: Model) -> Model:
        """The model with only this stage's layers. Its embedding and head are still named: see `first`, `last`;
        a head that shares the embedding's weights is a copy of them on the last stage."""
        return replace(model, blocks=tuple(self._blocks(model)))

    def _blocks(self, model: Model) -> Iterator[Block]:
        begin = 0
        for block in model.blocks:
            here = min(self.end, begin + block.count) - max(self.start, begin)
            begin += block.count
            if here > 0:
                yield replace(block, count=here)


def cut(layers: Sequence[int]) -> tuple[Stage, ...]:
    """Stages of so many layers each."""
    starts = [sum(layers[:index]) for index in range(len(layers))]
    last = len(layers) - 1
    return tuple(
        Stage(start=start, end=start + count, first=index == 0, last=index == last)
        for index, (start, count) in enumerate(zip(starts, layers, strict=True))
    )


def received(model: Model, strategy: Strategy, far: bool, per_node: int) -> Iterator[Op]:
    """What a stage does before its first layer: each rank gets its part of the streams from the stage before, which is
    on another node where that is `far`, and the tensor-parallel ranks join their parts."""
    size, tp = PASSED * model.hidden * width(STATE), strategy.tp
    yield Collective(
        name="pipeline.send",
        op="send_recv",
        rows=TOKENS,
        bytes_per_row=size / tp,
        ranks=2,
        stride=max(tp, per_node) if far else tp,
    )
    if tp > 1:
        yield Collective(name="pipeline.all_gather", op="all_gather", rows=TOKENS, bytes_per_row=size, ranks=tp)


def crossings(strategy: Strategy, per_node: int) -> tuple[bool, ...]:
    """Whether a stage and the one before it stand on different nodes, for any data-parallel rank.

    Ranks of one stage stand next to each other, and so do the stages of one data-parallel rank.
    """

    def node(dp: int, stage: int) -> int:
        return (dp * strategy.pp + stage) * strategy.tp // per_node

    return tuple(
        any(node(dp, stage) != node(dp, stage - 1) for dp in range(strategy.dp)) for stage in range(1, strategy.pp)
    )
