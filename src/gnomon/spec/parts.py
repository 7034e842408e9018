"""Weights as tensors: the pieces every noun of a network is counted from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

VECTOR = "vector"
"""The role of norms, biases and other weights that no format narrows."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`copies` matrices that turn `columns` numbers into `rows`. Its role says which of its noun's matrices it is."""

    role: str
    rows: int
    columns: int = 1
    copies: int = 1

    @property
    def parameters(self) -> int:
        return self.rows * self.columns * self.copies


def count(tensors: Iterable[Tensor]) -> int:
    """Parameters of all of them."""
    return sum(tensor.parameters for tensor in tensors)


def vector(size: int, there: bool = True) -> Iterator[Tensor]:
    """A norm's weight, a bias, anything of one number a channel; nothing where it is not there."""
    if there and size:
        yield Tensor(VECTOR, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One matrix, perhaps with a bias, that stands outside the usual halves of a block."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    once: bool = False
    """It runs once a sequence, not for each of its tokens."""

    def tensors(self) -> Iterator[Tensor]:
        yield Tensor(self.name, self.outputs, self.inputs)
        yield from vector(self.outputs, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """Learned rows that are looked up or added: positions, token types, classes; one row is a vector."""

    name: str
    width: int
    rows: int = 1

    def tensors(self) -> Iterator[Tensor]:
        yield Tensor(VECTOR if self.rows == 1 else self.name, self.rows, self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLayer:
    """`kernel` is the number of places it looks at: 14 x 14 for a patch of an image."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    groups: int = 1
    bias: bool = False
    stride: int = 1
    """Steps between two results; patches of an image stand edge to edge, and are counted as they come out."""

    def tensors(self) -> Iterator[Tensor]:
        yield Tensor(self.name, self.outputs, self.inputs // self.groups * self.kernel)
        yield from vector(self.outputs, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm outside the blocks."""

    name: str
    width: int
    bias: bool = False

    def tensors(self) -> Iterator[Tensor]:
        yield from vector(self.width * (1 + self.bias))


@dataclass(frozen=True, slots=True, kw_only=True)
class Modulation:
    """Learned shifts, scales and gates, to which those of a sample's time are added."""

    name: str
    width: int
    rows: int = 6

    def tensors(self) -> Iterator[Tensor]:
        yield Tensor(VECTOR, self.rows, self.width)


Part = Linear | Embedding | ConvolutionLayer | Norm | Modulation
"""What stands before, between or after blocks and is not one of their halves."""


def part_tensors(parts: Iterable[Part]) -> Iterator[Tensor]:
    for part in parts:
        yield from part.tensors()
