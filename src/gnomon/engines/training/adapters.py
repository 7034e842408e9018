"""How an engine trains low-rank adapters: two thin matrices beside each frozen one, down to a rank and up again."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.graph.style import KernelStyle, Stream

MULTIPLIED = Stream(1, 1, 4, 2, 1, 3)
"""A multiplication with a vector, by plain kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStyle:
    """What the engine's library of adapters does beside the two GEMMs."""

    library: str
    kernels: KernelStyle | None = None
    """Of the network, where frozen weights stand in another format than trained ones; None where it is the same."""
    frozen_bytes: float = 2.0
    """Of a frozen weight that is not quantised, at rest."""
    casts_input: bool = False
    """Adapters are in fp32 under autocast: each widens its input and narrows it again, and saves that copy."""
    scales_result: bool = True
    """The scale is multiplied with what comes up again; else with the few values between the matrices."""
    gathers: bool = False
    """With tensor parallelism the first matrix is sharded by its rank or by its input and the second by its result,
    each with a collective of its own (Megatron); else partial results go with those of the frozen matrix."""
    keeps_gathered: bool = False
    """With sequence parallelism an adapter saves its gathered input, and the rank's own part of it stays with the
    matrix that gathered it: re-gathering it instead saves all of what was gathered (Megatron-Bridge's memory notes,
    4.73 GB of 36 layers x 8,192 tokens). Else it saves what the frozen matrix would."""
    head: bool = False
    """The head, as a linear layer among others, has an adapter too."""
    shared_by_experts: bool = False
    """The experts of a rank have one adapter together; else none, as their weights are no linear layers."""
    nf4: str = ""
    """The library whose 4-bit weights it trains beside; empty where it has none."""
    nf4_casts_input: bool = False
    """Whether `casts_input` holds beside 4-bit weights too."""
    nf4_clones: bool = False
    """What a 4-bit matrix gives is copied before the adapter's result is added."""
    magnitudes: Stream = MULTIPLIED
    """The multiplication of a result with a vector of magnitudes: backward with the vector again, with what was
    multiplied, and that summed over tokens."""
    strided: float = 1.0
    """Throughput of the kernel that adds the product of the adapters to the matrix, which may lie the other way."""
    dora_saves: int = 0
    """Results of a matrix that an adapter with magnitudes saves: their sum, or each of both, where magnitudes multiply
    them apart and the product of the adapters is taken of an identity (PEFT); 0 where there are none."""
