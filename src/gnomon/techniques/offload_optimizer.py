"""Optimizer states in host memory, updated by the host, or interleaved by host and chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.host_link import DISK_SPREAD, LINK_SPREAD
from gnomon.engines.training import RankMemory, StepTable, Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import (
    ON_HOST,
    ON_NVME,
    PLACES,
    host_of,
    link_bytes_s,
    memory_bytes_s,
    neighbours,
    no_disks,
    no_host,
    read_bytes_s,
    write_bytes_s,
)

STATE_BYTES = 12.0
"""Of a parameter: fp32 weight, momentum and variance."""
GRADIENT_BYTES = 2.0
"""Of a parameter on its way to the host."""
KNOWN = "adamw"
WEIGHT_BYTES = 2.0
"""Of a parameter on its way back."""
MASTER_BYTES = 4.0
"""Of one that is cast where it arrives."""
SUBGROUP = 1e8
"""Parameters that are updated and copied together, as DeepSpeed's `sub_group_size` in the papers' runs."""
STAGED = 3
"""Subgroups in the chip's memory at once with interleaved updates: one arrives, one is updated, one leaves."""
HOST_SPREAD = 0.25
"""Log standard deviation of the host's update throughput: 46% of a host's bandwidth is one machine's figure, others
by their memory; published logs of an H100's host are 30% slower than that, those of an A100's 5%."""
BANDWIDTH_CONTENTION = 4.0
"""Exponent of the soft maximum of processor time and host-memory time, which share bandwidth. Fitted to the updates of
1.2 billion parameters on an H200's host (lab, 2026-11-15, strides 2 to 4 and none)."""
UPDATE_BYTES = 30.0
"""Bytes per parameter between host memory and processors in an update."""
HOST_GRADIENT_BYTES = 4.0
"""Of a parameter beside its states, which processors update from fp32 gradients: 16 bytes together, as DeepSpeed's
estimator of memory counts them (docs, memory requirements)."""
DISK_BYTES = STATE_BYTES + HOST_GRADIENT_BYTES
"""Of a parameter on NVMe: DeepSpeed writes its gradient at the end of a step's last backward pass, and reads it with
the states (`PartitionedOptimizerSwapper`). States alone go back after the update."""
DISK_BUFFERS = 4
"""Subgroups in host memory at once, between disks and processors (DeepSpeed's `buffer_count`)."""


AFTER, BESIDE = "after", "beside"


