"""Ring attention: sequences sharded over chips that pass keys and values around a ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnomon.engines.training import Grid
from gnomon.graph.trained import windows_of
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training import CP_COMMS
from gnomon.techniques.base import Choice, Parameter, TrainingCase, TrainingTechnique, Trial, Values, not_shared_out


class Ring(TrainingTechnique):
    name = "ring-attention"
    searched = False
    title = "Ring attention over sharded sequences"
    idea = (
        "Each chip has a shard of every sequence and receives the others' keys and values around a ring; the rest of a "
        "layer works on local tokens, so activations shrink and weights do not."
    )
    trials = (Trial(paper="sequence-parallelism", words="ring-attention"),)
    parameters = (
        Parameter("ranks", "ranks per sequence", default=2.0, low=2.0, high=1024.0, whole=True, tried=(2.0, 4.0, 8.0)),
    )

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        ranks, taken = int(values["ranks"]), strategy.cp * strategy.dp
        if strategy.cp not in (1, ranks):
            return f"the plan shards sequences over {strategy.cp} ranks, not {ranks}"
        if taken % ranks:
            return f"{taken} chips cannot be divided into groups of {ranks}"
        if case.load.seq % (2 * ranks):
            return f"{case.load.seq} tokens cannot be divided into {2 * ranks} parts"
        if windows_of(case.model, case.load.seq):
            return f"{case.model.name} has sliding-window attention, which the ring does not support"
        return not_shared_out(case, _ring(strategy, ranks), recipe)

    def rewrite(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        return _ring(strategy, int(values["ranks"])), replace(recipe, cp_comm="p2p")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, grid: Grid) -> Mapping[str, Choice]:
        return {"": (grid.cp > 1) & (grid.cp_comm == CP_COMMS.index("p2p"))}


def _ring(strategy: Strategy, ranks: int) -> Strategy:
    """The strategy with rings of so many ranks, taken from context- and data-parallel ranks."""
    return replace(strategy, cp=ranks, dp=strategy.cp * strategy.dp // ranks)


TECHNIQUES = (Ring(),)
