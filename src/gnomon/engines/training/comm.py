"""What of a training step goes over links, and what touches every parameter, for each row of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.collective import sm_contention
from gnomon.cost.machine import Machine
from gnomon.engines.training.batches import EachRow, row_tokens
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.traits import Optimizer, Traits, Update
from gnomon.graph.dtypes import width
from gnomon.graph.ops import Collective, Elementwise
from gnomon.spec import Block, Model, TrainingLoad
from gnomon.spec.workload import Floats


class ParamCount(NamedTuple):
    """Parameters of a rank: those that all its copies hold, and those of experts, which fewer do."""

    dense: Floats
    experts: Floats

    def times(self, count: Ints | int | Floats) -> ParamCount:
        return ParamCount(self.dense * count, self.experts * count)

    def plus(self, other: ParamCount) -> ParamCount:
        return ParamCount(self.dense + other.dense, self.experts + other.experts)

    @property
    def total(self) -> Floats:
        return self.dense + self.experts

    def shared(self, grid: Grid) -> Floats:
        """What is left of them where each of the ranks that share them out takes an equal part."""
        return np.asarray(self.dense / grid.shards + self.experts / grid.expert_shards)


@dataclass(frozen=True, slots=True, eq=False)
class FrozenWeights:
    """Parameters of a rank that do not learn, and bytes of those that are packed in a format of their own."""

    parameters: Floats
    packed_bytes: Floats

    def pick(self, rows: Ints) -> FrozenWeights:
        return FrozenWeights(self.parameters[rows], self.packed_bytes[rows])

    def times(self, count: Ints | int | Floats) -> FrozenWeights:
        return FrozenWeights(self.parameters * count, self.packed_bytes * count)

    def plus(self, other: FrozenWeights) -> FrozenWeights:
        return FrozenWeights(self.parameters + other.parameters, self.packed_bytes + other.packed_bytes)

    def bytes(self, each: float) -> Floats:
        """Where each takes so many that is not packed."""
        return np.asarray(each * self.parameters + self.packed_bytes)


def gathers_narrow(grid: Grid, traits: Traits) -> NDArray[np.bool_]:
    """Whether weights are kept and gathered in the format of their GEMMs."""
    return np.asarray((grid.fp8_param_gather == 1) | traits.narrow_parameters)


def sent_bytes(tokens: Floats | Ints, hidden: int, dtype: str, grid: Grid) -> Floats:
    """Activations of a micro-batch of so many tokens between two stages, on one rank."""
    held = grid.cp * np.where(grid.sequence_parallel == 1, grid.tp, 1)
    return np.asarray(width(dtype) * tokens * hidden / held)


class CommModel:
    """Seconds of reductions, gathers, sends and updates."""

    def __init__(
        self, model: Model, load: TrainingLoad, grid: Grid, machine: Machine, traits: Traits, states: Optimizer,
        dtype: str, each: EachRow | None,
    ) -> None:  # fmt: skip
        self.model, self.load, self.grid, self.machine = model, load, grid, machine
        self.traits, self.states, self.dtype = traits, states, dtype
        self.rows, self.factor, self.host = each, each.factor if each else None, each.host if each else 1.0
        self.late = (grid.pp > 1) & traits.whole_sums
        self.each = (grid.zero >= 2) & ~self.late
        self.by_tp = grid.groups(("tp",))

    @cached_property
    def copies(self) -> tuple[_Group, _Group]:
        """Ranks that hold the same, and of experts."""
        return _Group(self.grid, "copies", ("tp",)), _Group(self.grid, "expert_copies", ("expert_tp", "ep"))

    @cached_property
    def shards(self) -> tuple[_Group, _Group]:
        """Ranks that share states out between them."""
        return _Group(self.grid, "shards", ("tp",)), _Group(self.grid, "expert_shards", ("expert_tp", "ep"))

    @cached_property
    def replicas(self) -> tuple[_Group, _Group]:
        """Ranks that hold the same shard."""
        experts = _Group(self.grid, "replicas", ("expert_tp", "ep", "expert_shards"))
        return _Group(self.grid, "replicas", ("tp", "shards")), experts

    def passes(
        self, forward_s: Floats, backward_s: Floats, held: ParamCount, frozen: FrozenWeights,
        narrow: Floats, launched_s: tuple[Floats, Floats] | None = None,
    ) -> tuple[Floats, Floats, Floats, Floats]:  # fmt: skip
        """Seconds of a layer forward and backward, and what the first of a chunk adds to both. With ZeRO 3 a layer's
        weights are gathered while the one before it runs, and its gradients scattered while the one after it does;
        where the host has hooks around modules, a pass cannot be faster than those and its launches (`launched_s`)."""
        zero, sharded = self.grid.zero, self.traits.sharded_weights
        first, scatter = self.gathered(held, frozen, narrow), self.scattered(held)
        regathered = self.regathered(held, frozen, narrow)
        both = self._at_once(regathered, held)
        there, back = self._overlap(forward_s, first), self._overlap(backward_s, both)
        if launched_s is not None and sharded.modules:
            once, twice = (self.host * sharded.hooks_s(passes) for passes in (1, 2))
            hooks = once, np.where(self.grid.recompute > 0, twice, once)
            there = np.where(zero == 3, np.maximum(there, launched_s[0] + hooks[0]), there)
            back = np.where(zero == 3, np.maximum(back, launched_s[1] + hooks[1]), back)
        plain = zero < 2
        return (
            np.where(plain, forward_s, there),
            np.where(plain, backward_s, back),
            np.where(plain, 0.0, np.maximum(first + forward_s - there, 0.0)),
            np.where(plain, 0.0, np.maximum(regathered + backward_s + scatter - back, 0.0)),
        )

    def halves(
        self, input_s: Floats, weight_s: Floats, held: ParamCount, frozen: FrozenWeights, narrow: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Seconds of a layer backward by input and by weight, and what the first of a chunk adds to the former."""
        regathered = self.regathered(held, frozen, narrow)
        back, weighted = self._overlap(input_s, regathered), self._overlap(weight_s, self._at_once(0.0, held))
        plain = self.grid.zero < 2
        lead = np.where(plain, 0.0, regathered + input_s - back)
        return np.where(plain, input_s, back), np.where(plain, weight_s, weighted), lead

    def _overlap(self, compute: Floats, network: Floats) -> Floats:
        """Overlapped: the longer of both, and what SM contention adds to the computation; behind it what an engine
        does not overlap."""
        exposed = network * np.where(self.grid.zero == 3, self.traits.sharded_weights.exposed, 0.0)
        beside = network - exposed
        contended = sm_contention(self.machine.chip.sm_count) * np.minimum(compute, beside)
        return np.asarray(exposed + np.maximum(compute + contended, beside))

    def contended(self, held: ParamCount) -> Floats:
        """What SM contention of overlapped gradient reductions adds to the last backward passes."""
        overlapped = self.traits.overlaps(self.grid.pp) * self.reduce(held)
        return np.asarray(sm_contention(self.machine.chip.sm_count) * overlapped)

    def regathered(self, held: ParamCount, frozen: FrozenWeights, narrow: Floats | float) -> Floats:
        """Weights that a backward pass has to gather again: from all ranks that share them out, or from neighbours with
        a second copy."""
        near = (_Group(self.grid, "near_shards", ("tp",)), self.shards[1]) if np.any(self.grid.hpz) else self.shards
        return np.asarray(self.gathered(held, frozen, narrow, near) * (self.grid.zero == 3))

    def gathered(
        self, held: ParamCount, frozen: FrozenWeights, narrow: Floats | float = 0.0,
        among: tuple[_Group, _Group] | None = None,
    ) -> Floats:  # fmt: skip
        """Weights that a forward pass has to gather first, frozen ones with the others. `narrow` of them are multiplied
        in fewer bits."""
        wanted = (self.grid.zero == 3) | ((self.grid.zero == 2) & self.traits.gathers_forward)
        each, more = self.states.weight_bytes, frozen.bytes(width(self.dtype))
        handled = self._handled(held, each, self.traits.sharded_weights.copied)
        together = ParamCount(held.dense + more / each, held.experts)
        return np.where(wanted, self._gather(together, narrow, among) + handled, 0.0)

    def scattered(self, held: ParamCount) -> Floats:
        """Gradients that a backward pass scatters, and sums over replicas."""
        return self._scattered(held) + self._across(held) * self._across_each

    def _scattered(self, held: ParamCount) -> Floats:
        handled = self._handled(held, self._wire_bytes, self.traits.sharded_weights.reduced)
        return self._collective("reduce_scatter", held, self._wire_bytes) * self.each + handled

    @property
    def _across_each(self) -> NDArray[np.bool_]:
        """Whether each micro-batch's gradients are summed over replicas, not once those of a step."""
        return np.asarray(self.each & (not self.traits.replicas_once))

    def _across(self, held: ParamCount) -> Floats:
        """A rank's shard of the gradients, summed over the replicas (HSDP)."""
        if np.all(self.grid.replicas == 1):
            return np.zeros(self.grid.size)
        part = ParamCount(held.dense / self.grid.shards, held.experts / self.grid.expert_shards)
        return self._collective("all_reduce", part, self._wire_bytes, self.replicas)

    def _at_once(self, gathered: Floats | float, held: ParamCount) -> Floats:
        """Gathers and reduce-scatters among the ranks that share states out, with the all-reduces over replicas, which
        are in a queue of their own: beside each other where the first stay in a node and use its links alone."""
        inside, across = gathered + self._scattered(held), self._across(held) * self._across_each
        alone = self.grid.shards * self.grid.tp <= self.machine.pool.per_node
        return np.where(alone, np.maximum(inside, across), inside + across)

    def _handled(self, held: ParamCount, each_bytes: float, kernels: tuple[Update, ...]) -> Floats:
        """What an engine's own handling of weights and gradients that ZeRO 3 shards adds to their collectives."""
        sharded = self.traits.sharded_weights
        if not kernels and sharded.software_bytes_s == np.inf:
            return np.zeros(self.grid.size)
        seconds = self.updates(kernels, held.total) + each_bytes * held.total / sharded.software_bytes_s
        return np.asarray(seconds * (self.grid.zero == 3))

    def accumulate(self, held: ParamCount) -> Floats:
        """Sharded gradients are summed where they are scattered."""
        return self.updates((self.states.accumulate,), np.where(self.each, held.shared(self.grid), held.total))

    def update(self, held: ParamCount, ends: ParamCount) -> Floats:
        """The optimizer's kernels, over the parameters whose states a rank holds; `ends` are those of embedding and
        head among them."""
        own, of_ends = (np.where(self.grid.zero >= 1, one.shared(self.grid), one.total) for one in (held, ends))
        found = self.updates((self.states.clear,), held.total)
        if self.states.ends is None:
            return found + self.updates(self.states.updates, own)
        found = found + self.updates(self.states.ends.updates, of_ends) + self.traded(held, ends)
        return found + self.updates(self.states.updates, own - of_ends)

    def traded(self, held: ParamCount, ends: ParamCount) -> Floats:
        """Rows of matrices that ranks trade for full matrices, and back."""
        body = ParamCount(held.dense - ends.dense, held.experts)
        sharded = (self.grid.zero >= 2) & (self.states.traded_bytes > 0)
        own = ParamCount(*(one / self.grid.shards for one in body))
        return np.where(sharded, 2 * self._collective("all_to_all", own, self.states.traded_bytes), 0.0)

    def newton(self, block: Block) -> Floats:
        """GEMMs that make a layer's momenta orthogonal: of m x n matrices, m the smaller, X by X, that by itself, and
        it by X. Full matrices, as tensor-parallel ranks gather them; with ZeRO every copy takes a part of them."""
        total: Floats = np.zeros(self.grid.size)
        for tensor in block.tensors(self.model.hidden):
            if tensor.columns > 1 and self.states.newton_steps:
                m, n = sorted((tensor.rows, tensor.columns))
                most = self.states.newton_values // (m * n)
                several = max(1, min(most, self.model.layers))
                once = sum(self._gemm(*sizes, several) for sizes in ((m, m, n), (m, m, m), (m, n, m))) / several
                held = tensor.copies / (self.grid.ep if tensor.role.startswith("expert") else 1)
                total = total + self.states.newton_steps * held * once
        return np.asarray(total / np.where(self.grid.zero >= 1, self.grid.shards, 1))

    def _gemm(self, m: float, n: float, k: float, batch: float) -> float:
        shape = {name: np.array([float(size)]) for name, size in (("m", m), ("n", n), ("k", k), ("batch", batch))}
        return float(self.machine.seconds("gemm", self.machine.chip.half, shape)[0])

    def updates(self, kernels: tuple[Update, ...], parameters: Floats) -> Floats:
        total: Floats = np.zeros(self.grid.size)
        for one in kernels:
            op = Elementwise(
                name=one.name,
                rows=1,
                read_per_row=one.reads,
                written_per_row=one.writes,
                dtype="bf16",
                efficiency=one.efficiency,
            )
            shape = {
                "bytes_read": parameters * one.reads,
                "bytes_written": parameters * one.writes,
                "efficiency": np.full(parameters.shape, one.efficiency),
            }
            total = total + self.machine.seconds("elementwise", "bf16", shape) * (self.factor(op) if self.factor else 1)
        return total

    @property
    def _wire_bytes(self) -> float:
        """Bytes of a gradient on the link."""
        return self.traits.wire_bytes or self.states.gradient_bytes

    def reduce(self, held: ParamCount) -> Floats:
        """Gradients of a rank over its copies; sharded ones have been summed during the passes."""
        summed = self._collective("all_reduce", held, self._wire_bytes, self.copies)
        scattered, across = self._collective("reduce_scatter", held, self._wire_bytes), self._across(held)
        after = (self.grid.zero == 1) | ((self.grid.zero >= 2) & self.late)
        once = self.each & self.traits.replicas_once
        found: Floats = np.select([self.grid.zero == 0, after, once], [summed, scattered + across, across], 0.0)
        return found

    def gather(self, held: ParamCount, narrow: Floats) -> Floats:
        """New weights, where each rank has updated a part of them; `narrow` of them are multiplied in fewer bits."""
        kept = (self.grid.zero == 1) | ((self.grid.zero == 2) & (not self.traits.gathers_forward))
        return np.where(kept, self._gather(held, narrow), 0.0)

    def _gather(self, held: ParamCount, narrow: Floats | float, among: tuple[_Group, _Group] | None = None) -> Floats:
        each = self.states.weight_bytes
        saved = (each - (self.traits.style.recipe.gathered_bytes or each)) * gathers_narrow(self.grid, self.traits)
        share: Floats = np.asarray(np.minimum(narrow / np.maximum(held.total, 1.0), 1.0))
        found: Floats = np.asarray(each - saved * share)
        return self._collective("all_gather", held, found, among)

    def _collective(
        self, op: str, held: ParamCount, each: Floats | float, among: tuple[_Group, _Group] | None = None
    ) -> Floats:
        """Among the ranks that share states out, or others: first of what all hold, then of experts, where there are
        any."""
        dense, experts = among or self.shards
        found = dense.priced(self, op, each * held.dense)
        if np.any(held.experts):
            found = found + experts.priced(self, op, each * held.experts)
        return found * self._drawn(op)

    def sent_bytes(self) -> Floats:
        tokens = row_tokens(self.model, self.load, self.grid, self.rows)
        return sent_bytes(tokens, self.model.hidden, self.dtype, self.grid)

    def send(self) -> Floats:
        """Activations of a micro-batch to the next stage, `tp * cp * dp` chips away, each rank over its own adapter."""
        grid = self.grid
        part = np.where(self.traits.split_sends & (grid.sequence_parallel == 0), grid.tp, 1)
        payload = self.sent_bytes() / part
        within = self.machine.pool.per_node
        # Some stage's neighbour is in another node once a pipeline spans nodes, and the slowest link decides.
        near, far = (self.priced("send_recv", payload, 2, stride) for stride in (1, within))
        found = np.where(grid.ranks > within, far, near)
        joined = self._collective_tp("all_gather", payload * part) if self.traits.split_sends else 0.0
        found = found + np.where(grid.sequence_parallel == 1, 0.0, joined)
        return np.where(grid.pp > 1, found, 0.0) * self._drawn("send_recv")

    def _collective_tp(self, op: str, payload: Floats) -> Floats:
        found: Floats = np.zeros(self.grid.size)
        for (tp,), rows in self.by_tp:
            found[rows] = self.priced(op, payload[rows], tp, 1)
        return found

    def priced(self, op: str, payload: Floats, ranks: int, stride: int) -> Floats:
        shape = {"bytes": payload, "ranks": np.full(payload.shape, ranks), "stride": np.full(payload.shape, stride)}
        return self.machine.seconds(op, "bf16", shape)

    def _drawn(self, op: str) -> Floats | float:
        if self.factor is None:
            return 1.0
        return self.factor(Collective(name=f"step.{op}", op=op, rows=1, bytes_per_row=1.0, ranks=2))  # type: ignore[arg-type]


class _Group:
    """Ranks of every plan, which stand as far apart as the ranks of other kinds between them take."""

    def __init__(self, grid: Grid, ranks: str, between: tuple[str, ...]) -> None:
        self.groups = [(of[0], prod(of[1:]), rows) for of, rows in grid.groups((ranks, *between))]

    def priced(self, wire: CommModel, op: str, payload: Floats) -> Floats:
        found: Floats = np.zeros(wire.grid.size)
        for ranks, stride, rows in self.groups:
            found[rows] = wire.priced(op, np.broadcast_to(payload, found.shape)[rows], ranks, stride)
        return found