class OffloadOptimizer(Technique[TrainingCase]):
    name = "offload-optimizer"
    work = (TRAINING,)
    title = "Optimizer states on the host"
    idea = (
        "Momenta, fp32 weights and gradients are offloaded to host memory; the update runs on the host's processors, "
        "with a stride every so many subgroups of it on the chip."
    )
    trials = (
        Trial(paper="zero-offload", words="offload-optimizer"),
        Trial(paper="deep-optimizer-states", words="offload-optimizer:stride=2", against="offload-optimizer"),
        Trial(paper="fuyou", words="offload-optimizer:tier=nvme,update=beside", against="offload-optimizer:tier=nvme"),
    )
    parameters = (
        Parameter("share", "share of the states that is offloaded", default=1.0, low=0.01, high=1.0),
        Parameter(
            "stride",
            "one in so many subgroups is updated on the chip; 0: none",
            default=0.0,
            high=64.0,
            whole=True,
            tried=(0.0, 2.0, 3.0, 4.0),
        ),
        Parameter(
            "flush",
            "flush gradients during the backward pass, or block it",
            default="beside",
            choices=("beside", "waits"),
        ),
        bandwidth("flush_gb_s", "bandwidth of a rank's blocking flush; 0 for the link's bandwidth"),
        Parameter("tier", "host memory, or NVMe of the host behind it", default=ON_HOST, choices=PLACES),
        Parameter(
            "update",
            "after the backward pass, or beside the last one as its gradients come, without clipping by their norm",
            default=AFTER,
            choices=(AFTER, BESIDE),
        ),
    )

    follows: ClassVar = {
        "optimizer_s": "on the host: the longest of what its processors, its memory, the link each way and the chip's "
        "own part take, then the last weights' way back; with tier=nvme at least what its disks read and write",
        "host_bytes": "states and gradients of all chips of a host",
        "nvme_bytes": "states and fp32 gradients of all chips of a host",
    }
    remedies: ClassVar = {
        "the optimizer": "a stride, a smaller share, or a host with a faster update and link would shorten it"
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        known = case.optimizer == KNOWN
        yield True, no_host(case.pool)
        yield case.plans.pp > 1, "a host update is not priced with pipeline parallelism"
        yield not known, f"the host's update throughput is known for {KNOWN} with fp32 states, not for {case.optimizer}"
        yield values["stride"] == 1, "a stride of 1 leaves nothing for the host to update"
        disks = values["tier"] == ON_NVME
        yield disks, no_disks(case.pool)
        yield disks and bool(values["stride"]), "states on NVMe are updated by the host alone, without a stride"
        beside = values["update"] == BESIDE
        late = bool(values["stride"]) or values["flush"] == "waits" or case.traits.host_update_apart
        yield (
            beside and late,
            "an update beside the backward pass is the host's alone, of gradients as they come",
        )
        sharded = (case.plans.zero >= 2) | (case.plans.copies == 1)
        yield beside & ~sharded, lambda row: f"ZeRO {case.plans.zero[row]} reduces gradients after the backward pass"

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        case = case.at(found)
        early, flush = _flushed_early(found, case.traits), self.flush_s(case, values)
        chunks = found.chunks.longer("backward_s", np.where(early, flush, 0.0))
        return replace(
            found,
            chunks=chunks,
            **chunks.columns(),
            optimizer_s=self._exposed_s(case, values) + np.where(early, 0.0, flush),
            away_parameters=float(values["share"]) * found.own_parameters,
        )

    def _exposed_s(self, case: TrainingCase, values: Values) -> Floats:
        """Of the update, what follows the last backward pass: all of it, or what goes beyond that pass, and at least
        the subgroup whose gradients come last."""
        found, update = case.table, self.update_s(case, values)
        if values["update"] == AFTER:
            return update
        backward = found.backward_s + found.first_backward_s + found.last_backward_s
        last = update * np.minimum(SUBGROUP / np.maximum(float(values["share"]) * found.own_parameters, 1.0), 1.0)
        return np.asarray(np.maximum(update - backward, last))

    def update_s(self, case: TrainingCase, values: Values) -> Floats:
        found = case.table
        away = float(values["share"]) * found.own_parameters
        turns = _turns(values, away)
        here = 1 - float(values["share"]) * (1 - turns)
        host, link = self._rates(case)
        if case.traits.host_update_apart:
            processors, memory = away / host, away * UPDATE_BYTES / memory_bytes_s(case)
            update = _sharing_bandwidth(processors, memory) + away * MASTER_BYTES / link + found.optimizer_s * here
        else:
            update = update_s(away, turns, host, memory_bytes_s(case), link, found.optimizer_s * here)
        return update if values["tier"] == ON_HOST else self._on_disks_s(update, away, case, values)

    def _on_disks_s(self, update: Floats, away: Floats, case: TrainingCase, values: Values) -> Floats:
        """Of an update beside which states and gradients are read and states written, one after the other on the same
        disks; before it, what of the gradients' way there is beyond the backward pass. Gradients that are used as they
        come do not go there."""
        slower, found = case.drawn("disks", DISK_SPREAD), case.table
        read, write = read_bytes_s(case) / slower, write_bytes_s(case) / slower
        if values["update"] == BESIDE:
            return np.asarray(np.maximum(update, away * (STATE_BYTES / read + STATE_BYTES / write)))
        backward = found.backward_s + found.first_backward_s + found.last_backward_s
        flush = np.maximum(away * HOST_GRADIENT_BYTES / write - backward, 0.0)
        return np.asarray(flush + np.maximum(update, away * (DISK_BYTES / read + STATE_BYTES / write)))

    def flush_s(self, case: TrainingCase, values: Values) -> Floats:
        """Exposed seconds of flushing gradients to the host: per micro-batch beyond its backward pass, or once at
        the end of a step where gradients are accumulated until then."""
        found = case.table
        _, link = self._rates(case)
        bandwidth = float(values["flush_gb_s"]) * 1e9 or link
        each = float(values["share"]) * found.own_parameters * GRADIENT_BYTES
        if case.traits.host_update_apart:
            return np.asarray(each / GRADIENT_BYTES * case.traits.optimizers[case.optimizer].gradient_bytes / bandwidth)
        if values["flush"] == "waits":
            return np.asarray(each / bandwidth)
        if exposed := case.traits.exposed_gradient_bytes:
            return np.asarray(exposed / GRADIENT_BYTES * each / link)
        backward = found.backward_s + found.first_backward_s + found.last_backward_s
        return np.asarray(np.maximum(each / link - np.where(_flushed_early(found, case.traits), backward, 0.0), 0.0))

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        share, found = float(values["share"]), case.table
        layer = np.max([kind.held.total for kind in found.chunks.kinds], axis=0)
        staged = STAGED * SUBGROUP * STATE_BYTES if values["stride"] else SUBGROUP * WEIGHT_BYTES
        two_layers = np.minimum(used.gradients, GRADIENT_BYTES * 2 * layer)
        in_flight = np.where(_flushed_early(found, case.traits), two_layers, used.gradients)
        away = share * found.own_parameters
        gradient = max(case.traits.optimizers[case.optimizer].gradient_bytes, HOST_GRADIENT_BYTES)
        kept = np.minimum(away, DISK_BUFFERS * SUBGROUP) if values["update"] == BESIDE else away
        host = away * STATE_BYTES + kept * gradient
        on_disk = DISK_BYTES if values["update"] == AFTER else STATE_BYTES
        disks = np.where(values["tier"] == ON_NVME, away * on_disk, 0.0)
        return replace(
            used,
            gradients=used.gradients * (1 - share) + in_flight * share,
            optimizer=used.optimizer * (1 - share),
            widened=used.widened * (1 - share),
            buffers=used.buffers + np.minimum(staged, share * used.optimizer),
            host=used.host + np.where(disks > 0, np.minimum(disks, DISK_BUFFERS * SUBGROUP * DISK_BYTES), host),
            nvme=used.nvme + disks,
        )

    def _rates(self, case: TrainingCase) -> tuple[Floats, Floats]:
        """Parameters per second that the host updates for a rank, and bytes per second that a rank copies, one way."""
        update = host_of(case).adam_parameters_s / neighbours(case)
        return (
            np.asarray(update * case.drawn("host update", HOST_SPREAD)),
            np.asarray(link_bytes_s(case) * case.drawn("host link", LINK_SPREAD)),
        )


def _flushed_early(found: StepTable, traits: Traits) -> NDArray[np.bool_]:
    """Whether gradients are flushed per micro-batch: they are reduce-scattered at once, or there is one replica."""
    return np.asarray(((found.grid.zero >= 2) | (found.grid.copies == 1)) & (not traits.host_update_apart))


def update_s(
    away: Floats, turns: Floats | float, host: Floats | float, memory: Floats | float, link: Floats | float,
    chip_s: Floats | float,
) -> Floats:  # fmt: skip
    """Seconds of an update in which processors, host memory, copies both ways and the chip overlap; the last subgroup's
    weights follow. `turns` is the share of the offloaded parameters (`away`) that the chip updates; `host` is in
    parameters per second, `memory` and `link` in bytes per second."""
    processors = away * (1 - turns) / host
    shared = away * ((1 - turns) * (UPDATE_BYTES + WEIGHT_BYTES) + turns * 2 * STATE_BYTES) / memory
    longest = np.maximum.reduce(
        np.broadcast_arrays(
            _sharing_bandwidth(processors, shared),
            away * ((1 - turns) * WEIGHT_BYTES + turns * STATE_BYTES) / link,
            away * turns * STATE_BYTES / link,
            chip_s,
        )
    )
    return np.asarray(longest + np.minimum(away, SUBGROUP) * WEIGHT_BYTES / link)


def _sharing_bandwidth(processors: Floats, memory: Floats) -> Floats:
    """Both at once, which share the host's memory."""
    return np.asarray((processors**BANDWIDTH_CONTENTION + memory**BANDWIDTH_CONTENTION) ** (1 / BANDWIDTH_CONTENTION))


def _turns(values: Values, away: Floats) -> Floats:
    """The share of subgroups that the chip updates."""
    groups = np.maximum(np.ceil(away / SUBGROUP), 1.0)
    return np.floor(groups / float(values["stride"])) / groups if values["stride"] else np.zeros_like(groups)


TECHNIQUES = (OffloadOptimizer(),)
