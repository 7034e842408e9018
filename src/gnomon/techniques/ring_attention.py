"""Ring attention: sequences sharded over chips that pass keys and values around a ring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnomon.engines.training import Grid
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.trained import windows_of
from gnomon.spec.training import CP_COMMS
from gnomon.techniques.base import TRAINING, Choice, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.plans import undivided


class Ring(Technique[TrainingCase]):
    name = "ring-attention"
    work = (TRAINING,)
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
    changes = frozenset({"activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, ranks, seq = case.plans, int(values["ranks"]), case.load.seq
        taken = plans.cp * plans.dp
        yield (
            (plans.cp != 1) & (plans.cp != ranks),
            lambda row: f"the plan shards sequences over {plans.cp[row]} ranks, not {ranks}",
        )
        yield taken % ranks != 0, lambda row: f"{taken[row]} chips cannot be divided into groups of {ranks}"
        yield seq % (2 * ranks) != 0, f"{seq} tokens cannot be divided into {2 * ranks} parts"
        windows = bool(windows_of(case.model, seq))
        yield windows, f"{case.model.name} has sliding-window attention, which the ring does not support"
        yield from undivided(_ring(case, ranks))

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        return _ring(case, int(values["ranks"])).having(cp_comm="p2p")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, plans: Grid) -> Mapping[str, Choice] | None:
        return {"": (plans.cp > 1) & (plans.cp_comm == CP_COMMS.index("p2p"))}


def _ring(case: TrainingCase, ranks: int) -> TrainingCase:
    """The plans with rings of so many ranks, taken from context- and data-parallel ranks."""
    return case.having(cp=ranks, dp=case.plans.cp * case.plans.dp // ranks)


TECHNIQUES = (Ring(),)
