"""Chains of memory-bound kernels as one kernel each, as a compiler of graphs joins them (`torch.compile`).

A chain is what runs between two GEMMs, convolutions or attentions, as long as each kernel touches memory that one
before it has touched. It reads what was there before it and writes what is read after it; what lives inside a chain
alone never leaves the chip. Lookups, scatters, sorts, pools and resampling keep kernels of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gnomon.engines.torch.eager.forms import find_efficiency
from gnomon.engines.torch.eager.lowering import Lowering
from gnomon.engines.torch.eager.streams import base_name, rule_for, rules
from gnomon.graph.ops import Elementwise
from gnomon.graph.style import STREAMING_EFFICIENCY
from gnomon.spec.traced import Call, TensorSpec, Traced

NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "batch_norm.inference")
JOINED = frozenset((*NORMS, "softmax", "gelu", "silu", "dropout", "copy", "zero", "reduce", "pointwise"))
"""Kernels that a compiler writes itself; all others stay as they are."""


@dataclass(slots=True)
class Chain:
    """Neighbouring calls that one kernel can do."""

    places: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)

    def takes(self, call: Call) -> bool:
        return not self.calls or any(spec.storage in self.touched for spec in call.inputs)

    def add(self, at: int, call: Call) -> None:
        self.places.append(at)
        self.calls.append(call)
        self.touched.update(spec.storage for spec in (*call.inputs, *call.results))


def joins(call: Call) -> bool:
    """Whether a compiler makes this call's kernel part of a chain."""
    return base_name(call) not in rules().nothing and not call.is_view and rule_for(call)[0].kernel in JOINED


def chains(traced: Traced, launches: Sequence[bool]) -> Iterator[Chain]:
    """The chains of a step in order. `launches` says which calls launch a kernel; the others break no chain."""
    open_: Chain | None = None
    for at, call in enumerate(traced.calls):
        if not launches[at]:
            continue
        if open_ is not None and not (joins(call) and open_.takes(call) and open_.calls[0].phase == call.phase):
            yield open_
            open_ = None
        if joins(call):
            open_ = open_ or Chain()
            open_.add(at, call)
    if open_ is not None:
        yield open_


class Uses:
    """Which storage is read for the last time where, so that what a chain makes for itself alone is known."""

    def __init__(self, traced: Traced) -> None:
        self.last_read: dict[int, int] = {}
        for at, call in enumerate(traced.calls):
            for spec in call.inputs:
                self.last_read[spec.storage] = at
        count = len(traced.calls)
        self.kept = {n for n, one in enumerate(traced.storages) if one.died is None or one.died > count}

    def kernel(self, chain: Chain, how: Lowering) -> Elementwise:
        """One pass over what a chain reads from outside, and over what it leaves."""
        made: dict[int, float] = {}
        read: dict[int, float] = {}
        for call in chain.calls:
            there = {spec.storage for spec in call.inputs}
            unread = rule_for(call)[0].unread
            for name, specs in call.tensors.items():
                for spec in specs:
                    if spec.storage not in made and name not in unread:
                        read[spec.storage] = max(read.get(spec.storage, 0.0), spec.stored_bytes)
                if name in call.changed:
                    made.update({spec.storage: spec.stored_bytes for spec in specs})
            made.update({spec.storage: _most(spec, made) for spec in call.results if spec.storage not in there})
        written = sum(
            size for one, size in made.items() if one in self.kept or self.last_read.get(one, -1) > chain.places[-1]
        )
        wide = any(spec.item_bytes == 4 for call in chain.calls for spec in call.results)
        efficiency = find_efficiency(how.efficiencies, wide, "pointwise", "add")
        return Elementwise(
            name="fused" if len(chain.calls) > 1 else rule_for(chain.calls[0])[0].kernel,
            rows=1,
            read_per_row=sum(read.values()),
            written_per_row=written,
            dtype="bf16",
            efficiency=efficiency,
            cached=efficiency >= STREAMING_EFFICIENCY,
        )


def _most(spec: TensorSpec, made: dict[int, float]) -> float:
    return max(made.get(spec.storage, 0.0), spec.stored_bytes)
