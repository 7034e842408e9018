"""Seconds of the pieces of a training step for every plan of a grid: what a pipeline's timeline is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.collective import crowding
from gnomon.cost.machine import Machine
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.traits import Optimizer, Traits, Update
from gnomon.engines.training.units import PARTS, Unit, ops_of, tapes_of, units
from gnomon.graph.ops import Collective, Elementwise, Op
from gnomon.spec import Batch, Model, TrainingLoad
from gnomon.spec.training import RECOMPUTE
from gnomon.spec.workload import Floats

Factor = Callable[[Op], Floats | float]
_CUT = ("tp", "sequence_parallel", "recompute")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """One row a plan. A chunk is one rank's part of the network; the first also has the embedding, the last the head.

    `first_*` and `last_*` are what those two add. Sends, gradients and weights are of one chunk or one rank.
    """

    grid: Grid
    micros: Ints
    layers: Ints
    """Layers of a chunk."""
    forward_s: Floats
    backward_s: Floats
    first_forward_s: Floats
    first_backward_s: Floats
    last_forward_s: Floats
    last_backward_s: Floats
    send_s: Floats
    reduce_s: Floats
    first_reduce_s: Floats
    last_reduce_s: Floats
    optimizer_s: Floats
    gather_s: Floats
    """Both of the rank with most parameters."""
    quiet_forward_s: Floats
    """A chunk's passes, were all collectives in them free."""
    quiet_backward_s: Floats
    parameters: Floats
    """Of one layer, on one rank; `first_` and `last_` of the embedding and the head."""
    first_parameters: Floats
    last_parameters: Floats
    kept_bytes: Floats
    """Of one layer and micro-batch, and so are the next ones."""
    head_kept_bytes: Floats
    layer_peak_bytes: Floats
    head_peak_bytes: Floats
    buffer_bytes: Floats
    """Of one stage for what it receives from one neighbour over the step."""
    model_flops: Floats
    """Of the whole step on all ranks, without what is run again."""
    again_flops: Floats
    energy_j: Floats
    """Of the whole step on all ranks, without the boards' constant part."""


