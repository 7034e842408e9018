"""Model data in chunks that lie on the chip or on the host, wherever there is room at the moment (PatrickStar)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from gnomon.cost.host_link import LINK_SPREAD
from gnomon.engines.training import RankMemory, StepTable, Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.memory import rank_memory
from gnomon.engines.training.traits import ShardedWeights
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.hosts import copy_bytes_s, host_of, memory_bytes_s, neighbours, no_host
from gnomon.techniques.offload_optimizer import HOST_SPREAD, KNOWN, STATE_BYTES, update_s

WEIGHT_BYTES = 2.0
"""Of a parameter in a chunk; its gradient takes the same place once its backward pass is over."""
CHUNK = 67_108_864
"""Parameters of a chunk, the default of PatrickStar's repository. Those of a layer are gathered at once."""
MARGIN = 0.8
"""Of the room that weights leave on the chip, what states may take (`margin_use_ratio` of the repository's scripts)."""


class ChunkRooms(NamedTuple):
    """Bytes of one rank, of every plan."""

    weights: Floats
    """Its shard of the weights in 16 bits."""
    missing: Floats
    """Of those, what the chip has no room for while passes run."""
    share: Floats
    """Of the states, the share that stays on the chip."""


class ChunkedMemory(Technique[TrainingCase]):
    name = "chunked-memory"
    work = (TRAINING,)
    title = "Model data in chunks, moved by need"
    idea = (
        "Weights and optimizer states lie in chunks of one size, gradients take the place of weights, and chunks move "
        "between chip and host as a first, traced step has shown: what activations leave of the chip is used, and chip "
        "and host together hold 14 bytes per parameter. Copies are waited for."
    )
    trials = (Trial(paper="patrickstar", words="chunked-memory"),)
    parameters = (
        Parameter("usable", "share of the chip's memory that may be used", default=0.9, low=0.1, high=1.0),
        Parameter(
            "first", "share of that for chunks in the first step, which nothing has traced", default=0.1, high=1.0
        ),
    )
    excludes = (
        "offload-optimizer", "offload-parameters", "zeroth-order", "lora", "qlora", "dora", "vocabulary-parallel",
    )  # fmt: skip
    searched = False
    changes = frozenset({"state bytes"})
    follows: ClassVar = {
        "optimizer_s": "states on the host are updated by its processors, the others by the chip, and gradients and "
        "new weights of the former copied before and after",
        "host_bytes": "chunks of all chips of a host beyond what their first step lets the chips keep",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        known = case.optimizer == KNOWN
        yield True, no_host(case.pool)
        yield plans.pp > 1, "chunks are not priced with pipeline parallelism"
        yield not known, f"the host's update throughput is known for {KNOWN} with fp32 states, not for {case.optimizer}"
        yield (
            (plans.zero != 3) & (plans.copies > 1),
            lambda row: f"chunks are shared out over the ranks, as under ZeRO 3, and zero is {plans.zero[row]}",
        )
        yield case.micros > 1, "gradients take the place of weights, so a step has one micro-batch"
        yield bool(case.model.beside or case.model.mtp), "networks of several parts are not priced with it"

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        """Chunks are gathered when they are needed, many parameters at once."""
        return replace(case.traits, sharded_weights=ShardedWeights(exposed=1.0), exposed_gradient_bytes=0.0)

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        case = case.at(found)
        room, link = _rooms(case, values), copy_bytes_s(case) * case.drawn("host link", LINK_SPREAD)
        moved_s = 2 * room.missing / link  # in, and what it takes the place of out
        chunks = found.chunks.longer("forward_s", moved_s).longer("backward_s", moved_s)
        away = (1 - room.share) * found.own_parameters
        rate = host_of(case).adam_parameters_s / neighbours(case) * case.drawn("host update", HOST_SPREAD)
        host_s = update_s(away, 0.0, rate, memory_bytes_s(case), link, 0.0) + away * WEIGHT_BYTES / link
        return replace(
            found,
            chunks=chunks,
            **chunks.columns(),
            optimizer_s=np.asarray(host_s + room.share * found.optimizer_s),
            away_parameters=away,
        )

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """As in a step that has been traced; the host has to hold what the first one leaves to it."""
        found, room = case.table, _rooms(case, values)
        at_rest = _at_rest_bytes(case)
        everything = (WEIGHT_BYTES + STATE_BYTES) * found.own_parameters
        first = np.minimum(everything, _first_bytes(case, values))
        return replace(
            used,
            weights=used.weights - at_rest + room.weights - room.missing,
            gradients=np.zeros_like(used.gradients),
            widened=np.zeros_like(used.gradients),
            optimizer=room.share * STATE_BYTES * found.own_parameters,
            host=used.host + np.maximum(everything - first, 0.0),
        )


def _usable_bytes(case: TrainingCase, values: Values) -> float:
    return float(values["usable"]) * case.pool.chip.memory_bytes


def _first_bytes(case: TrainingCase, values: Values) -> float:
    """Of one chip, for chunks of the first step."""
    return float(values["first"]) * _usable_bytes(case, values)


def _at_rest_bytes(case: TrainingCase) -> Floats:
    """Weights of a rank between its passes, without what is gathered for them."""
    states, found = case.traits.optimizers[case.optimizer], case.table
    sharded = states.sharded_weight_bytes * found.own_parameters
    return np.asarray(np.where(case.plans.zero == 3, sharded, states.weight_bytes * found.own_parameters))


def _rooms(case: TrainingCase, values: Values) -> ChunkRooms:
    """What passes leave of the chip, to weights first and then to states."""
    found = case.table
    kept = sum(
        count * kind.saved_activation_bytes
        for count, kind in zip(found.chunks.on_rank(0), found.chunks.kinds, strict=True)
    )
    plain = rank_memory(found, case.traits, case.optimizer, 0, np.asarray(kept))
    gathered = np.maximum(plain.weights - _at_rest_bytes(case), WEIGHT_BYTES * CHUNK)
    taken = plain.activations + plain.working + plain.buffers + gathered + case.traits.runtime_bytes
    free = np.maximum(_usable_bytes(case, values) - taken, 0.0)
    weights = WEIGHT_BYTES * found.own_parameters
    margin = MARGIN * np.maximum(free - weights, 0.0)
    return ChunkRooms(
        weights=weights,
        missing=np.maximum(weights - free, 0.0),
        share=np.minimum(margin / (STATE_BYTES * found.own_parameters), 1.0),
    )


TECHNIQUES = (ChunkedMemory(),)
