"""Mixers that keep a state of fixed size: state spaces, linear attention, convolutions over the last few tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.layers import paged
from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.mixer_ops import Mixing, Phase, Scan
from gnomon.graph.ops import Rows
from gnomon.graph.sizes import DECODES, PROMPT_TOKENS, TOKENS
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import GatedDelta, LightningAttention, Mamba, Mamba2, ShortConvolution

SCALAR = 2
"""Values of the stream's format that one fp32 number takes."""
MAMBA_CHUNK = 2048
"""Tokens that a thread block of the first Mamba's scan takes at once."""
DELTA_CHUNK = 64
"""Tokens that the kernels of the delta rule take at once."""


def mamba(writer: Writer, shape: Mamba, read: str) -> Iterator[TapeNode]:
    """The step and both state vectors are made of all channels, so ranks sum their parts of them."""
    inner, hidden, made = shape.inner // writer.cut.tp, writer.model.hidden, shape.dt_rank + 2 * shape.state
    read = yield from writer.enter("mamba", read)
    yield writer.linear("mamba.in", "in", read, {"x": inner, "z": inner}, hidden, bias=shape.bias)
    yield from convolve(writer, "mamba", "x", inner, shape.conv, inner * shape.conv_bias)
    yield writer.linear("mamba.step", "step", "x.conv", {"step": made}, inner)
    yield from writer.all_reduce("mamba.step_all_reduce", made)
    step = "step"
    if shape.norms:
        norm = writer.style.lone_norm or writer.style.norm
        normed = writer.elementwise("mamba.step_norm", norm, made, ("step",), {"step.normed": made}, True)
        yield replace(normed, parameters=float(made))
        step = "step.normed"
    yield writer.linear("mamba.step_up", "step_up", step, {"dt": inner}, shape.dt_rank, bias=True)
    own = inner * (shape.state + 1.0)  # decays, and what skips the state
    yield from scan(writer, "mamba", ("x.conv", step, "dt", "z"), (inner, 1, shape.state, 1, MAMBA_CHUNK), own)
    yield writer.linear("mamba.out", "out", "mixed", {"attended": hidden}, inner, bias=shape.bias)


def mamba2(writer: Writer, shape: Mamba2, read: str) -> Iterator[TapeNode]:
    """Heads are cut, and groups with them; a single group is copied."""
    tp, hidden = writer.cut.tp, writer.model.hidden
    heads, groups = shape.heads // tp, max(1, shape.groups // tp)
    inner = heads * shape.head_dim
    mixed = inner + 2 * groups * shape.state
    read = yield from writer.enter("mamba", read)
    widths = {"z": inner, "x": mixed, "dt": heads}
    yield writer.linear("mamba.in", "in", read, widths, hidden, bias=shape.bias)
    yield from convolve(writer, "mamba", "x", mixed, shape.conv, mixed * shape.conv_bias)
    sizes = (heads, shape.head_dim, shape.state, groups, shape.chunk)
    yield from scan(writer, "mamba2", ("x.conv", "dt"), sizes, 3.0 * heads)
    gate = writer.elementwise("mamba.gate", writer.style.product, inner, ("mixed", "z"), {"gated": inner}, True)
    yield replace(gate, parameters=float(inner * shape.norm))
    if shape.norm and shape.groups == 1:
        # A norm over all channels: the ranks sum their squares.
        yield from writer.all_reduce("mamba.norm_all_reduce", SCALAR)
    yield writer.linear("mamba.out", "out", "gated", {"attended": hidden}, inner, bias=shape.bias)


