"""Popular experts copied to every rank for a step, so that their tokens stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import PARTS
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Collective
from gnomon.graph.popularity import ASSUMED_SKEW, MOST_SKEW, visit_shares
from gnomon.graph.tape import DISPATCH, TapeNode
from gnomon.spec import Block, MoeFfn
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.exchanges import fewer_exchanged

HALF_BYTES = 2.0


class ExpertShadowing(Technique[TrainingCase]):
    name = "expert-shadowing"
    work = (TRAINING,)
    title = "Popular experts copied to every rank"
    idea = (
        "The most popular experts of a layer are gathered to every rank before its passes and given up after them, and "
        "their gradients are reduced to their owner: fewer tokens travel, for weights and gradients that do."
    )
    trials = (
        Trial(
            paper="hecate",
            words="expert-shadowing",
            note="The paper chooses anew in every step by the tokens of each rank; here the same experts go to all "
            "ranks, and nothing overlaps with their copies.",
        ),
    )
    parameters = (
        Parameter("share", "of a layer's experts that are copied", default=0.125, high=1.0, tried=(0.125,)),
        Parameter(
            "skew",
            "exponent of the power law by which experts are chosen; the default is assumed",
            default=ASSUMED_SKEW,
            high=MOST_SKEW,
        ),
    )
    excludes = ("expert-placement",)
    changes = frozenset({"flops", "activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        yield not case.model.is_moe, f"{case.model.name} has no experts"
        yield plans.ep == 1, "one expert-parallel rank has all experts, so that none is copied"
        yield plans.pp > 1, "copies of experts for micro-batches of a pipeline are not priced"
        yield len(_mixtures(case.model.blocks)) > 1, f"{case.model.name} has mixtures of several kinds"

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        """What stays on its rank is even; the rest is as uneven as the plan says. Engines have no option for it."""
        moved = min((1 - _local(ffn, values) for ffn in _mixtures(case.model.blocks)), default=1.0)
        uneven = case.plans.imbalance
        return case.having(
            imbalance=np.where(uneven > PARTS, np.rint(PARTS + moved * (uneven - PARTS)), uneven).astype(int)
        )

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        ffn = next(iter(_mixtures(case.model.blocks)), None)
        if ffn is None:
            return None
        count, stays, each = _copied(ffn, values), _local(ffn, values), _expert_bytes(ffn, case)

        def shadowed(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer" or not count or not any(node.name == DISPATCH for node in nodes):
                return nodes
            own = _fetched(writer, count * each / writer.cut.expert_tp)
            return [
                new
                for node in nodes
                for new in ((own,) if node.name == DISPATCH else ()) + (fewer_exchanged(node, 1 - stays),)
            ]

        return shadowed

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Weights and gradients of one layer's copies: each layer's go before the next one's come."""
        size = sum(_copied(ffn, values) * _expert_bytes(ffn, case) for ffn in _mixtures(case.model.blocks))
        return replace(used, working=np.asarray(used.working + 2 * size / case.plans.expert_tp))


def _mixtures(blocks: tuple[Block, ...]) -> list[MoeFfn]:
    return list({block.ffn: None for block in blocks if isinstance(block.ffn, MoeFfn)})


def _expert_bytes(ffn: MoeFfn, case: TrainingCase) -> float:
    """Weights, or gradients, of an expert in 16 bits."""
    return HALF_BYTES * (3 if ffn.gated else 2) * (ffn.latent or case.model.hidden) * ffn.inner


def _copied(ffn: MoeFfn, values: Values) -> int:
    return round(float(values["share"]) * ffn.experts)


def _local(ffn: MoeFfn, values: Values) -> float:
    """Of all visits, those to copied experts."""
    return min(sum(visit_shares(ffn.experts, ffn.topk, float(values["skew"]))[: _copied(ffn, values)]), 1.0)


def _fetched(writer: Writer, size: float) -> TapeNode:
    """Copies come before both passes, and their gradients go after the backward one."""
    there = Collective(
        name="ffn.shadows",
        op="all_gather",
        rows=1,
        bytes_per_row=size,
        ranks=writer.cut.ep,
        stride=writer.cut.expert_tp,
    )
    back = (replace(there, name="ffn.shadows.again"), replace(there, name="ffn.shadows.reduce", op="reduce_scatter"))
    return TapeNode(name="ffn.shadows", forward=(there,), dgrad=back, detached=True)


TECHNIQUES = (ExpertShadowing(),)
