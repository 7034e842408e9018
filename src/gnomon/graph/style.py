"""How an engine runs the small operators between GEMMs: its kernels and what they save."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnomon.graph.gemm_recipes import DELAYED, GemmRecipe

STREAMING_EFFICIENCY = 0.8
"""Kernels below this efficiency are bound by their own instructions, not by memory, and gain nothing from a cache."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Traffic of an elementwise operator, in values read and written per value of its width, forward and backward.

    `kernels` and `gradient_kernels` are how many launches that traffic is spread over, `efficiency` and
    `gradient_efficiency` their throughput relative to a plain kernel.
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
        """Kernels one after the other, forward only, by values read, values written and efficiency: as many bytes in as
        many seconds. `small` more move next to nothing."""
        reads, writes = (sum(kernel[side] for kernel in kernels) for side in (0, 1))
        seconds = sum((read + written) / efficiency for read, written, efficiency in kernels)
        return cls(reads, writes, 0, 0, len(kernels) + small, efficiency=(reads + writes) / seconds)

    def gradient(self, *kernels: tuple[float, float, float], small: int = 0) -> Stream:
        """With the kernels of its gradient, written as for `chain`."""
        back = Stream.chain(*kernels, small=small)
        return replace(
            self, gradient_reads=back.reads, gradient_writes=back.writes, gradient_kernels=back.kernels,
            gradient_efficiency=back.efficiency,
        )  # fmt: skip

    @property
    def backward(self) -> Stream:
        """Traffic of its gradient."""
        kernels, efficiency = self.gradient_kernels, self.gradient_efficiency
        return Stream(self.gradient_reads, self.gradient_writes, 0, 0, kernels, efficiency=efficiency)


