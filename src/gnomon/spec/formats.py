"""How a matrix is stored: values of some bits, and the scales that a block of them shares."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0}
MULTIPLIED = ("tf32",)
"""Formats that GEMMs run in and no weights are stored in: values of fp32, read with fewer bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A number format of weights. `block` is the rows and columns that share a scale; 0 stands for all of them."""

    name: str
    bits: float
    block: tuple[int, int] = (0, 0)
    scale_bits: float = 0.0
    zero_bits: float = 0.0
    """Of the point that stands for zero, one a scale, where the format is not symmetric."""
    tensor_bits: float = 0.0
    """Of what a matrix keeps once, such as a scale over its scales."""
    activations: str = ""
    """The format in which inputs meet these weights, where they are narrowed too."""
    static: bool = False
    """Whether the checkpoint holds the scale of the inputs; else each step finds one."""
    kernel: str = ""
    """The kernel that an engine runs it with, where a chip has several (`graph.dtypes.KERNEL`)."""
    padded_to: tuple[int, int] = (1, 1)
    """Of experts: the multiples that this kernel pads their inner and hidden channels to."""

    def bytes(self, rows: int, columns: int) -> float:
        """A matrix with its scales. Blocks at the edge have a scale of their own; a matrix of nothing has none."""
        down, across = (size or max(whole, 1) for size, whole in zip(self.block, (rows, columns), strict=True))
        scales = -(-rows // down) * -(-columns // across)
        return (rows * columns * self.bits + scales * (self.scale_bits + self.zero_bits) + self.tensor_bits) / 8


def plain(name: str) -> Format:
    """A format without scales."""
    return Format(name=name, bits=PLAIN_BITS[name])


MXFP4 = Format(name="mxfp4", bits=4, block=(1, 32), scale_bits=8)
NVFP4 = Format(name="nvfp4", bits=4, block=(1, 16), scale_bits=8, tensor_bits=64, activations="nvfp4")
"""One fp8 scale for sixteen values, and two fp32 numbers for the matrix: a scale over the scales, and the input's."""
NARROW = {
    "fp8": Format(name="fp8", bits=8, scale_bits=32, activations="fp8"),
    "int8": Format(name="int8", bits=8, block=(1, 0), scale_bits=32, activations="int8"),
    "int4": Format(name="int4", bits=4, block=(1, 128), scale_bits=16),
    "mxfp4": MXFP4,
    "nvfp4": NVFP4,
}
"""What a name alone stands for: the usual way to quantise a whole network so. fp8 has a scale a matrix, as engines
make it when they load; int8 a scale a row, with inputs in int8 too; int4 a scale for 128 values (GPTQ's usual)."""


OF_TECHNIQUES = ("int6", "int5", "int3", "int2", "int1", "bf16-sparse", "fp8-sparse", "int8-sparse")
"""Formats whose GEMM kernels a technique brings: no engine has them."""


Formats = tuple[tuple[str, Format], ...]
"""Roles of matrices with their format; a role that is not there is stored as what is not quantised is."""
