"""What a module was seen to do: the operators it called, on tensors known by shape and format alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

Phase = Literal["forward", "backward", "optimizer"]
Role = Literal["parameters", "buffers", "inputs", "gradients", "optimizer", "activations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor without its values. `storage` numbers the memory it looks at, which views share."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    item_bytes: float
    storage: int

    @property
    def values(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> float:
        return self.values * self.item_bytes

    @property
    def stored_bytes(self) -> float:
        """Without what is repeated: an expanded dimension has a stride of zero and is in memory once."""
        return prod(n for n, step in zip(self.shape, self.stride, strict=True) if step or not n) * self.item_bytes

    @property
    def order(self) -> tuple[int, ...]:
        """Its dimensions of more than one value, outermost in memory first."""
        kept = [i for i, n in enumerate(self.shape) if n > 1 and self.stride[i]]
        return tuple(sorted(kept, key=lambda i: -self.stride[i]))

    @property
    def channels_last(self) -> bool:
        """Whether neighbouring values in memory differ in the second dimension, as convolutions like it."""
        order = self.order
        return len(self.shape) > 2 and bool(order) and (order[-1] == 1 or self.shape[1] == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operator: `aten.addmm`, its tensors by the names of its arguments, and what it made."""

    op: str
    tensors: Mapping[str, tuple[TensorSpec, ...]]
    results: tuple[TensorSpec, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Its other arguments: numbers, flags, lists of them."""
    changed: tuple[str, ...] = ()
    """Arguments that it wrote to."""
    module: str = ""
    """The path of the module that called it, or whose gradient it is part of."""
    phase: Phase = "forward"
    pointwise: bool = False
    """PyTorch says that every value it makes depends on the values at the same place alone."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for specs in self.tensors.values() for spec in specs)

    @property
    def is_view(self) -> bool:
        """It gave another look at memory that was there and wrote none."""
        there = {spec.storage for spec in self.inputs}
        return not self.changed and bool(self.results) and all(made.storage in there for made in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A piece of memory: from the call that made it to the one before which it was free; None stands for never."""

    bytes: float
    born: int
    died: int | None
    role: Role = "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A module's calls in order, and the memory they held as long as the module and autograd did."""

    name: str
    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    parameters: int
    trainable: int
    """Of the parameters, those that get a gradient."""
    samples: int
    """What a step works on: the first dimension of the first input."""
    dtype: str
    """Number format of most parameters."""
    phase: Literal["forward", "train"] = "forward"