NOTHING, POINTWISE = Stream(0, 0, 0, 0), Stream(1, 1, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStyle:
    """An engine's kernels for one layer. Formats are of activations and of the gradient that a GEMM by weight
    writes."""

    norm: Stream
    rope: Stream
    residual: Stream
    gated: Stream
    plain: Stream
    loss: Stream
    """Of the fp32 logits, in values of the working format."""
    embedding: Stream
    """Its backward efficiency is that of the table of gradients, most of which stays zero."""
    widen: Stream = Stream(1, 2, 2, 1)
    """Logits to fp32, and their gradient back."""
    softmax: Stream | None = None
    """Attention as matmuls and a separate softmax; None where one kernel does all of it."""
    recipe: GemmRecipe = DELAYED
    """How operands of GEMMs are narrowed, in plans of eight bits or fewer."""
    late_transpose: bool = False
    """An operand is cast along its rows alone, and again for the GEMM by weight, or that copy transposed, by a kernel
    of its own; else one kernel writes both."""
    merged: Stream | None = None
    """Ring attention takes a kernel of its own for each block of keys, which every query head has for itself, and
    merges its result and its gradients in fp32 with those before it: of each further block, per value of the result.
    None where the attention kernel goes on with what it has."""
    queries_travel: bool = False
    """Ring attention leaves keys and values where they are: queries travel one way around the ring, and partial results
    with the sums of their softmax return the other way at the same time."""
    dropout: Stream | None = None
    """After the softmax and before each residual, leaving a mask of one byte per value; None where there is none."""
    product: Stream = Stream(2, 1, 3, 2, 1, 2)
    """The multiplication of a gate and its input, where that is a separate kernel."""
    total: Stream = Stream(2, 1, 0, 0)
    """The sum of two gradients of one tensor."""
    joined: bool = True
    """Queries, keys and values are one GEMM, and so are gate and up."""
    fused_activation: bool = True
    """A gated activation and its multiplication are one kernel, which saves its inputs only."""
    compiled: bool = False
    """Whether a technique had torch.compile join kernels that the engine leaves apart."""
    gradient_dtype: str = "bf16"
    alternate_gemms: bool = False
    """Selective recomputation saves the result of every second GEMM with weights, and recomputes the others."""
    stop_early: bool = False
    """Full recomputation ends with the last tensor that a gradient needs: the last GEMM is not recomputed."""
    norm_saves: float | None = None
    """Values that a norm written as plain operators saves per value, instead of its input: a wide copy of that, and
    what it multiplies its weight with. None where one kernel does all of it."""
    wide_stream: bool = False
    """The residual stream and norms are fp32, and every GEMM that reads them saves a narrow copy of its own (autocast
    over fp32 weights)."""
    fused_loss: bool = False
    """One kernel takes the loss of the logits as they are, and leaves their gradient in their place."""
    loss_in_place: bool = True
    """It does the latter; else the gradient of the logits is beside them."""
    holds_logits: bool = False
    """The logits in the working format live until the loss is computed from their fp32 copy."""
    lone_norm: Stream | None = None
    """A norm that adds nothing to the stream first: of latents, heads, and behind the halves of a layer; None where it
    is as the others."""
    head_norm: Stream | None = None
    """A norm over each head; None where it is as the others."""
    last_norm: Stream | None = None
    """The norm before the head; None where it is as the others."""
    rope_in_place: bool = False
    """Channels that do not turn are not touched."""
    conv: Stream = Stream(1, 1, 2, 1)
    """A convolution over the last few tokens, with its activation."""
    by_row: bool = False
    """One thread block takes a whole row, as norms and fused activations of serving engines do."""
    joined_down: bool = False
    """Latent attention projects queries, keys and values down in one GEMM."""
    keeps_gathered: bool = False
    """With sequence parallelism, the gathered input of a GEMM is saved; else its shard is saved and gathered again."""
    overlap_by_weight: bool = True
    """Collectives of the backward pass overlap with the GEMMs by weight."""
    modulate: Stream = Stream(1, 1, 2, 1)
    """A shift and a scale of a sample, on all its tokens."""
    scaled: Stream = Stream(1, 1, 2, 1)
    """A gate or a scale, one number for all tokens of a sample."""
    beside_attention: Stream = NOTHING
    """What the code around attention moves besides, in values per value of its queries."""
    kept_source: Stream = NOTHING
    """What keys and values of a source are moved by to be kept, in values per value of theirs."""
    masked: bool = False
    """Scores get a mask added, which takes a kernel that reads it."""
    skips_windows: bool = True
    """Kernels skip what is outside a sliding window; else it is masked."""
    window_mask: Stream = NOTHING
    """What makes that mask for each layer, in values per pair of tokens."""
    attention_efficiency: float = 1.0
    masked_efficiency: float = 1.0
    """Throughput of attention relative to the profile's, without and with a mask."""
    attention_gradient_efficiency: float | None = None
    """That of its gradient, where it is another."""
    uncached: float = 0.0
    """Kernels below this efficiency are bound by their own instructions and gain nothing from a cache."""
    choose: Stream | None = None
    """From a router's scores to the order of rows, in values per score; None where one kernel does it."""
    choice_bytes: float = 0.0
    """What that saves of each expert that a token visits, beside shares of all experts."""
    permute: Stream | None = None
    """Rows into the order of experts, in values per row; None where a kernel moves each once, both ways."""
    unpermute: Stream | None = None
    """And back, where a token's rows are added up, weighed with their shares, for which what experts give is saved;
    None where a kernel does it, and shares are multiplied in with the activation."""
    scattered: float | None = None
    """Throughput relative to memory where the rows of a token are added up by atomics, forward in `unpermute` and in
    the gradient of `permute`: so it is done for experts that have as many rows in every step. None where they are added
    up as above."""
    routing_kernels: tuple[int, int] = (0, 0)
    """Small kernels of a router and a dispatcher beside those that are priced by their bytes: forward, and of their
    gradients."""
    separate_experts: bool = False
    """Each expert has GEMMs and casts of its own, which the host launches one by one; else one kernel has all."""
    awaits_counts: bool = False
    """The host waits for how many rows each expert gets, where that follows from the tokens."""
    routes_once: bool = False
    """A token is sent to another node once for all experts it visits there, and handed on inside (DeepEP); else a copy
    for each expert crosses."""


SERVED = KernelStyle(
    norm=Stream(2, 2, 0, 0),
    lone_norm=POINTWISE,
    last_norm=Stream(2, 1, 0, 0),
    rope=POINTWISE,
    rope_in_place=True,
    residual=NOTHING,
    gated=Stream(2, 1, 0, 0),
    plain=POINTWISE,
    conv=POINTWISE,
    product=Stream(2, 1, 0, 0),
    loss=NOTHING,
    embedding=POINTWISE,
    joined_down=True,
    by_row=True,
)
"""Serving engines' kernels: a residual is added in the norm behind it, and what reads the same input is one GEMM."""


def compiled(eager: KernelStyle) -> KernelStyle:
    """Chains of elementwise operators as one kernel each, norms with the residual before them."""
    return replace(
        eager,
        norm=Stream(1, 1, 4, 1, 1, 2),
        rope=Stream(1, 1, 1, 1),
        residual=Stream(2, 1, 0, 0),
        gated=Stream(2, 1, 3, 2),
        plain=Stream(1, 1, 2, 1),
        total=Stream(2, 1, 0, 0),
        fused_activation=True,
    )
