"""Weights on the host or its NVMe, streamed to the chip layer by layer in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.host_link import LINK_SPREAD
from gnomon.cost.lines import Steps, Wait
from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.memory import rank_frozen, rank_held
from gnomon.engines.training.side import SideColumns, SideGroup, part_bytes
from gnomon.sim.training.side import COPY_IN
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import (
    ON_HOST,
    ON_NVME,
    PLACES,
    copy_bytes_s,
    no_disks,
    no_host,
    read_bytes_s,
    write_bytes_s,
)

MASTER_BYTES = 4.0
"""Of a sharded weight that is the optimizer's own, in fp32: it is copied as it is and cast on the chip (FSDP2)."""
DISK_BUFFERS = 5
"""Layers in host memory at once, on their way from disks (DeepSpeed's `buffer_count`)."""


class OffloadParameters(Technique[TrainingCase]):
    name = "offload-parameters"
    work = (TRAINING,)
    title = "Weights on the host, streamed by layer"
    idea = (
        "Every rank keeps its shard of the weights in host memory or on NVMe; the shard of a layer is copied to the "
        "chip ahead of its forward and its backward pass, gathered there, and dropped after it."
    )
    trials = (Trial(paper="zero-infinity", words="offload-parameters"),)
    parameters = (
        Parameter("tier", "host memory, or NVMe of the host behind it", default=ON_HOST, choices=PLACES),
        Parameter("share", "share of the layers' weights that is offloaded", default=1.0, high=1.0),
        Parameter("ahead", "layers that are copied ahead of the one that runs", default=1.0, high=64.0, whole=True),
        bandwidth("link_gb_s", "bandwidth of a rank's copies; 0 for what the machine gives", high=1e9),
    )
    follows: ClassVar = {
        "waits_s": "new weights on their way to the host where the chip updates them, and to NVMe",
        "host_bytes": "weights of all chips of a host",
        "nvme_bytes": "weights of all chips of a host",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        yield True, no_host(case.pool)
        yield values["tier"] == ON_NVME, no_disks(case.pool)
        yield plans.pp > 1, "weights that are streamed are not priced with pipeline parallelism"
        sharded = (plans.zero == 3) | ((plans.zero == 2) & case.traits.gathers_forward)
        yield (
            ~sharded & (plans.copies > 1),
            lambda row: f"ranks hold all weights under ZeRO {plans.zero[row]}, and shards under ZeRO 3",
        )

    def tasks(self, case: TrainingCase, values: Values) -> Iterator[SideGroup]:
        if not values["share"]:
            return
        rate = self._rate(case, values)
        sizes = tuple(float(values["share"]) * size for size in _layer_bytes(case))
        ends = float(values["share"]) * _ends_bytes(case) / sum(case.table.chunks.on_rank(0))
        forward = tuple(np.asarray((size + ends) / rate) for size in sizes)
        again = case.plans.zero != 2  # what the forward pass gathers stays there until the backward pass
        backward = tuple(np.asarray(size / rate * again) for size in sizes)
        parts = np.maximum(case.table.layers, 1)
        yield SideGroup(
            tasks=tuple(
                SideColumns(name=COPY_IN, layer_s=seconds, layer_bytes=sizes, before=before)
                for before, seconds in (("F", forward), ("B", backward))
            ),
            parts=parts,
            limit_bytes=(1 + float(values["ahead"])) * part_bytes(case.table.chunks, sizes, parts),
        )

    def waits(self, steps: Steps, case: TrainingCase, values: Values) -> Wait | None:
        """Weights that the chip has updated go to the host, and all of them to its disks; those that are among states
        that lie there are written with these."""
        found, share = case.table, float(values["share"])
        here = share * _at_rest_bytes(case) * np.maximum(found.own_parameters - found.away_parameters, 0.0)
        seconds = here / self._link(case, values)
        if values["tier"] == ON_NVME:
            own = case.traits.optimizers[case.optimizer].sharded_weight_bytes == 0
            written = here if own else share * _at_rest_bytes(case) * found.own_parameters
            seconds = seconds + written / write_bytes_s(case)
        return Wait(seconds=np.asarray(seconds))

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        share, states = float(values["share"]), case.traits.optimizers[case.optimizer]
        if not share:
            return used
        found, ahead = case.table, 1 + float(values["ahead"])
        layers, held = _layer_bytes(case), rank_held(found, used.rank)
        shard = np.max(layers, axis=0)
        body, outer = rank_frozen(found, used.rank)
        frozen = body.plus(outer).bytes(_frozen_at_rest_bytes(case)) / found.grid.shards
        learning = held.shared(found.grid)
        # On one chip all of a layer arrives, and nothing is gathered of it.
        each = states.weight_bytes
        most = np.max([each * kind.held.total + kind.frozen.bytes(each) for kind in found.chunks.kinds], axis=0)
        ends = states.weight_bytes * (held.total - found.chunks.body(used.rank).total)
        alone = np.maximum(used.weights - ends - ahead * most, 0.0)
        left = np.where(_sharded(case), states.sharded_weight_bytes * learning + frozen, alone)
        own = states.sharded_weight_bytes == 0  # fp32 weights are among the optimizer's states
        masters = share * used.optimizer * MASTER_BYTES / states.state_bytes if own else 0.0
        away = masters if own else share * (_at_rest_bytes(case) * learning + frozen)
        disks = values["tier"] == ON_NVME
        return replace(
            used,
            weights=used.weights - share * left,
            optimizer=used.optimizer - masters,
            buffers=used.buffers + np.where(_sharded(case), ahead * share * shard, 0.0),
            host=used.host + (np.minimum(away, DISK_BUFFERS * share * shard) if disks else away),
            nvme=used.nvme + (away if disks else 0.0),
        )

    def _rate(self, case: TrainingCase, values: Values) -> Floats:
        """Bytes per second of one rank's copies to its chip."""
        link = self._link(case, values)
        return np.minimum(link, read_bytes_s(case)) if values["tier"] == ON_NVME else link

    def _link(self, case: TrainingCase, values: Values) -> Floats:
        return np.asarray(float(values["link_gb_s"]) * 1e9 or copy_bytes_s(case) * case.drawn("host link", LINK_SPREAD))


def _sharded(case: TrainingCase) -> NDArray[np.bool_]:
    return case.plans.shards > 1


def _at_rest_bytes(case: TrainingCase) -> float:
    """Bytes of a weight on the host."""
    return case.traits.optimizers[case.optimizer].sharded_weight_bytes or MASTER_BYTES


def _frozen_at_rest_bytes(case: TrainingCase) -> float:
    """Bytes of a weight that does not learn, where it is not packed."""
    return case.traits.frozen_bytes or case.traits.optimizers[case.optimizer].weight_bytes


def _layer_bytes(case: TrainingCase) -> tuple[Floats, ...]:
    """A rank's shard of a layer of each kind, as it is copied."""
    grid = case.plans
    return tuple(
        _at_rest_bytes(case) * kind.held.shared(grid) + kind.frozen.bytes(_frozen_at_rest_bytes(case)) / grid.shards
        for kind in case.table.chunks.kinds
    )


def _ends_bytes(case: TrainingCase) -> Floats:
    """A rank's shard of embedding and head, copied once per micro-batch."""
    found = case.table
    parameters = found.first_parameters + found.last_parameters + found.each_parameters
    frozen = found.first_frozen.plus(found.last_frozen).bytes(_frozen_at_rest_bytes(case))
    return np.asarray((_at_rest_bytes(case) * parameters + frozen) / case.plans.shards)


TECHNIQUES = (OffloadParameters(),)
