"""Zeroth-order training: two forward passes in place of a backward pass (MeZO)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gnomon.cost.governor import streaming_w
from gnomon.cost.host_link import LINK_SPREAD
from gnomon.engines.training import RankMemory, StepTable, Traits, Update
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.stage_costs import LayerCosts
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.tape import TapeNode
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.hosts import copy_bytes_s, no_host

PASSES = 4
"""Over all weights for each direction, with the same normal numbers from a seed: up, down by twice as much, back, and
the update."""
NORMAL_EFFICIENCY = 0.4
"""Throughput of a kernel that draws normal numbers, relative to one that writes them: an estimate; each takes a
logarithm, a root and a cosine beside its random bits."""
LAYERS = ON_CHIP, ON_HOST = ("chip", "host")
BUFFERS = 3
"""Layers on the chip where they lie on the host: one comes, one runs, one goes back."""
DRAWN = 4
"""Tensors of its size beside one that is updated: normal numbers, these times the loss's slope, decayed weights, and
their sum (MeZO's `zo_update`, an operator each)."""
NOTHING = Update("optimizer.nothing", 0.0, 0.0)
HALF = 2.0


class ZerothOrder(Technique[TrainingCase]):
    name = "zeroth-order"
    work = (TRAINING,)
    title = "Forward passes in place of gradients"
    idea = (
        "Weights are moved by normal numbers from a seed, up and down, and the difference of both losses says how far "
        "to step along them (MeZO, Malladi et al. 2023): no backward pass, gradients, optimizer states or saved "
        "activations, for two forward passes and four passes over all weights per direction. Layers may lie on the "
        "host: each comes once for both passes, and goes back with its update (ZO2)."
    )
    trials = (Trial(paper="zo2", words="zeroth-order:layers=host", against="zeroth-order"),)
    parameters = (
        Parameter("directions", "perturbations per step", default=1.0, low=1.0, high=64.0, whole=True),
        Parameter("layers", "where weights of layers lie between their passes", default=ON_CHIP, choices=LAYERS),
    )
    excludes = (
        "lora", "qlora", "dora", "offload-optimizer", "offload-parameters", "offload-activations",
        "vocabulary-parallel", "interleaved", "gpipe",
    )  # fmt: skip
    searched = False
    changes = frozenset({"flops", "model flops", "state bytes", "activation bytes"})
    follows: ClassVar = {
        "optimizer_s": "normal numbers for every weight, added in place, four times per direction",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, states = case.plans, case.traits.optimizers.get(case.optimizer)
        wide = states is not None and states.weight_bytes > HALF
        yield plans.pp > 1, "forward passes in both directions are not priced with a pipeline"
        yield plans.zero > 0, lambda row: f"there are no states or gradients to shard, and zero is {plans.zero[row]}"
        yield plans.recompute > 0, "nothing is saved that could be recomputed"
        yield wide, f"weights are moved in 16 bits, and {case.optimizer} keeps them in fp32 here: use adamw-bf16"
        yield bool(case.model.beside or case.model.mtp), "networks of several parts are not priced with it"
        if values["layers"] == ON_HOST:
            yield True, no_host(case.pool)
            yield case.micros > 1, "a layer that comes once runs all sequences of a step: use one micro-batch"

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        return _forward_only

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return replace(
            case.traits,
            optimizers={
                name: replace(
                    one, gradient_bytes=0.0, state_bytes=0.0, widened_bytes=0.0,
                    updates=_moves(values, one.weight_bytes),
                    accumulate=NOTHING, clear=NOTHING, casts=(), newton_steps=0, ends=None,
                )
                for name, one in case.traits.optimizers.items()
            },
            bucketed=False,
        )  # fmt: skip

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Each micro-batch goes forward twice for every direction. Ranks reduce a loss, which takes no time beside
        that."""
        each = float(values["directions"])
        chunks = replace(
            found.chunks,
            kinds=tuple(_twice(kind, each) for kind in found.chunks.kinds),
            ends={name: _end_twice(end, each) for name, end in found.chunks.ends.items()},
        )
        if values["layers"] == ON_HOST:
            waited = self._waited_s(case.at(replace(found, chunks=chunks)), each)
            chunks = chunks.longer("forward_s", waited)
        update_j = found.grid.ranks * streaming_w(case.machine.profile.power, case.machine.chip) * found.optimizer_s
        return replace(
            found,
            chunks=chunks,
            **chunks.columns(),
            gather_s=np.zeros(found.grid.size),
            model_flops=2 * each * found.model_flops,
            recomputed_flops=np.zeros(found.grid.size),
            energy_j=2 * each * (found.energy_j - update_j) + update_j,
        )

    def _waited_s(self, case: TrainingCase, each: float) -> Floats:
        """Of a step, what copies of layers take beyond their two passes and the passes over their weights, both ways at
        once; and the first copy in and the last one out. Of each direction."""
        found, link = case.table, copy_bytes_s(case) * case.drawn("host link", LINK_SPREAD)
        counts, kinds = found.chunks.on_rank(0), found.chunks.kinds
        moving = found.optimizer_s / found.rank_parameters
        waited = np.asarray(2 * each * _layer_bytes(case)[0] / link)
        for count, kind, size in zip(counts, kinds, _layer_bytes(case), strict=True):
            busy = kind.forward_s + kind.backward_s + moving * kind.held.total
            waited = np.asarray(waited + count * np.maximum(each * size / link - busy, 0.0))
        return waited

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Numbers for one tensor at a time. With layers on the host, embedding, head and the layers that come, run and
        go are on the chip; ends are moved when fewer are."""
        width, on_host = case.traits.optimizers[case.optimizer].weight_bytes, values["layers"] == ON_HOST
        moving = DRAWN * width * _largest(case, ends=not on_host) / case.plans.tp
        used = replace(used, working=np.maximum(used.working, moving))
        if not on_host:
            return used
        sizes = _layer_bytes(case)
        body = sum(count * size for count, size in zip(case.table.chunks.on_rank(0), sizes, strict=True))
        here = np.minimum(body, BUFFERS * np.max(sizes, axis=0))
        return replace(used, weights=used.weights - body + here, host=used.host + body)


def _largest(case: TrainingCase, ends: bool) -> int:
    """Parameters of the largest tensor of all layers, or of the ends too."""
    model = case.model
    inside = max(tensor.rows * tensor.columns for block in model.blocks for tensor in block.tensors(model.hidden))
    return max(inside, model.vocab * model.hidden) if ends else inside


def _layer_bytes(case: TrainingCase) -> tuple[Floats, ...]:
    """Of a layer of each kind, on one rank."""
    width = case.traits.optimizers[case.optimizer].weight_bytes
    return tuple(np.asarray(width * kind.held.total) for kind in case.table.chunks.kinds)


def _moves(values: Values, width: float) -> tuple[Update, ...]:
    """Kernels of all passes over the weights: numbers are drawn, and added in place."""
    passes = PASSES * float(values["directions"])
    drawn = Update("optimizer.normal", 0.0, width * passes, NORMAL_EFFICIENCY)
    return drawn, Update("optimizer.move", 2 * width * passes, width * passes)


def _twice(kind: LayerCosts, each: float) -> LayerCosts:
    nothing = np.zeros_like(kind.forward_s)
    there, lead, alone = (
        each * seconds for seconds in (kind.forward_s, kind.lead_forward_s, kind.compute_only_forward_s)
    )
    return replace(
        kind, forward_s=there, backward_s=there, lead_forward_s=lead, lead_backward_s=lead,
        compute_only_forward_s=alone, compute_only_backward_s=alone, input_s=nothing, lead_input_s=nothing,
        weight_s=nothing, compute_only_input_s=nothing, reduce_s=nothing,
    )  # fmt: skip


def _end_twice(end: Any, each: float) -> dict[str, Any]:
    found = {name: np.zeros_like(seconds) for name, seconds in end.items()}
    return found | dict.fromkeys(("forward_s", "backward_s"), each * end["forward_s"])


def _forward_only(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
    return [replace(node, forward_only=True) for node in nodes]


TECHNIQUES = (ZerothOrder(),)
