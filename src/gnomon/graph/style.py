"""How an engine carries out the small operators between matrix products: its kernels and what they keep."""

from __future__ import annotations

from dataclasses import dataclass

STREAMING_EFFICIENCY = 0.8
"""Kernels below this pace wait for their own instructions, not for memory, and gain nothing from a cache."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Traffic of an elementwise operator, in values read and written a value of its width, forward and backward.

    `kernels` and `gradient_kernels` are how many launches that traffic is spread over, `pace` and `gradient_pace` how
    fast they stream beside a plain kernel.
    """

    reads: float
    writes: float
    gradient_reads: float
    gradient_writes: float
    kernels: int = 1
    gradient_kernels: int = 1
    efficiency: float = 1.0
    gradient_efficiency: float = 1.0

    @classmethod
    def chain(cls, *kernels: tuple[float, float, float], small: int = 0) -> Stream:
        """Kernels one after the other, forward only, by values read, values written and pace: as many bytes in as many
        seconds. `small` more move next to nothing."""
        reads, writes = (sum(kernel[side] for kernel in kernels) for side in (0, 1))
        seconds = sum((read + written) / efficiency for read, written, efficiency in kernels)
        return cls(reads, writes, 0, 0, len(kernels) + small, efficiency=(reads + writes) / seconds)


NOTHING, POINTWISE = Stream(0, 0, 0, 0), Stream(1, 1, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStyle:
    """An engine's kernels for one layer. Formats are of activations and of the gradient a weight product writes."""

    norm: Stream
    rope: Stream
    residual: Stream
    gated: Stream
    plain: Stream
    loss: Stream
    """Of the fp32 logits, in values of the working format."""
    embedding: Stream
    """Its backward pace is that of the table of gradients, most of which stays zero."""
    widen: Stream = Stream(1, 2, 2, 1)
    """Logits to fp32, and their gradient back."""
    softmax: Stream | None = None
    """Attention as products and a softmax of its own; None where one kernel does all of it."""
    dropout: Stream | None = None
    """After the softmax and before each residual, leaving a mask of one byte a value; None where there is none."""
    product: Stream = Stream(2, 1, 3, 2, 1, 2)
    """Of a gate and what it lets through, where that is a kernel of its own."""
    total: Stream = Stream(2, 1, 0, 0)
    """Of two gradients of one tensor."""
    joined: bool = True
    """Queries, keys and values are one product, and so are gate and up."""
    fused_activation: bool = True
    """A gated activation and its product are one kernel, which keeps its inputs only."""
    gradient_dtype: str = "bf16"
    stop_early: bool = False
    """Full recomputation ends with the last tensor that a gradient needs: the last product is not run again."""
    keeps_gathered: bool = False
    """With sequence parallelism, what a product read stays whole; else its part stays and is gathered again."""
    overlap_by_weight: bool = True
    """Collectives of the backward pass run beside the weight products."""
