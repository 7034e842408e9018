"""A video decoder of spatial and temporal residual blocks, whole or by slices, and a walk that predicts its memory.

Frames are [frames, channels, rows, columns]. A spatial block sees one frame at a time, so slices of frames give the
same; a temporal block sees one place at a time but for its norms, whose sums are taken over all places first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from gnomon.lab.base import BF16_BYTES
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.launches import Tally
from gnomon.lab.priced import conv_s

LATENT, COLOURS = 4, 3
BLOCKS, MIDDLE = 3, 2
"""Residual blocks of a level, and before the first."""
GROUPS, EPSILON = 32, 1e-6
MIX = 0.5
"""Share of a block's spatial part in its output, which training finds."""
LEVELS = ((4, 4), (4, 4), (4, 2), (2, 1))
"""Channels that enter and leave each, in base channels; resolution doubles between them."""
FIRST, BLOCK, UP, LAST = "first", "block", "up", "last"


@dataclass(frozen=True, slots=True)
class Piece:
    kind: str
    inputs: int
    outputs: int
    scale: int
    """Of the resolution of the latents, that it is given."""


def pieces(base: int) -> Iterator[Piece]:
    """The decoder in order."""
    widest = LEVELS[0][0] * base
    yield Piece(FIRST, LATENT, widest, 1)
    for _ in range(MIDDLE):
        yield Piece(BLOCK, widest, widest, 1)
    for level, (inputs, outputs) in enumerate(LEVELS):
        scale = 2**level
        for place in range(BLOCKS):
            yield Piece(BLOCK, (outputs if place else inputs) * base, outputs * base, scale)
        if level < len(LEVELS) - 1:
            yield Piece(UP, outputs * base, outputs * base, scale)
    yield Piece(LAST, base, COLOURS, 2 ** (len(LEVELS) - 1))


def shapes(piece: Piece) -> dict[str, tuple[int, ...]]:
    """Weights of convolutions, and channels of norms."""
    inputs, outputs = piece.inputs, piece.outputs
    over_time = (outputs, outputs, 3, 1, 1)
    found: dict[str, tuple[int, ...]] = {"conv": (outputs, inputs, 3, 3)}
    if piece.kind == BLOCK:
        found |= {"norm": (inputs,), "second_norm": (outputs,), "second": (outputs, outputs, 3, 3)}
        found |= {"time_norm": (outputs,), "time": over_time, "second_time_norm": (outputs,), "second_time": over_time}
        found |= {"shortcut": (outputs, inputs, 1, 1)} if inputs != outputs else {}
    if piece.kind == LAST:
        found |= {"norm": (inputs,), "time": over_time}
    return found


def parameters(base: int) -> int:
    return sum(prod(shape) + shape[0] for piece in pieces(base) for shape in shapes(piece).values())


