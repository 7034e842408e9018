"""Kernels of PyTorch that only stream memory, in 16 and 32 bits, by the names of `engines/torch/eager/streams.yaml`;
bytes are counted as its rules count them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.training_kernels import Bench, Call, Row

SIZES = ((4096, 4096), (32768, 4096))
IMAGES, CHANNELS, SHORT = 64, 128, 64
EDGES = ((500_000, 50_000, 4), (500_000, 50_000, 128), (800_000, 40_000, 320))
"""Places looked up or added to, rows of the table, and values of a row."""
WORDS, LOOKED_UP = 20_000, 8192
FORMATS = {"bfloat16": 2.0, "float32": 4.0}

_Kernel = tuple[str, float, float, Call]
"""Name, values read and written for every value of the operand, and the call."""


def stream_calls(bench: Bench) -> Iterator[tuple[Row, Call]]:
    for format, value in FORMATS.items():
        for rows, width in SIZES:
            x, y = (bench.random(rows, width, dtype=format) for _ in range(2))
            for kernels in (_plain, _reordered, _reduced, _normed, _spatial):
                for name, reads, writes, call in kernels(bench.torch, x, y):
                    size = rows * width * value
                    yield _row(name, format, reads * size, writes * size), call
        for edges, nodes, width in EDGES:
            yield from _scattered(bench, format, edges, nodes, width)
    for format in FORMATS:
        yield from _words(bench, format)


def _row(name: str, format: str, read: float, written: float) -> Row:
    sizes = {"bytes_read": read, "bytes_written": written}
    return sizes | {"op": "elementwise", "dtype": "bf16", "kernel": f"{name}.{format}"}


def _plain(torch: Any, x: Any, y: Any) -> Iterator[_Kernel]:
    f, aten = torch.nn.functional, torch.ops.aten
    ones = x.new_ones(x.shape[1])
    mean = x.new_zeros(x.shape[0], 1, dtype=torch.float32)
    yield "add", 2, 1, lambda _i: x + y
    yield "mul", 2, 1, lambda _i: x * y
    yield "broadcast", 1, 1, lambda _i: x * ones
    yield "broadcast.rows", 1, 1, lambda _i: x.view(-1, SHORT) * y.view(-1, SHORT)[:, :1]
    yield "relu", 1, 1, lambda _i: f.relu(x)
    yield "relu.backward", 2, 1, lambda _i: aten.threshold_backward(x, y, 0)
    yield "gelu", 1, 1, lambda _i: f.gelu(x)
    yield "gelu.backward", 2, 1, lambda _i: aten.gelu_backward(x, y)
    yield "silu", 1, 1, lambda _i: f.silu(x)
    yield "silu.backward", 2, 1, lambda _i: aten.silu_backward(x, y)
    yield "sigmoid", 1, 1, lambda _i: torch.sigmoid(x)
    yield "sin", 1, 1, lambda _i: torch.sin(x)
    yield "dropout", 1, 1 + 1 / x.element_size(), lambda _i: torch.native_dropout(x, 0.1, True)
    yield "softmax", 1, 1, lambda _i: f.softmax(x, -1)
    yield "softmax.backward", 2, 1, lambda _i: aten._softmax_backward_data(x, y, -1, x.dtype)
    yield "layer_norm", 1, 1, lambda _i: f.layer_norm(x, x.shape[1:], ones, ones)
    yield (
        "layer_norm.backward",
        4,
        1,
        lambda _i: aten.native_layer_norm_backward(x, y, x.shape[1:], mean, mean, ones, ones, [True] * 3),
    )
    yield "zero", 0, 1, lambda _i: torch.zeros_like(x)


def _reordered(torch: Any, x: Any, y: Any) -> Iterator[_Kernel]:
    rows, width = x.shape
    heads = x.view(IMAGES, -1, width // SHORT, SHORT)
    odd = x.view(-1, 256)[:, :191]
    yield "copy", 1, 1, lambda _i: torch.cat((x[: rows // 2], y[rows // 2 :]))
    yield "copy.wider", 2, 2, lambda _i: torch.cat((x.view(-1, 256), y.view(-1, 256)), -1)
    yield "copy.odd", 2 * 191 / 256, 2 * 191 / 256, lambda _i: torch.cat((odd, odd), -1)
    yield "copy.part", 0.5, 0.5, lambda _i: x[:, : width // 2].contiguous()
    yield "copy.strided", 1, 1, lambda _i: x.view(IMAGES, -1, width).transpose(1, 2).contiguous()
    yield "copy.heads", 1, 1, lambda _i: heads.transpose(1, 2).contiguous()
    yield "pointwise.strided", 2, 1, lambda _i: x.view(IMAGES, -1, width).transpose(1, 2) + y.view(IMAGES, width, -1)


def _reduced(torch: Any, x: Any, y: Any) -> Iterator[_Kernel]:
    image = x.view(IMAGES, CHANNELS, 32, -1)
    yield "reduce", 1, 0, lambda _i: x.sum(0)
    yield "reduce.tall", 1, 0, lambda _i: x.view(-1, 256).sum(0)
    yield "reduce.rows", 1, 0, lambda _i: x.sum(-1)
    yield "reduce.short", 1, 0, lambda _i: x.view(-1, SHORT).sum(-1)
    yield "reduce.image", 1, 0, lambda _i: image.mean((2, 3))
    yield "reduce.channels", 1, 0, lambda _i: image.sum((0, 2, 3))


def _normed(torch: Any, x: Any, y: Any) -> Iterator[_Kernel]:
    """Of images: channels first, as modules are unless someone asks for another order, and channels last."""
    aten = torch.ops.aten
    image, other = x.view(IMAGES, CHANNELS, 32, -1), y.view(IMAGES, CHANNELS, 32, -1)
    scale = x.new_ones(CHANNELS)
    mean, rest = (x.new_full((CHANNELS,), value, dtype=torch.float32) for value in (0.0, 1.0))
    points = image.shape[2] * image.shape[3]
    group = (IMAGES, CHANNELS, points, 32)
    moments = [x.new_ones(IMAGES, 32) for _ in range(2)]
    yield "batch_norm", 2, 1, lambda _i: aten.native_batch_norm(image, scale, scale, mean, rest, True, 0.1, 1e-5)
    yield (
        "batch_norm.inference",
        1,
        1,
        lambda _i: aten.native_batch_norm(image, scale, scale, mean, rest, False, 0.1, 1e-5),
    )
    yield (
        "batch_norm.backward",
        4,
        1,
        lambda _i: aten.native_batch_norm_backward(
            image, other, scale, scale, scale, mean, rest, True, 1e-5, [True] * 3
        ),
    )
    yield "group_norm", 2, 1, lambda _i: aten.native_group_norm(image, scale, scale, *group, 1e-5)
    yield (
        "group_norm.backward",
        4,
        1,
        lambda _i: aten.native_group_norm_backward(image, other, *moments, scale, *group, [True] * 3),
    )


def _spatial(torch: Any, x: Any, y: Any) -> Iterator[_Kernel]:
    f, aten = torch.nn.functional, torch.ops.aten
    image, index = x.view(IMAGES, CHANNELS, 32, -1), 8 / x.element_size()
    pooled, places = f.max_pool2d(image, 2, return_indices=True)
    small = y.view(-1)[: pooled.numel()].view(pooled.shape)
    window = [2, 2], [2, 2], [0, 0], [1, 1], False
    size = list(image.shape[2:])
    yield "pool", 1, 0.25 * (1 + index), lambda _i: f.max_pool2d(image, 2, return_indices=True)
    yield "pool.wide", 1, 0.25 * (1 + index), lambda _i: f.max_pool2d(image, 3, 2, 1, return_indices=True)
    yield (
        "pool.backward",
        0.25 * (1 + index),
        1,
        lambda _i: aten.max_pool2d_with_indices_backward(small, image, *window, places),
    )
    yield "upsample", 0.25, 1, lambda _i: aten.upsample_nearest2d(small, size)
    yield "upsample.backward", 1, 0.25, lambda _i: aten.upsample_nearest2d_backward(image, size, list(small.shape))


def _scattered(bench: Bench, format: str, edges: int, nodes: int, width: int) -> Iterator[tuple[Row, Call]]:
    torch = bench.torch
    table, values = bench.random(nodes, width, dtype=format), bench.random(edges, width, dtype=format)
    index = torch.randint(0, nodes, (edges,), device=table.device)
    each, all_ = FORMATS[format] * edges * width, FORMATS[format] * nodes * width
    read, count = min(all_, each) + 8.0 * edges, {"batch": edges}
    yield _row("gather", format, read, each) | count, lambda _i: table[index]
    yield _row("gather.rows", format, read, each) | count, lambda _i: table.index_select(0, index)
    yield _row("scatter", format, 2 * each + 8.0 * edges, each) | count, lambda _i: table.index_add_(0, index, values)


def _words(bench: Bench, format: str) -> Iterator[tuple[Row, Call]]:
    torch, aten = bench.torch, bench.torch.ops.aten
    for width in (640, 2560):
        gradient = bench.random(LOOKED_UP, width, dtype=format)
        index = torch.randint(0, WORDS, (LOOKED_UP,), device=gradient.device)
        each, all_ = FORMATS[format] * LOOKED_UP * width, FORMATS[format] * WORDS * width
        yield (
            _row("embedding.backward", format, each + 8.0 * LOOKED_UP, all_ + each),
            _looked_up(aten, gradient, index),
        )


def _looked_up(aten: Any, gradient: Any, index: Any) -> Call:
    return lambda _i: aten.embedding_dense_backward(gradient, index, WORDS, -1, False)
