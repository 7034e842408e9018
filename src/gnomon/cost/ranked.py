"""What one step of data-parallel ranks takes that share experts: they wait for each other in every layer.

A rank runs attention and dense layers on its own tokens; at the experts the tokens of all ranks meet. Where the largest
step has a captured graph, all ranks are padded to its size; else each runs its own tokens, and experts get the sum. The
step is as long as the busiest rank's. A rank without work runs along with one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gnomon.cost.governor import Governor
from gnomon.cost.prompts import Work, added
from gnomon.cost.staged import StagedStepCost
from gnomon.cost.step import Curve, StepCost
from gnomon.cost.table import Columns, TableStepCost
from gnomon.graph.phases import rows_of

IDLE_TOKENS = 1
"""Of a step that a rank without work runs along with the others (vLLM's `execute_dummy_batch`)."""


class RankStep(NamedTuple):
    """What one rank runs in a step."""

    decodes: int
    decode_context: int
    chunks: Sequence[tuple[int, int]]
    tokens: int


class GroupSize(NamedTuple):
    """What the time of a rank depends on beside its own work."""

    most: int
    """Tokens of the rank that has most."""
    total: int
    """Tokens of all ranks, with those of ranks without work."""


class GroupStepCost(Protocol):
    """Seconds and joules of steps that data-parallel ranks run together."""

    @property
    def governor(self) -> Governor | None: ...

    @property
    def ranks(self) -> int: ...

    def size_of(self, tokens: Sequence[int]) -> GroupSize:
        """Of ranks with so many tokens each; those left out have none."""

    def key_of(self, size: GroupSize) -> int:
        """Groups with the same key cost a rank the same."""

    def rank_curve(self, decodes: int, size: GroupSize, slowdown: float = 1.0) -> Curve:
        """Decode steps of a rank in a group of such a size."""

    def group_work(self, steps: Sequence[RankStep]) -> Work:
        """A step with prompts of all ranks, of which these have work: the busiest one's seconds, those that follow the
        clock, and joules of the mean rank."""

    def idle_j(self, size: GroupSize) -> float:
        """Joules of a rank that runs along without work."""

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        """Of one rank; see `StepCost`."""


@dataclass(slots=True)
class RankedStepCost:
    """Steps of `ranks` data-parallel ranks. As a StepCost, those of one rank while no other has work."""

    table: TableStepCost
    """Of one rank, where all ranks run the same."""
    ranks: int
    _columns: tuple[tuple[Columns, Columns], tuple[Columns, Columns]] = field(init=False)
    """Of steps without prompts, and of those with them, by tokens, without padding: what follows the tokens of all
    ranks, as so many on each, and what follows a rank's own."""

    def __post_init__(self) -> None:
        names = {op.name for op in self.table.model.graph.ops if (rows := rows_of(op)) and rows.factor > 1}
        self._columns = (self.table.by_tokens(names, prompts=False), self.table.by_tokens(names, prompts=True))

    def drawn(self, draw: int) -> RankedStepCost:
        """Operators and host under one draw of their errors."""
        return RankedStepCost(self.table.drawn(draw), self.ranks)

    @property
    def governor(self) -> Governor:
        return self.table.governor

    def size_of(self, tokens: Sequence[int]) -> GroupSize:
        return GroupSize(max(tokens), sum(tokens) + (self.ranks - len(tokens)) * IDLE_TOKENS)

    def key_of(self, size: GroupSize) -> int:
        most, total = size
        return self.table.padded(most) if most <= self.table.host.largest else -total

    def rank_curve(self, decodes: int, size: GroupSize, slowdown: float = 1.0) -> Curve:
        return self.table.decode_curve(decodes, slowdown, self._more(decodes, size, prompts=False))

    def group_work(self, steps: Sequence[RankStep]) -> Work:
        size = self.size_of([step.tokens for step in steps])
        each = [self._rank_work(step, size) for step in steps]
        idle = (self.ranks - len(steps)) * self.idle_j(size)
        seconds, clocked, _ = max(each)
        return seconds, clocked, (sum(work[2] for work in each) + idle) / self.ranks

    def idle_j(self, size: GroupSize) -> float:
        dense, more = self.table.dense_work(IDLE_TOKENS, False), self._more(IDLE_TOKENS, size, False)
        return self.table.scaled(added(dense, more))[2]

    def _rank_work(self, step: RankStep, size: GroupSize) -> Work:
        decodes, context, chunks, tokens = step
        more = self._more(tokens, size, bool(chunks))
        if chunks:
            return added(self.table.mixed_work(decodes, context, chunks), self.table.scaled(more))
        return added(self.table.decode_work(decodes, context), self.table.scaled(more))

    def _more(self, tokens: int, size: GroupSize, prompts: bool) -> Work:
        """What a rank's step takes beyond one in which all ranks have as many tokens; before a draw's factors."""
        at = self.table.dense_work(tokens, prompts)
        if size.most <= self.table.host.largest:
            then = self.table.dense_work(size.most, prompts)
            return then[0] - at[0], then[1] - at[1], then[2] - at[2]
        shared, own = self._columns[prompts]
        mean = size.total / self.ranks
        low = min(int(mean), len(shared[0]) - 2)
        found = [
            mine[tokens] + of_all[low] + (of_all[low + 1] - of_all[low]) * (mean - low) - before
            for mine, of_all, before in zip(own, shared, at, strict=True)
        ]
        return found[0], found[1], found[2]

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        return self.rank_curve(sequences, self.size_of([sequences]), slowdown)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.mixed_work(decodes, decode_context, chunks)[0]

    def mixed_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> Work:
        tokens = decodes + sum(new for new, _ in chunks)
        step = RankStep(decodes, decode_context, chunks, tokens)
        return self._rank_work(step, self.size_of([tokens]))

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return self.table.launch(tokens, sequences, prompts)

    def varied_curve(self, sequences: int, slowdown: float, variant: int) -> Curve:
        raise NotImplementedError("ranks have neither adapters nor drafts")

    def varied_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], variant: int) -> Work:
        raise NotImplementedError("ranks have neither adapters nor drafts")

    def varied_launch(self, tokens: int, variant: int) -> float:
        raise NotImplementedError("ranks have neither adapters nor drafts")


DrawnCost = TableStepCost | RankedStepCost | StagedStepCost
"""A step cost whose operators are priced once for all draws."""


def ranked(table: TableStepCost, ranks: int) -> DrawnCost:
    """Of as many data-parallel ranks."""
    return RankedStepCost(table, ranks) if ranks > 1 else table


def busy_cost(cost: StepCost) -> StepCost:
    """Of one rank while all ranks have the same work, and of the busiest stage of a pipeline; the cost itself where
    there is one rank."""
    if isinstance(cost, StagedStepCost):
        return cost.busiest
    return cost.table if isinstance(cost, RankedStepCost) else cost