@dataclass(frozen=True, slots=True)
class VideoDecoder:
    """The network; weights [piece, name] are drawn."""

    torch: Any
    weights: Sequence[Mapping[str, Any]]
    kinds: tuple[str, ...]

    @classmethod
    def drawn(cls, bench: Bench, base: int, dtype: Any) -> VideoDecoder:
        generator = bench.generator(SEED + 51)

        def pair(shape: tuple[int, ...]) -> tuple[Any, Any]:
            """Of a convolution weights and biases, of a norm gains and shifts."""
            if len(shape) == 1:
                gain, shift = (bench.normal(*shape, dtype=dtype, generator=generator, scale=0.1) for _ in range(2))
                return 1 + gain, shift
            scale = prod(shape[1:]) ** -0.5
            weight = bench.normal(*shape, dtype=dtype, generator=generator, scale=scale)
            return weight, bench.normal(shape[0], dtype=dtype, generator=generator, scale=0.1)

        found = [{name: pair(shape) for name, shape in shapes(piece).items()} for piece in pieces(base)]
        return cls(bench.torch, found, tuple(piece.kind for piece in pieces(base)))

    def conv(self, x: Any, weight: tuple[Any, Any]) -> Any:
        functional = self.torch.nn.functional
        if weight[0].dim() == 5:
            return functional.conv3d(x, *weight, padding=(1, 0, 0))
        return functional.conv2d(x, *weight, padding=weight[0].shape[-1] // 2)

    def normed(self, x: Any, weight: tuple[Any, Any]) -> Any:
        """A group norm and its activation."""
        x = self.torch.nn.functional.group_norm(x, GROUPS, *weight, eps=EPSILON)
        return self.torch.nn.functional.silu(x)

    def spatial(self, x: Any, made: Mapping[str, Any]) -> Any:
        h = self.conv(self.normed(x, made["norm"]), made["conv"])
        h = self.normed(h, made["second_norm"])
        h = self.conv(h, made["second"])
        return h + (self.conv(x, made["shortcut"]) if "shortcut" in made else x)

    def temporal(self, x: Any, made: Mapping[str, Any]) -> Any:
        h = self.conv(self.normed(x.transpose(0, 1)[None], made["time_norm"]), made["time"])
        h = self.normed(h, made["second_time_norm"])
        h = self.conv(h, made["second_time"])
        h = x + h[0].transpose(0, 1)
        return MIX * x + (1 - MIX) * h

    def up(self, x: Any, made: Mapping[str, Any]) -> Any:
        return self.conv(self.torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"), made["conv"])

    def last(self, x: Any, made: Mapping[str, Any]) -> Any:
        return self.conv(self.normed(x, made["norm"]), made["conv"])

    def timed(self, x: Any, made: Mapping[str, Any]) -> Any:
        """The last convolution, over time."""
        return self.conv(x.transpose(0, 1)[None], made["time"])[0].transpose(0, 1)

    def whole(self, x: Any) -> Any:
        for kind, made in zip(self.kinds, self.weights, strict=True):
            if kind == FIRST:
                x = self.conv(x, made["conv"])
            elif kind == BLOCK:
                x = self.spatial(x, made)
                x = self.temporal(x, made)
            elif kind == UP:
                x = self.up(x, made)
            else:
                x = self.last(x, made)
                x = self.timed(x, made)
        return x

    def sliced(self, x: Any, count: int) -> Any:
        """The same in so many slices, of frames or of rows: only what enters and leaves a chain is whole."""
        for kind, made in zip(self.kinds, self.weights, strict=True):
            if kind == FIRST:
                x = self.conv(x, made["conv"])
            elif kind == BLOCK:
                x = self._by_frames(x, self.spatial, made, count, 1)
                x = self._by_rows(x, made, count)
            elif kind == UP:
                x = self._by_frames(x, self.up, made, count, 2)
            else:
                x = self._by_frames(x, self.last, made, count, 1)
                x = self.timed(x, made)
        return x

    def _by_frames(self, x: Any, run: Any, made: Mapping[str, Any], count: int, scale: int) -> Any:
        frames, _, rows, columns = x.shape
        out = x.new_empty(frames, made["conv"][0].shape[0], scale * rows, scale * columns)
        for part in parts(frames, count):
            out[part] = run(x[part], made)
        return out

    def _by_rows(self, x: Any, made: Mapping[str, Any], count: int) -> Any:
        """The temporal block; its output takes the place of x."""
        inner = self.torch.empty_like(x)
        scaled = self._scaled(x, made["time_norm"])
        for part in parts(x.shape[2], count):
            inner[:, :, part] = self._over_time(x[:, :, part], scaled, made["time"])
        scaled = self._scaled(inner, made["second_time_norm"])
        for part in parts(x.shape[2], count):
            h = self._over_time(inner[:, :, part], scaled, made["second_time"])
            x[:, :, part].add_(h, alpha=1 - MIX)
        return x

    def _over_time(self, x: Any, scaled: tuple[Any, Any], weight: tuple[Any, Any]) -> Any:
        scale, shift = scaled
        x = self.torch.addcmul(shift, x, scale).to(x.dtype)
        return self.conv(self.torch.nn.functional.silu(x, inplace=True).transpose(0, 1)[None], weight)[0].transpose(
            0, 1
        )

    def _scaled(self, x: Any, weight: tuple[Any, Any]) -> tuple[Any, Any]:
        """What a group norm over all frames and places multiplies each channel by and adds to it: its sums are taken
        frame by frame."""
        torch, channels = self.torch, x.shape[1]
        wide = x.dtype if x.dtype == torch.float64 else torch.float32
        each = [torch.var_mean(frame.view(GROUPS, -1).to(wide), 1, correction=0) for frame in x]
        variances, means = (torch.stack([one[i] for one in each]) for i in range(2))
        variance = variances.mean(0) + means.var(0, correction=0)
        scale = (variance + EPSILON).rsqrt().repeat_interleave(channels // GROUPS) * weight[0].to(wide)
        shift = weight[1].to(wide) - means.mean(0).repeat_interleave(channels // GROUPS) * scale
        return scale[:, None, None], shift[:, None, None]


def parts(size: int, count: int) -> list[slice]:
    each = -(-size // count)
    return [slice(start, min(start + each, size)) for start in range(0, size, each)]


@dataclass(slots=True)
class Walk:
    """Seconds and live bytes of a decoder without running it. `turns`: convolutions have a workspace in which their
    input and output lie channels last, as cuDNN's kernels take them; `fused`: norms, activations and sums are one
    kernel each, with nothing between them."""

    tally: Tally
    turns: bool
    fused: bool = False
    live: float = 0.0
    peak: float = 0.0

    def make(self, size: float, beside: float = 0.0) -> float:
        """So many bytes that stay, others for a moment."""
        self.live += size
        self.peak = max(self.peak, self.live + beside)
        return size

    def drop(self, *sizes: float) -> None:
        self.live -= sum(sizes)

    def conv(self, places: float, inputs: int, outputs: int, taps: int) -> float:
        given, made = BF16_BYTES * places * inputs, BF16_BYTES * places * outputs
        turned = given + made if self.turns and taps > 1 else 0.0
        self.tally.device_s += conv_s(self.tally.machine, round(places), outputs, inputs, taps, turned=turned)
        if not self.fused:
            self.tally.stream(made, made)  # the bias
        return self.make(made, turned)

    def normed(self, size: float, copied: float = 0.0) -> float:
        """A norm and its activation; `copied` where its input does not lie as it takes it."""
        self.tally.stream(size, 0.0)
        self.tally.stream(size, size)
        if self.fused:
            return self.make(size)
        if copied:
            self.tally.stream(copied, copied)
        self.tally.stream(size, size)
        normed = self.make(size, copied)
        found = self.make(size)
        self.drop(normed)
        return found

    def spatial(self, places: float, piece: Piece) -> float:
        """From an input that is live; leaves its output."""
        given, made = BF16_BYTES * places * piece.inputs, BF16_BYTES * places * piece.outputs
        first = self.normed(given)
        h = self.conv(places, piece.inputs, piece.outputs, 9)
        self.drop(first)
        second = self.normed(made)
        self.drop(h)
        h = self.conv(places, piece.outputs, piece.outputs, 9)
        self.drop(second)
        beside = self.conv(places, piece.inputs, piece.outputs, 1) if piece.inputs != piece.outputs else 0.0
        self.tally.stream(2 * made, made)
        found = self.make(made)
        self.drop(h, beside)
        return found

    def temporal(self, places: float, channels: int) -> float:
        size = BF16_BYTES * places * channels
        first = self.normed(size, copied=size)
        h = self.conv(places, channels, channels, 3)
        self.drop(first)
        second = self.normed(size)
        self.drop(h)
        h = self.conv(places, channels, channels, 3)
        self.drop(second)
        if self.fused:
            self.tally.stream(2 * size, size)
        else:
            for reads in (2, 1, 1, 2):
                self.tally.stream(reads * size, size)
            self.make(size)
            self.drop(h)
            h = size + self.make(size) + self.make(size)
        found = self.make(size)
        self.drop(h)
        return found

    def over_time(self, places: float, channels: int) -> float:
        """A slice of rows: scaled in fp32, narrowed, activated in place, a convolution."""
        size = BF16_BYTES * places * channels
        for read, written in ((1, 2), (2, 1), (1, 1)):
            self.tally.stream(read * size, written * size)
        wide = self.make(2 * size)
        narrow = self.make(size)
        self.drop(wide)
        found = self.conv(places, channels, channels, 3)
        self.drop(narrow)
        return found

    def sums(self, size: float, frames: int) -> None:
        """Of a norm, frame by frame in fp32."""
        for _ in range(frames):
            self.tally.stream(size / frames, 2 * size / frames)
            self.tally.stream(2 * size / frames, 0.0)
        self.make(0.0, 2 * size / frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoShape:
    frames: int
    rows: int
    columns: int
    base: int

    def places(self, scale: int) -> float:
        return float(self.frames * self.rows * self.columns * scale**2)


def walked(walk: Walk, shape: VideoShape, count: int) -> Walk:
    """A pass; in slices, where there is more than one."""
    x = walk.make(BF16_BYTES * shape.places(1) * LATENT)
    for piece in pieces(shape.base):
        run = _sliced if count > 1 and piece.kind != FIRST else _whole
        before, x = x, run(walk, shape, piece, count)
        walk.drop(before)
        if piece.kind == BLOCK and count > 1:
            _temporal_in_place(walk, shape, piece, count)
        elif piece.kind == BLOCK:
            before, x = x, walk.temporal(shape.places(piece.scale), piece.outputs)
            walk.drop(before)
    return walk


def _whole(walk: Walk, shape: VideoShape, piece: Piece, count: int = 1) -> float:
    places = shape.places(piece.scale)
    if piece.kind == BLOCK:
        return walk.spatial(places, piece)
    if piece.kind == UP:
        big = 4 * places
        walk.tally.stream(BF16_BYTES * places * piece.inputs, BF16_BYTES * big * piece.inputs)
        wide = walk.make(BF16_BYTES * big * piece.inputs)
        found = walk.conv(big, piece.inputs, piece.outputs, 9)
        walk.drop(wide)
        return found
    first = walk.normed(BF16_BYTES * places * piece.inputs) if piece.kind == LAST else 0.0
    found = walk.conv(places, piece.inputs, piece.outputs, 9)
    walk.drop(first)
    return found


def _sliced(walk: Walk, shape: VideoShape, piece: Piece, count: int) -> float:
    """Slices of frames, each copied into the output."""
    grown = 2 * piece.scale if piece.kind == UP else piece.scale
    made = walk.make(BF16_BYTES * shape.places(grown) * piece.outputs)
    for part in parts(shape.frames, count):
        few = VideoShape(frames=part.stop - part.start, rows=shape.rows, columns=shape.columns, base=shape.base)
        found = _whole(walk, few, piece)
        walk.tally.stream(found, found)
        walk.drop(found)
    return made


def _temporal_in_place(walk: Walk, shape: VideoShape, piece: Piece, count: int) -> None:
    """Slices of rows."""
    rows, places = shape.rows * piece.scale, shape.places(piece.scale)
    size = BF16_BYTES * places * piece.outputs
    inner = walk.make(size)
    for reads in (1, 2):
        walk.sums(size, shape.frames)
        for part in parts(rows, count):
            found = walk.over_time(places * (part.stop - part.start) / rows, piece.outputs)
            walk.tally.stream(reads * found, found)
            walk.drop(found)
    walk.drop(inner)
