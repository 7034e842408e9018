"""Experts placed by their popularity, and by which of them tokens visit one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import PARTS, encoded
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.popularity import placed
from gnomon.graph.tape import TapeNode
from gnomon.spec import MoeFfn
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.exchanges import fewer_exchanged


class ExpertPlacement(Technique[TrainingCase]):
    name = "expert-placement"
    work = (TRAINING,)
    title = "Experts placed by popularity and by what tokens visit next"
    idea = (
        "Popular experts are spread so that ranks get about as many tokens, and experts that tokens visit one after "
        "the other stand on one rank, so that fewer tokens travel; moving experts between steps is not counted."
    )
    trials = (
        Trial(
            paper="moetuner",
            words="expert-placement",
            note="The paper serves; here experts of a training plan are placed, whose `imbalance` says how uneven they "
            "are without it.",
        ),
        Trial(
            paper="exflow",
            words="expert-placement:local=0.5",
            note="The paper's share of local tokens follows from routing traces that are not published.",
        ),
    )
    parameters = (
        Parameter(
            "local", "share of visits to experts of the token's own rank; 0 for as many as by chance", default=0.0,
            high=0.95, tried=(0.0,),
        ),
    )  # fmt: skip
    changes = frozenset({"flops", "activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield not case.model.is_moe, f"{case.model.name} has no experts"
        yield case.plans.ep == 1, "one expert-parallel rank has all experts, so that there is nothing to place"

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        """Plans whose ranks are as even as their experts' popularity allows. Engines have no option for it."""
        plans, found = case.plans, case.plans.imbalance.copy()
        ffns = {block.ffn for block in case.model.blocks if isinstance(block.ffn, MoeFfn)}
        for (ep, code), rows in plans.groups(("ep", "imbalance")):
            left = max(placed(ffn.experts, ffn.topk, int(ep), code / PARTS) for ffn in ffns) if ffns else 1.0
            found[rows] = min(encoded("imbalance", left), code)
        return case.having(imbalance=found)

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        local = float(values["local"])
        if not local:
            return None

        def nearer(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            ranks = writer.cut.ep
            if part != "layer" or ranks == 1:
                return nodes
            share = (1 - max(local, 1 / ranks)) / (1 - 1 / ranks)
            return [fewer_exchanged(node, share) for node in nodes]

        return nearer


TECHNIQUES = (ExpertPlacement(),)
