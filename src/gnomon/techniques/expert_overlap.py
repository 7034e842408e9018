"""Tokens that go to experts in chunks, beside the GEMMs of other chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.training.case import TrainingCase
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.tape import COMBINE, DISPATCH, Chunking, TapeNode
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values

BEST = "best"
DEGREES = ("2", "4", "8")


class ExpertOverlap(Technique[TrainingCase]):
    name = "expert-overlap"
    work = (TRAINING,)
    title = "Exchanges with experts in chunks beside their GEMMs"
    idea = (
        "Tokens go to experts and back in chunks, forward and backward: one chunk travels while the experts run on "
        "another, and with two networks gathers inside a node run beside exchanges between nodes; GEMMs over fewer "
        "rows fill the chip less well."
    )
    trials = (
        Trial(paper="tutel", words="expert-overlap", against="einsum-dispatch"),
        Trial(paper="fsmoe", words="expert-overlap:networks=2", against="expert-overlap"),
    )
    parameters = (
        Parameter("degree", "chunks, or as many of these as hide most", default=BEST, choices=(BEST, *DEGREES)),
        Parameter(
            "networks", "that carry chunks side by side: one, or that of a node beside that between nodes",
            default=1.0, low=1.0, high=2.0, whole=True, tried=(1.0, 2.0),
        ),
    )  # fmt: skip
    changes = frozenset()

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        yield not case.model.is_moe, f"{case.model.name} has no experts"
        yield plans.ep == 1, "one expert-parallel rank has all experts, so that no tokens are sent"
        yield plans.ep_overlap > 0, "exchanges overlap with another micro-batch already (ep_overlap)"

    def program(self, case: TrainingCase, values: Values) -> NodePass:
        degrees = tuple(map(int, DEGREES)) if values["degree"] == BEST else (int(values["degree"]),)
        how = Chunking(degrees, int(values["networks"]))

        def chunked(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            names = [node.name for node in nodes]
            if part != "layer" or DISPATCH not in names:
                return nodes
            first, last = names.index(DISPATCH), names.index(COMBINE)
            inside = [replace(node, chunked=how) for node in nodes[first : last + 1]]
            return [*nodes[:first], *inside, *nodes[last + 1 :]]

        return chunked


TECHNIQUES = (ExpertOverlap(),)
