"""Saved activations copied to host memory in the forward pass and back for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnomon.cost.host_link import LINK_SPREAD
from gnomon.engines.training import RankMemory, StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import CUT, Ints
from gnomon.engines.training.layer_cost import cut_of, layer_tapes
from gnomon.engines.training.side import SideColumns, SideGroup, part_bytes
from gnomon.graph.tape import Tape
from gnomon.sim.training.side import COPY_IN, COPY_OUT
from gnomon.spec.recompute import choice_of
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import copy_bytes_s, no_host

ALL = "all"
MODULES = {
    "attn_norm": ("attention.norm",),
    "qkv_linear": ("attention.qkv", "attention.q_down", "attention.kv_down"),
    "core_attn": ("attention.core",),
    "attn_proj": ("attention.out",),
    "mlp_norm": ("ffn.norm",),
    "expert_fc1": ("ffn.experts.up",),
    "moe_act": ("ffn.experts.activation",),
}
"""Operators of a tape by the names of Megatron-LM's `--offload-modules`."""
STREAMS, BLOCKING = "streams", "blocking"
STAYS = 1
"""Parts of passes that have to lie between forward and backward: the layer that runs backward next stays."""


class OffloadActivations(Technique[TrainingCase]):
    name = "offload-activations"
    work = (TRAINING,)
    title = "Saved activations on the host"
    idea = (
        "What layers save for their backward pass is copied to pinned host memory and comes back a layer ahead of its "
        "use; a pass waits where a layer computes for less time than its copy takes."
    )
    trials = (Trial(paper="hector-ssdtrain", words="offload-activations"),)
    parameters = (
        Parameter("share", "share of the layers whose activations are offloaded", default=1.0, high=1.0),
        Parameter("layers", "layers of the network that are; 0 for the share", default=0.0, high=1000.0, whole=True),
        Parameter(
            "modules",
            "operators whose saved inputs are offloaded: those that no other operator keeps",
            default=ALL,
            choices=(ALL, *MODULES),
            several=True,
        ),
        Parameter(
            "copies",
            "beside the passes on streams of their own, or between them",
            default=STREAMS,
            choices=(STREAMS, BLOCKING),
        ),
        Parameter(
            "in_flight",
            "layers that are on the chip at once while they are copied",
            default=2.0,
            low=1.0,
            high=64.0,
            whole=True,
        ),
        bandwidth("link_gb_s", "bandwidth of a rank's copies, one way; 0 for what the machine gives", high=1e9),
    )  # fmt: skip
    changes = frozenset({"activation bytes"})
    follows: ClassVar = {"host_bytes": "saved activations of all chips of a host, at the fullest moment of a step"}

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield True, no_host(case.pool)
        yield case.plans.splits, "backwards by weight of a schedule that splits them would keep what is copied"
        some = set(str(values["modules"]).split("+"))
        yield ALL in some and len(some) > 1, "modules are all, or some of the others"
        yield bool(values["layers"]) and values["share"] != 1, "layers and share both say how many layers"
        layers = float(values["layers"])
        yield layers > case.model.layers, f"the network has {case.model.layers} layers, not {layers:.0f}"
        yield some != {ALL} and not case.model.is_moe and some <= {"expert_fc1", "moe_act"}, "there are no experts"

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Blocking copies lengthen the passes of every layer; the others are `tasks`."""
        if values["copies"] == STREAMS or not _layer_share(case, values):
            return found
        case = case.at(found)
        seconds = self._seconds(case, values)
        kinds = tuple(
            replace(kind, **{name: getattr(kind, name) + each for name in _PASSES})
            for kind, each in zip(found.chunks.kinds, seconds, strict=True)
        )
        chunks = replace(found.chunks, kinds=kinds)
        return replace(found, chunks=chunks, **chunks.columns())

    def tasks(self, case: TrainingCase, values: Values) -> Iterator[SideGroup]:
        if values["copies"] != STREAMS or not _layer_share(case, values):
            return
        sizes, seconds = self._sizes(case, values), self._seconds(case, values)
        yield SideGroup(
            tasks=(
                SideColumns(name=COPY_OUT, layer_s=seconds, layer_bytes=sizes, after="F"),
                SideColumns(name=COPY_IN, layer_s=seconds, layer_bytes=sizes, before="B", follows=True),
            ),
            parts=_parts(case),
            apart=STAYS,
            limit_bytes=float(values["in_flight"]) * part_bytes(case.table.chunks, sizes, _parts(case)),
        )

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Of what is offloaded, the layers in flight and the one that stays are on the chip."""
        if not _layer_share(case, values):
            return used
        sizes, chunks = self._sizes(case, values), case.table.chunks
        layers = np.bincount(chunks.stages.order, minlength=len(chunks.kinds))
        saved, offloaded = (
            layers @ np.stack(np.broadcast_arrays(*each))
            for each in ([kind.saved_activation_bytes for kind in chunks.kinds], sizes)
        )
        away = used.layer_activations * offloaded / np.maximum(saved, 1.0)
        in_flight = 1 if values["copies"] == BLOCKING else float(values["in_flight"]) + STAYS
        room = np.minimum(away, in_flight * part_bytes(chunks, sizes, _parts(case)))
        found = used.with_layer_activations(np.asarray(used.layer_activations - away + room))
        return replace(found, host=found.host + away)

    def _seconds(self, case: TrainingCase, values: Values) -> tuple[Floats, ...]:
        """Of a layer of each kind, one way."""
        rate = float(values["link_gb_s"]) * 1e9 or copy_bytes_s(case) * case.drawn("host link", LINK_SPREAD)
        return tuple(np.asarray(size / rate) for size in self._sizes(case, values))

    def _sizes(self, case: TrainingCase, values: Values) -> tuple[Floats, ...]:
        """Bytes of a layer of each kind that are offloaded, on average over the layers."""
        share, kinds = _layer_share(case, values), case.table.chunks.kinds
        chosen = str(values["modules"])
        if chosen == ALL:
            return tuple(share * kind.saved_activation_bytes for kind in kinds)
        parts = module_shares(case, chosen)
        return tuple(share * part * kind.saved_activation_bytes for part, kind in zip(parts, kinds, strict=True))