def gated_delta(writer: Writer, shape: GatedDelta, read: str) -> Iterator[TapeNode]:
    tp, hidden, heads = writer.cut.tp, writer.model.hidden, shape.value_heads // writer.cut.tp
    values, mixed = heads * shape.value_dim, shape.conv_width // tp
    read = yield from writer.enter("delta", read)
    yield writer.linear("delta.in", "in", read, {"x": mixed, "z": values}, hidden)
    yield writer.linear("delta.decay", "decay", read, {"decay": 2 * heads}, hidden)
    yield from convolve(writer, "delta", "x", mixed, shape.conv)
    # Queries and keys get the length one; decodes do so in the kernel of the state.
    prepared = writer.elementwise(
        "delta.prepare",
        writer.style.lone_norm or writer.style.norm,
        mixed,
        ("x.conv",),
        {"x.unit": mixed},
        True,
        _prompts(writer),
    )
    yield prepared
    sizes = (heads, shape.value_dim, shape.key_dim, shape.key_heads // tp, DELTA_CHUNK)
    yield from scan(writer, "gated_delta", ("x.unit", "decay"), sizes, 2.0 * heads)
    gate = writer.elementwise("delta.gate", writer.style.product, values, ("mixed", "z"), {"gated": values}, True)
    yield replace(gate, parameters=float(shape.value_dim))
    yield writer.linear("delta.out", "out", "gated", {"attended": hidden}, values)


def lightning(writer: Writer, shape: LightningAttention, read: str) -> Iterator[TapeNode]:
    hidden, heads = writer.model.hidden, shape.heads // writer.cut.tp
    inner, style = heads * shape.head_dim, writer.style
    read = yield from writer.enter("lightning", read)
    yield writer.linear("lightning.in", "in", read, {"x": 3 * inner}, hidden)
    # Serving engines widen to fp32, then bend.
    bend = Stream(3, 4, 0, 0) if writer.cut.paged else style.plain
    yield writer.elementwise("lightning.activation", bend, 3 * inner, ("x",), {"bent": 3 * inner}, True)
    yield from scan(writer, "lightning", ("bent",), (heads, shape.head_dim, shape.head_dim, heads, shape.block))
    norm = style.lone_norm or style.norm
    normed = writer.elementwise("lightning.norm", norm, inner, ("mixed",), {"mixed.normed": inner}, True)
    yield replace(normed, parameters=float(inner))
    yield from writer.all_reduce("lightning.norm_all_reduce", SCALAR)
    yield writer.linear("lightning.out_gate", "out_gate", read, {"z": inner}, hidden)
    yield writer.elementwise("lightning.gate", style.product, inner, ("mixed.normed", "z"), {"gated": inner}, True)
    yield writer.linear("lightning.out", "out", "gated", {"attended": hidden}, inner)


def short_convolution(writer: Writer, shape: ShortConvolution, read: str) -> Iterator[TapeNode]:
    channels, hidden, product = shape.width // writer.cut.tp, writer.model.hidden, writer.style.product
    read = yield from writer.enter("conv", read)
    widths = dict.fromkeys(("b", "c", "x"), channels)
    yield writer.linear("conv.in", "in", read, widths, hidden, bias=shape.bias)
    yield writer.elementwise("conv.gate", product, channels, ("b", "x"), {"bx": channels}, True)
    yield from convolve(writer, "conv", "bx", channels, shape.conv, channels * shape.bias)
    yield writer.elementwise("conv.out_gate", product, channels, ("c", "bx.conv"), {"gated": channels}, True)
    yield writer.linear("conv.out", "out", "gated", {"attended": hidden}, channels, bias=shape.bias)


def convolve(writer: Writer, part: str, read: str, width: int, taps: int, biases: int = 0) -> Iterator[TapeNode]:
    """Whole sequences and prompts stream through; a decode reads and writes the tokens that are kept, too."""
    if writer.cut.paged:
        yield paged.moved(writer, f"{part}.conv.prefill", width, 1, 1, PROMPT_TOKENS)
        yield paged.moved(writer, f"{part}.conv.decode", width, taps, taps, DECODES)
        return
    node = writer.elementwise(f"{part}.conv", writer.style.conv, width, (read,), {f"{read}.conv": width}, True)
    yield replace(node, parameters=float(width * taps + biases))


def _prompts(writer: Writer) -> Rows:
    return PROMPT_TOKENS if writer.cut.paged else TOKENS


def scan(
    writer: Writer,
    mixer: Mixing,
    reads: tuple[str, ...],
    sizes: tuple[int, int, int, int, int],
    parameters: float = 0.0,
) -> Iterator[TapeNode]:
    """A state through the tokens, to `mixed`. `sizes` are heads, channels of a head, channels of its state, groups and
    tokens of a chunk; the state of each chunk is computed again for the gradient."""
    heads, head_dim, state_dim, groups, chunk = sizes
    how = writer.cut.paged

    def one(name: str, phase: Phase, state_dtype: str) -> Scan:
        return Scan(
            name=name, phase=phase, mixer=mixer, heads=heads, head_dim=head_dim, state_dim=state_dim, groups=groups,
            chunk=chunk, state_dtype=state_dtype,
        )  # fmt: skip

    if how:
        yield from bare(one("scan.prefill", "prefill", how.state_dtype), one("scan.decode", "decode", how.state_dtype))
        return
    # The delta rule saves the inverse of every chunk (flash-linear-attention 0.4).
    saved = ("inverse",) if mixer == "gated_delta" else ()
    writer.sizes |= {"mixed": heads * head_dim * writer.value, "inverse": heads * chunk * writer.value}
    yield TapeNode(
        name="mixer.scan",
        forward=(one("mixer.scan", "prefill", "fp32"),),
        reads=reads,
        writes=("mixed", *saved),
        keeps=(*reads, *saved),
        parameters=parameters,
    )
