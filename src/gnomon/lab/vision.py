"""Vision networks as layers that run in PyTorch on given weights, and that count their kernels for a prediction.

Images are channels last; batch norms are folded into convolutions. Layers take the functions of `torch`, an input and
weights in the order of `shapes`; they count themselves on a `Tally`, with what torch.compile fuses where `fused`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from gnomon.lab.base import BF16_BYTES
from gnomon.lab.bench import Bench
from gnomon.lab.launches import Tally

CLASSES = 1000
KEYS = 16
"""Channels of queries and of keys of SHViT's single head."""
Shapes = Iterator[tuple[int, ...]]
Weights = Iterator[Any]


@dataclass(frozen=True, slots=True)
class Counting:
    """Kernels on one place of a network: images and the side of what a layer is given."""

    tally: Tally
    images: int
    side: int
    fused: bool

    @property
    def places(self) -> int:
        return self.images * self.side**2

    def passes(self, channels: float, *reads: float, places: int = 0) -> None:
        """Elementwise kernels that write so many channels once and read them so often, one kernel each; compiled, one
        kernel of the first."""
        size = BF16_BYTES * channels * (places or self.places)
        for read in reads[: 1 if self.fused else None]:
            self.tally.stream(read * size, size)


class VisionLayer(Protocol):
    def shapes(self) -> Shapes: ...
    def run(self, torch: Any, x: Any, weights: Weights) -> Any: ...
    def count(self, counting: Counting) -> int:
        """The side of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A convolution with a bias, and an activation after it."""

    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    relu: bool = False
    patches: bool = False
    """Whether kernels do not overlap, and nothing is padded."""

    def shapes(self) -> Shapes:
        yield (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)
        yield (self.outputs,)

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        weight, bias, padding = next(weights), next(weights), 0 if self.patches else self.kernel // 2
        x = torch.nn.functional.conv2d(x, weight, bias, self.stride, padding, groups=self.groups)
        return torch.nn.functional.relu(x) if self.relu else x

    def count(self, counting: Counting) -> int:
        side = -(-counting.side // self.stride)
        places = counting.images * side**2
        counting.tally.conv(
            places, self.outputs, self.inputs, self.kernel, stride=self.stride, groups=self.groups
        )  # fmt: skip
        counting.passes(self.outputs, *(1.0,) * (2 if self.relu else 1), places=places)
        # The probe of a convolution's launch has its bias.
        counting.tally.elementwise -= 1
        return side


@dataclass(frozen=True, slots=True, kw_only=True)
class Plus:
    """What layers make of a channels-last image, added to it."""

    layers: tuple[VisionLayer, ...]
    channels: int

    def shapes(self) -> Shapes:
        for layer in self.layers:
            yield from layer.shapes()

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        return x + run(torch, self.layers, x, weights)

    def count(self, counting: Counting) -> int:
        for layer in self.layers:
            layer.count(counting)
        if not counting.fused:  # else it is one kernel with the last bias
            counting.passes(self.channels, 2.0)
        return counting.side


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHead:
    """Attention with a single head over the first channels; a projection mixes in the others."""

    width: int
    part: int

    @property
    def _project(self) -> Conv:
        return Conv(inputs=self.part, outputs=2 * KEYS + self.part)

    @property
    def _out(self) -> Conv:
        return Conv(inputs=self.width, outputs=self.width)

    def shapes(self) -> Shapes:
        yield from ((self.part,), (self.part,))
        yield from self._project.shapes()
        yield from self._out.shapes()

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        attended, rest = x.split([self.part, self.width - self.part], 1)
        normed = torch.nn.functional.group_norm(attended, 1, next(weights), next(weights))
        made = self._project.run(torch, normed, weights).permute(0, 2, 3, 1)
        images, rows, columns, _ = made.shape
        query, key, value = made.reshape(images, rows * columns, -1).split([KEYS, KEYS, self.part], 2)
        mixed = ((query @ key.transpose(1, 2)) * KEYS**-0.5).softmax(-1) @ value
        mixed = mixed.view(images, rows, columns, self.part).permute(0, 3, 1, 2)
        return self._out.run(torch, torch.nn.functional.relu(torch.cat([mixed, rest], 1)), weights)

    def count(self, counting: Counting) -> int:
        tokens, images = counting.side**2, counting.images
        # The norm takes channels first: a copy, its sums, itself and a copy back; compiled, its sums and itself.
        counting.passes(self.part, 1.0, 1.0, 1.0)
        counting.passes(self.part, 1.0)
        self._project.count(counting)
        counting.tally.gemm(tokens, tokens, KEYS, batch=images)
        counting.passes(tokens, 1.0, 1.0)
        counting.tally.gemm(tokens, self.part, tokens, batch=images)
        counting.passes(self.width, 1.0, 1.0)
        self._out.count(counting)
        counting.tally.views += 12
        return counting.side


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """Half the resolution and other channels, weighed by what a picture has of each."""

    inputs: int
    outputs: int

    @property
    def _inner(self) -> int:
        return 4 * self.inputs

    @property
    def _before(self) -> tuple[Conv, ...]:
        inner = self._inner
        return (
            Conv(inputs=self.inputs, outputs=inner, relu=True),
            Conv(inputs=inner, outputs=inner, kernel=3, stride=2, groups=inner, relu=True),
        )

    @property
    def _weigh(self) -> tuple[Conv, ...]:
        inner, inputs = self._inner, self.inputs
        return Conv(inputs=inner, outputs=inputs, relu=True), Conv(inputs=inputs, outputs=inner)

    @property
    def _narrow(self) -> Conv:
        return Conv(inputs=self._inner, outputs=self.outputs)

    def shapes(self) -> Shapes:
        for layer in (*self._before, *self._weigh, self._narrow):
            yield from layer.shapes()

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        x = run(torch, self._before, x, weights)
        shares = run(torch, self._weigh, x.mean((2, 3), keepdim=True), weights).sigmoid()
        return self._narrow.run(torch, x * shares, weights)

    def count(self, counting: Counting) -> int:
        side = counting.side
        for layer in self._before:
            side = layer.count(Counting(counting.tally, counting.images, side, counting.fused))
        after = Counting(counting.tally, counting.images, side, counting.fused)
        after.tally.stream(BF16_BYTES * self._inner * after.places, BF16_BYTES * self._inner * after.images)
        for layer in self._weigh:
            layer.count(Counting(counting.tally, counting.images, 1, counting.fused))
        if not counting.fused:
            counting.passes(self._inner, 1.0, places=counting.images)
        after.passes(self._inner, 1.0)
        return self._narrow.count(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The mean over all places, then classes."""

    width: int

    def shapes(self) -> Shapes:
        yield from ((CLASSES, self.width), (CLASSES,))

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        return torch.nn.functional.linear(x.mean((2, 3)), next(weights), next(weights))

    def count(self, counting: Counting) -> int:
        counting.tally.stream(BF16_BYTES * self.width * counting.places, BF16_BYTES * self.width * counting.images)
        counting.tally.gemm(counting.images, CLASSES, self.width)
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """DeiT after its patches: a class token, blocks of attention over all tokens, and classes of that token."""

    width: int
    heads: int
    blocks: int
    tokens: int

    def shapes(self) -> Shapes:
        width = self.width
        yield from ((1, 1, width), (1, self.tokens + 1, width))
        for _ in range(self.blocks):
            yield from ((width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,))
            yield from ((width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
        yield from ((width,), (width,), (CLASSES, width), (CLASSES,))

    def run(self, torch: Any, x: Any, weights: Weights) -> Any:
        functional, width = torch.nn.functional, self.width
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([next(weights).expand(len(x), 1, width), x], 1) + next(weights)
        for _ in range(self.blocks):
            normed = functional.layer_norm(x, (width,), next(weights), next(weights))
            joined = functional.linear(normed, next(weights), next(weights))
            query, key, value = joined.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
            x = x + functional.linear(mixed, next(weights), next(weights))
            normed = functional.layer_norm(x, (width,), next(weights), next(weights))
            wide = functional.gelu(functional.linear(normed, next(weights), next(weights)))
            x = x + functional.linear(wide, next(weights), next(weights))
        return functional.linear(
            functional.layer_norm(x[:, 0], (width,), next(weights), next(weights)), next(weights), next(weights)
        )

    def count(self, counting: Counting) -> int:
        tally, width, tokens = counting.tally, self.width, self.tokens + 1
        rows, block = counting.images * tokens, Tally(tally.machine, views=16)
        inside = Counting(block, counting.images, counting.side, counting.fused)
        counting.passes(width, 1.0, 1.0, places=rows)
        for n, k in ((3, 1), (1, 1), (4, 1), (1, 4)):
            block.gemm(rows, n * width, k * width)
        block.attention(counting.images, self.heads, tokens, width // self.heads, causal=False)
        inside.passes(4 * width, 1.0, places=rows)
        for _ in range(2):  # a sum and a norm; compiled, one kernel that writes both
            inside.passes(width, 3.0, 1.0, places=rows)
        tally.add(block, self.blocks)
        counting.passes(width, 1.0, places=counting.images)
        tally.gemm(counting.images, CLASSES, width)
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionNetwork:
    name: str
    pixels: int
    layers: tuple[VisionLayer, ...]

    @property
    def parameters(self) -> int:
        return sum(_size(shape) for layer in self.layers for shape in layer.shapes())

    def tally(self, tally: Tally, images: int, *, fused: bool) -> Tally:
        """Its kernels on so many images."""
        side = self.pixels
        for layer in self.layers:
            side = layer.count(Counting(tally, images, side, fused))
        return tally

    def drawn(self, bench: Bench, generator: Any) -> list[Any]:
        """Random weights in fp64, those of convolutions channels last; biases and gains around zero and one."""
        torch, found = bench.torch, []
        for shape in (shape for layer in self.layers for shape in layer.shapes()):
            scale = (2 * shape[0] / _size(shape)) ** 0.5 if len(shape) > 1 else 0.1
            drawn = bench.normal(*shape, dtype=torch.float64, generator=generator, scale=scale)
            found.append(drawn.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else drawn)
        return found

    def __call__(self, torch: Any, x: Any, weights: Sequence[Any]) -> Any:
        return run(torch, self.layers, x, iter(weights))


def run(torch: Any, layers: Sequence[VisionLayer], x: Any, weights: Weights) -> Any:
    for layer in layers:
        x = layer.run(torch, x, weights)
    return x


def _size(shape: tuple[int, ...]) -> int:
    found = 1
    for each in shape:
        found *= each
    return found


def shvit(name: str, widths: Sequence[int], parts: Sequence[int], depths: Sequence[int], pixels: int) -> VisionNetwork:
    """SHViT: patches of 16 x 16 by four convolutions, one stage without attention and two with a single head."""
    stem = [3, widths[0] // 8, widths[0] // 4, widths[0] // 2, widths[0]]
    layers: list[VisionLayer] = [
        Conv(inputs=a, outputs=b, kernel=3, stride=2, relu=i < 3) for i, (a, b) in enumerate(pairwise(stem))
    ]
    for stage, (width, part, depth) in enumerate(zip(widths, parts, depths, strict=True)):
        for _ in range(depth):
            local, mlp = _mixed(width)
            head = (Plus(layers=(OneHead(width=width, part=part),), channels=width),) if stage else ()
            layers += [local, *head, mlp]
        if stage < len(widths) - 1:
            wider = widths[stage + 1]
            layers += [*_mixed(width), Merging(inputs=width, outputs=wider), *_mixed(wider)]
    return VisionNetwork(name=name, pixels=pixels, layers=(*layers, Pooled(width=widths[-1])))


def _mixed(width: int) -> tuple[VisionLayer, VisionLayer]:
    """A depthwise convolution, into which its residual is folded, and an MLP of 1 x 1."""
    wide = Conv(inputs=width, outputs=2 * width, relu=True), Conv(inputs=2 * width, outputs=width)
    return Conv(inputs=width, outputs=width, kernel=3, groups=width), Plus(layers=wide, channels=width)


def deit(name: str, width: int, heads: int, blocks: int, pixels: int, patch: int = 16) -> VisionNetwork:
    """DeiT without distillation: a vision transformer with patches of 16 x 16."""
    patches = Conv(inputs=3, outputs=width, kernel=patch, stride=patch, patches=True)
    tokens = (pixels // patch) ** 2
    return VisionNetwork(
        name=name,
        pixels=pixels,
        layers=(patches, Transformer(width=width, heads=heads, blocks=blocks, tokens=tokens)),
    )
