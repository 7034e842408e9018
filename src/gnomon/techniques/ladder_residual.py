"""Ladder residual: every block reads the residual stream as it was one block earlier, so all-reduces hide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gnomon.cost.step import StepModel
from gnomon.engines.base import ServingCase
from gnomon.graph.ops import Collective, Op
from gnomon.spec.workload import Floats
from gnomon.techniques.base import SERVING, Rejection, Technique, Trial, Values

MIXERS, FEED_FORWARD, MIXERS_SUM, FEED_FORWARD_SUM = range(4)
FFN, ENDS = "ffn.", ("embedding", "head.")
"""How names of operators begin."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Blocks in one stream, their all-reduces in another: that of a mixer ends before the next mixer begins, that of a
    feed-forward before the next feed-forward does."""

    lanes: int = 4
    decode: int = MIXERS
    prefill: int = MIXERS

    def lane(self, op: Op) -> int | None:
        if op.name.startswith(ENDS):
            return None
        second = op.name.startswith(FFN)
        if isinstance(op, Collective):
            return FEED_FORWARD_SUM if second else MIXERS_SUM
        return FEED_FORWARD if second else MIXERS

    def exposed(self, lanes: Floats) -> Floats:
        """Layers are alike, so all of a kind overlap with all of the other kind as one does with the next."""
        mixers, feed_forward, mixers_sum, feed_forward_sum = lanes
        left = np.maximum(mixers_sum - feed_forward, 0.0), np.maximum(feed_forward_sum - mixers, 0.0)
        return np.stack([mixers, feed_forward, *left])


class LadderResidual(Technique[ServingCase]):
    name = "ladder-residual"
    work = (SERVING,)
    searched = False
    title = "All-reduces behind the next block"
    idea = (
        "A block reads the residual stream without the block just before it, whose all-reduce then overlaps with "
        "compute; the network is another one and has to be trained or adapted so."
    )
    trials = (Trial(paper="ladder-residual", words="ladder-residual"),)
    changes = frozenset({"precision"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield case.strategy.tp == 1, "tp is 1, so no block ends in an all-reduce"
        yield case.strategy.dp > 1, "data-parallel ranks that share a replica's steps are not priced with lanes"
        yield (
            any(block.ffn is None for block in case.model.blocks),
            f"{case.model.name} has layers without a feed-forward, and its all-reduces do not alternate",
        )

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        return replace(found, overlap=Ladder())

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "collectives slow nothing that they overlap with"


TECHNIQUES = (LadderResidual(),)