def figures(
    model: Model,
    load: TrainingLoad,
    grid: Grid,
    machine: Machine,
    traits: Traits,
    optimizer: str,
    dtype: str,
    factor: Factor | None = None,
) -> Figures:
    """All rows of a grid. `factor` gives each row its own draw of an operator's error."""
    if not traits.shards_alone:  # one rank has nobody to share gradients and weights with
        grid = replace(grid, zero=np.where(grid.dp == 1, np.minimum(grid.zero, 1), grid.zero))
    priced = _priced(model, load, grid, machine, traits, dtype, factor)
    states = traits.optimizers[optimizer]
    micros: Ints = load.global_batch // (grid.dp * grid.micro_batch)
    chunk: Ints = model.layers // (grid.pp * grid.vp)
    wire = _Wire(model, load, grid, machine, traits, states, dtype, priced, factor)
    forward, backward = wire.passes(chunk)
    layer, first, last = (priced[part] for part in ("layer", "embedding", "head"))
    if model.tied_embeddings:  # the last stage of a pipeline holds a copy of its own
        matrix = -(-model.vocab // grid.tp) * model.hidden
        last = replace(last, parameters=last.parameters + np.where(grid.pp > 1, matrix, 0))
    ends = np.where(grid.pp == 1, first.parameters + last.parameters, np.maximum(first.parameters, last.parameters))
    own = grid.vp * chunk * layer.parameters + ends
    share = np.where(grid.zero >= 1, grid.dp, 1)
    whole = micros * grid.dp * grid.tp
    total = {
        name: whole * (model.layers * getattr(layer, name) + getattr(first, name) + getattr(last, name))
        for name in ("flops", "again_flops", "energy_j")
    }
    return Figures(
        grid=grid,
        micros=micros,
        layers=chunk,
        forward_s=forward,
        backward_s=backward,
        first_forward_s=first.forward_s + wire.gathered(first.parameters),
        first_backward_s=first.backward_s + wire.accumulate(first.parameters) + wire.scattered(first.parameters),
        last_forward_s=last.forward_s + wire.gathered(last.parameters),
        last_backward_s=last.backward_s + wire.accumulate(last.parameters) + wire.scattered(last.parameters),
        send_s=wire.send(),
        reduce_s=wire.reduce(chunk * layer.parameters),
        first_reduce_s=wire.reduce(first.parameters),
        last_reduce_s=wire.reduce(last.parameters),
        optimizer_s=wire.update(own / share) + wire.updates((states.clear,), own) + wire.crowded(own),
        gather_s=wire.gather(own),
        quiet_forward_s=chunk * (layer.forward_s - layer.forward_exposed_s),
        quiet_backward_s=chunk * (layer.backward_s - layer.backward_exposed_s + wire.accumulate(layer.parameters)),
        parameters=layer.parameters,
        first_parameters=first.parameters,
        last_parameters=last.parameters,
        kept_bytes=layer.kept_bytes,
        head_kept_bytes=last.kept_bytes,
        layer_peak_bytes=np.maximum(layer.forward_peak_bytes, layer.backward_peak_bytes),
        head_peak_bytes=np.maximum(last.forward_peak_bytes, last.backward_peak_bytes),
        buffer_bytes=traits.buffers_ahead * (grid.pp > 1) * micros * wire.sent_bytes(),
        model_flops=total["flops"] - total["again_flops"],
        again_flops=total["again_flops"],
        energy_j=total["energy_j"],
    )


def _priced(
    model: Model,
    load: TrainingLoad,
    grid: Grid,
    machine: Machine,
    traits: Traits,
    dtype: str,
    factor: Factor | None,
) -> dict[str, Unit]:
    """The pieces of every row. Each way to cut a layer is priced once, for all micro-batches it comes with."""
    groups = grid.groups(_CUT)
    cuts = {(tp, sp): tapes_of(model, load.seq, dtype, tp, bool(sp), traits) for (tp, sp, _), _ in groups}
    sizes, place = np.unique(grid.micro_batch, return_inverse=True)
    if factor is not None:
        sizes, place = grid.micro_batch, np.arange(grid.size)
    batch = Batch.prefill(sizes, load.seq)
    times = tapes.price(ops_of(cuts.values()), machine, batch, factor)
    columns = {part: {field.name: np.empty(grid.size) for field in fields(Unit)} for part in PARTS}
    for (tp, sp, mode), rows in groups:
        made = units(cuts[tp, sp], RECOMPUTE[mode], times, machine, batch, traits)
        for part, unit in made.items():
            for name, column in columns[part].items():
                column[rows] = np.broadcast_to(getattr(unit, name), sizes.shape)[place.ravel()[rows]]
    return {part: Unit(**column) for part, column in columns.items()}


class _Wire:
    """What goes over links, and what touches every parameter, for each row of a grid."""

    def __init__(
        self, model: Model, load: TrainingLoad, grid: Grid, machine: Machine, traits: Traits, states: Optimizer,
        dtype: str, priced: Mapping[str, Unit], factor: Factor | None,
    ) -> None:  # fmt: skip
        self.model, self.load, self.grid, self.machine = model, load, grid, machine
        self.traits, self.states, self.priced, self.factor = traits, states, priced, factor
        self.late = (grid.pp > 1) & traits.whole_sums
        self.each = (grid.zero >= 2) & ~self.late
        self.by_dp_tp, self.by_tp = grid.groups(("dp", "tp")), grid.groups(("tp",))

    def passes(self, chunk: Ints) -> tuple[Floats, Floats]:
        """Seconds of a chunk both ways. With ZeRO 3 a layer's weights are gathered while the one before it runs, and
        its gradients scattered while the one after it does."""
        layer = self.priced["layer"]
        forward, backward = layer.forward_s, layer.backward_s + self.accumulate(layer.parameters)
        zero = self.grid.zero
        first, scatter = self.gathered(layer.parameters), self.scattered(layer.parameters)
        again = first * (zero == 3)
        there = first + (chunk - 1) * self._beside(forward, first) + forward
        back = again + (chunk - 1) * self._beside(backward, again + scatter) + backward + scatter
        plain = zero < 2
        return np.where(plain, chunk * forward, there), np.where(plain, chunk * backward, back)

    def _beside(self, compute: Floats, network: Floats) -> Floats:
        """Both at once: the longer of them, and what the collective takes from the computation."""
        crowded = crowding(self.machine.chip.sm_count) * np.minimum(compute, network)
        return np.maximum(compute + crowded, network)

    def crowded(self, parameters: Floats) -> Floats:
        """What gradients reduced beside the last backward passes add to them."""
        hidden = self.traits.overlaps(self.grid.pp) * self.reduce(parameters)
        return np.asarray(crowding(self.machine.chip.sm_count) * hidden)

    def gathered(self, parameters: Floats) -> Floats:
        """Weights that a forward pass has to gather first."""
        wanted = (self.grid.zero == 3) | ((self.grid.zero == 2) & self.traits.gathers_forward)
        return np.where(wanted, self._gather(parameters), 0.0)

    def scattered(self, parameters: Floats) -> Floats:
        """Gradients that a backward pass scatters."""
        return self._collective("reduce_scatter", self._wire_bytes * parameters) * self.each

    def accumulate(self, parameters: Floats) -> Floats:
        """Sharded gradients are summed where they are scattered."""
        held = np.where(self.each, parameters / self.grid.dp, parameters)
        return self.updates((self.states.accumulate,), held)

    def update(self, parameters: Floats) -> Floats:
        return self.updates(self.states.updates, parameters)

    def updates(self, kernels: tuple[Update, ...], parameters: Floats) -> Floats:
        total: Floats = np.zeros(self.grid.size)
        for one in kernels:
            op = Elementwise(
                name=one.name, rows=1, read_per_row=one.reads, written_per_row=one.writes, dtype="bf16", pace=one.pace
            )
            shape = {
                "bytes_read": parameters * one.reads,
                "bytes_written": parameters * one.writes,
                "pace": np.full(parameters.shape, one.pace),
            }
            total = total + self.machine.seconds("elementwise", "bf16", shape) * (self.factor(op) if self.factor else 1)
        return total

    @property
    def _wire_bytes(self) -> float:
        """Bytes of a gradient on its way."""
        return self.traits.wire_bytes or self.states.gradient_bytes

    def reduce(self, parameters: Floats) -> Floats:
        """Gradients of a rank over its data-parallel group; sharded ones have been summed during the passes."""
        payload = self._wire_bytes * parameters
        summed = self._collective("all_reduce", payload)
        scattered = self._collective("reduce_scatter", payload)
        after = (self.grid.zero == 1) | ((self.grid.zero >= 2) & self.late)
        found: Floats = np.select([self.grid.zero == 0, after], [summed, scattered], 0.0)
        return found

    def gather(self, parameters: Floats) -> Floats:
        """New weights, where each rank has updated a part of them."""
        kept = (self.grid.zero == 1) | ((self.grid.zero == 2) & (not self.traits.gathers_forward))
        return np.where(kept, self._gather(parameters), 0.0)

    def _gather(self, parameters: Floats) -> Floats:
        return self._collective("all_gather", self.states.weight_bytes * parameters)

    def _collective(self, op: str, payload: Floats) -> Floats:
        """Over data-parallel ranks, which stand as far apart as a tensor-parallel group is wide."""
        found: Floats = np.zeros(self.grid.size)
        for (dp, tp), rows in self.by_dp_tp:
            found[rows] = self._priced(op, np.broadcast_to(payload, found.shape)[rows], dp, tp)
        return found * self._drawn(op)

    def sent_bytes(self) -> Floats:
        """Activations of a micro-batch between two stages, on one rank."""
        held = np.where(self.grid.sequence_parallel == 1, self.grid.tp, 1)
        return np.asarray(2.0 * self.grid.micro_batch * self.load.seq * self.model.hidden / held)

    def send(self) -> Floats:
        """Activations of a micro-batch to the next stage, `tp * dp` chips away, each rank over its own adapter."""
        grid = self.grid
        part = np.where(self.traits.split_sends & (grid.sequence_parallel == 0), grid.tp, 1)
        payload = self.sent_bytes() / part
        within = self.machine.pool.per_node
        # Some stage's neighbour is in another node once a pipeline spans nodes, and the slowest link sets the pace.
        near, far = (self._priced("send_recv", payload, 2, stride) for stride in (1, within))
        found = np.where(grid.ranks > within, far, near)
        joined = self._collective_tp("all_gather", payload * part) if self.traits.split_sends else 0.0
        found = found + np.where(grid.sequence_parallel == 1, 0.0, joined)
        return np.where(grid.pp > 1, found, 0.0) * self._drawn("send_recv")

    def _collective_tp(self, op: str, payload: Floats) -> Floats:
        found: Floats = np.zeros(self.grid.size)
        for (tp,), rows in self.by_tp:
            found[rows] = self._priced(op, payload[rows], tp, 1)
        return found

    def _priced(self, op: str, payload: Floats, ranks: int, stride: int) -> Floats:
        shape = {"bytes": payload, "ranks": np.full(payload.shape, ranks), "stride": np.full(payload.shape, stride)}
        return self.machine.seconds(op, "bf16", shape)

    def _drawn(self, op: str) -> Floats | float:
        if self.factor is None:
            return 1.0
        return self.factor(Collective(name=f"step.{op}", op=op, rows=1, bytes_per_row=1.0, ranks=2))  # type: ignore[arg-type]
