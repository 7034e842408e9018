"""Weights of layers in host memory or on NVMe, copied to the chip ahead of each layer while a model is served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gnomon.cost.host_link import DISK_SPREAD, LINK_SPREAD, host_bytes_s
from gnomon.cost.prefetch import CopySchedule, PrefetchCost
from gnomon.cost.step import StepModel
from gnomon.engines.base import MemoryUse, RankBytes, ServingCase
from gnomon.spec import Block, Host, Model
from gnomon.spec.formats import plain
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import ON_HOST, ON_NVME, PLACES, no_disks, no_host

COPY_SPREAD = 2 * LINK_SPREAD
"""Log standard deviation of copies beside kernels, as of an engine's own prefetching."""
IN_ORDER = 0.5
"""Of a layer's time, what copies of a captured graph could use; copies that are not captured do not ask."""


class StreamedLayers(Technique[ServingCase]):
    name = "streamed-layers"
    work = (SERVING,)
    title = "Layers streamed from the host"
    idea = (
        "Weights of layers are kept in host memory or on NVMe and copied to the chip a few layers ahead of their use: "
        "a layer takes the longer of its copy and its compute, so large batches lose little and a model that the chip "
        "cannot hold runs on it."
    )
    trials = (
        Trial(paper="deepspeed-inference", words="streamed-layers"),
        Trial(paper="pipo", words="streamed-layers:ahead=1", against="streamed-layers:ahead=0"),
        Trial(paper="superpipeline", words="streamed-layers:resident=0.4"),
    )
    parameters = (
        Parameter("tier", "host memory, or NVMe of the host behind it", default=ON_HOST, choices=PLACES),
        Parameter("resident", "share of the layers that stay on the chip", default=0.0, high=1.0),
        Parameter(
            "ahead", "layers copied ahead of the one that runs; 0 copies each when it is due", default=1.0, high=64.0,
            whole=True,
        ),
        bandwidth("link_gb_s", "bandwidth of a rank's copies; 0 for what the machine gives", high=1e9),
    )  # fmt: skip
    searched = False
    changes = frozenset({"weight bytes"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        blocks, strategy = case.model.blocks, case.strategy
        yield True, no_host(case.pool)
        yield values["tier"] == ON_NVME, no_disks(case.pool)
        yield strategy.pp > 1, "layers that are streamed are not priced with pipeline parallelism"
        yield (
            strategy.dp > 1,
            "layers that are streamed are not priced with data-parallel ranks",
        )
        kinds = {(type(block.mixer), type(block.ffn)) for block in blocks}
        yield len(kinds) > 1, f"{case.model.name} has layers of several kinds, whose times differ"
        yield _streamed(case, values) == (), "every layer stays on the chip"

    def streams_weights(self, values: Values) -> bool:
        return True

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        sizes = layer_bytes(case)
        places = _streamed(case, values)
        seconds = tuple((place, self._copy_s(sizes[place], case, values)) for place in places)
        moved = sum(sizes[place] for place in places)
        nominal_s = moved / _machine(case).link.bandwidth_bytes_s
        schedule = CopySchedule(
            layers=len(sizes), copies=seconds, ahead=_buffers(case, values), before_attention=IN_ORDER
        )
        return replace(
            found,
            prefetch=PrefetchCost(
                schedules=(schedule,),
                layers=len(sizes),
                bytes=moved,
                spread=COPY_SPREAD if values["tier"] == ON_HOST else DISK_SPREAD,
                source=f"{values['tier']} to the chip, at the rate of copies alone",
                least=min(nominal_s / sum(each for _, each in seconds), 1.0),
                captured=False,
            ),
        )

    def memory(self, used: RankBytes, case: ServingCase, values: Values) -> RankBytes:
        sizes = layer_bytes(case)
        streamed = [sizes[place] for place in _streamed(case, values)]
        away, largest = sum(streamed), max(streamed)
        buffers = _buffers(case, values) * largest
        disks = values["tier"] == ON_NVME
        return replace(
            used,
            weights=used.weights - away + buffers,
            host=used.host + (buffers if disks else away),
            nvme=used.nvme + (away if disks else 0.0),
        )

    def metrics(self, used: MemoryUse, case: ServingCase, values: Values) -> Mapping[str, float]:
        """Layers that are streamed, and the seconds of all their copies."""
        sizes, places = layer_bytes(case), _streamed(case, values)
        return {
            "layers_streamed": float(len(places)),
            "copies_s": sum(self._copy_s(sizes[place], case, values) for place in places),
        }

    def _copy_s(self, size: float, case: ServingCase, values: Values) -> float:
        """Seconds of one layer's copy. From disks it goes through host memory: one after the other where nothing is
        copied ahead, at the rate of the slower of both otherwise."""
        machine, readers = _machine(case), case.pool.machine_chips
        link_s = size / (float(values["link_gb_s"]) * 1e9 or host_bytes_s(machine, readers))
        if values["tier"] == ON_HOST:
            return link_s
        disk_s = size * readers / machine.nvme_read_bytes_s
        return max(link_s, disk_s) if values["ahead"] else link_s + disk_s


def layer_bytes(case: ServingCase) -> tuple[float, ...]:
    """Bytes of every layer on one rank, in order."""
    return tuple(
        size
        for block in case.model.blocks
        for size in [_block_bytes(block, case.model) / case.strategy.tp] * block.count
    )


def _block_bytes(block: Block, model: Model) -> float:
    """One layer with its scales."""
    formats, rest = dict(block.formats), plain(model.working_dtype)
    tensors = block.tensors(model.hidden, model.norm_parameters)
    return sum(tensor.copies * formats.get(tensor.role, rest).bytes(tensor.rows, tensor.columns) for tensor in tensors)


def _streamed(case: ServingCase, values: Values) -> tuple[int, ...]:
    """Places of the layers that are copied, evenly among those that stay."""
    layers = sum(block.count for block in case.model.blocks)
    count = layers - round(float(values["resident"]) * layers)
    return tuple(place * layers // count for place in range(count)) if count else ()


def _buffers(case: ServingCase, values: Values) -> int:
    """Layers that there is room for on the chip: the one that runs, and those copied ahead."""
    return min(int(values["ahead"]) + 1, len(_streamed(case, values)))


def _machine(case: ServingCase) -> Host:
    machine = case.pool.machine
    assert machine is not None  # checked by `reject`
    return machine


TECHNIQUES = (StreamedLayers(),)
