"""A sequence cut over chips whose keys and values go round in a ring."""

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
    title = "Sequences cut over chips"
    idea = (
        "Each chip has a part of every sequence and meets the others' keys and values as they go round; all else of a "
        "layer stays on its own tokens, so activations shrink and weights do not."
    )
    trials = (Trial(paper="sequence-parallelism", words="ring-attention"),)
    parameters = (
        Parameter(
            name="ranks",
            whole=True,
            what="that share a sequence",
            default=2.0,
            low=2.0,
            high=1024.0,
            tried=(2.0, 4.0, 8.0),
        ),
    )

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        ranks, taken = int(values["ranks"]), strategy.cp * strategy.dp
        if strategy.cp not in (1, ranks):
            return f"the plan cuts sequences over {strategy.cp} ranks, and {ranks} are asked for"
        if taken % ranks:
            return f"{taken} chips cannot be cut into groups of {ranks}"
        if case.load.seq % (2 * ranks):
            return f"{case.load.seq} tokens cannot be cut into {2 * ranks} parts"
        if windows_of(case.model, case.load.seq):
            return f"{case.model.name} has layers with windows, which keys that go round do not know"
        return not_shared_out(case, _ring(strategy, ranks), recipe)

    def settled(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        return _ring(strategy, int(values["ranks"])), replace(recipe, cp_comm="p2p")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, grid: Grid) -> Mapping[str, Choice]:
        return {"": (grid.cp > 1) & (grid.cp_comm == CP_COMMS.index("p2p"))}


def _ring(strategy: Strategy, ranks: int) -> Strategy:
    """Rings of so many chips that had the same sequences, or copies, before."""
    return replace(strategy, cp=ranks, dp=strategy.cp * strategy.dp // ranks)