_PASSES = ("forward_s", "backward_s", "compute_only_forward_s", "compute_only_backward_s")


def _layer_share(case: TrainingCase, values: Values) -> float:
    """Of the layers, those whose activations are offloaded."""
    return float(values["layers"]) / case.model.layers if values["layers"] else float(values["share"])


def _parts(case: TrainingCase) -> Ints:
    """Parts that passes are cut into: a layer each."""
    return np.maximum(case.table.layers, 1)


def module_shares(case: TrainingCase, modules: str) -> tuple[Floats, ...]:
    """Of the saved activations of a layer of each kind, those that only some of its operators keep."""
    names = {node for module in modules.split("+") for node in MODULES[module]}
    plans, found = case.plans, np.zeros((len(case.table.chunks.kinds), case.plans.size))
    for (recompute, *choices), rows in plans.groups(("recompute", *CUT)):
        cut = cut_of(case.load.seq, case.dtype, dict(zip(CUT, choices, strict=True)))
        mode = choice_of(int(recompute)).each
        tapes = layer_tapes(case.model, cut, case.traits).values()
        found[:, rows] = np.array([_kept_share(tape, mode, names) for tape in tapes])[:, None]
    return tuple(found)


def _kept_share(tape: Tape, mode: str, names: set[str]) -> float:
    """Of a layer's saved bytes, those of tensors that only the named operators keep."""
    others = {tensor for node in tape.nodes if node.name not in names for tensor in node.keeps}
    own = tape.stays(mode) - others
    total = tape.saved_activation_bytes(mode)
    return sum(tape.sizes[tensor] for tensor in sorted(own)) / total if total else 0.0


TECHNIQUES = (OffloadActivations(),)
