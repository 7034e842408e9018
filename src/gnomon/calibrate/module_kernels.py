"""Measures what networks beyond transformers are made of, as PyTorch runs it: convolutions in three directions, fp32
products, attention under masks, and the kernels between them that no training step of a transformer has.

    python -m gnomon.calibrate.module_kernels modules.csv
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from gnomon.calibrate.training import Bench, Call, Row, write_table

CONVOLUTIONS = (
    # images, channels in, channels out, height, kernel, stride, groups
    (64, 64, 64, 56, 1, 1, 1), (64, 64, 64, 56, 3, 1, 1), (64, 256, 64, 56, 1, 1, 1), (64, 128, 128, 56, 3, 2, 1),
    (64, 128, 512, 28, 1, 1, 1), (64, 256, 256, 14, 3, 1, 1), (64, 1024, 256, 14, 1, 1, 1), (64, 512, 512, 7, 3, 1, 1),
    (64, 3, 64, 224, 7, 2, 1), (64, 3, 768, 224, 16, 16, 1), (4, 320, 320, 64, 3, 1, 1), (4, 960, 640, 32, 3, 1, 1),
    (4, 1280, 1280, 16, 3, 1, 1), (4, 2560, 1280, 8, 3, 1, 1), (64, 96, 96, 56, 7, 1, 96),
    (64, 384, 384, 14, 7, 1, 384),
)  # fmt: skip
TURNED = CONVOLUTIONS[1:8:2]
"""Timed in both layouts: what 16-bit convolutions of channels-first tensors take beside is the turning."""
PRODUCTS = (
    (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072), (4096, 4096, 4096), (16384, 2048, 2048), (2048, 8192, 2048),
    (65536, 256, 256), (262144, 256, 256), (262144, 256, 64), (1024, 1024, 1024), (2048, 2048, 2048),
    (8192, 8192, 1024), (2240, 10000, 1500), (2240, 6000, 1500),
)  # fmt: skip
ATTENTION = ((8, 12, 1024, 64), (4, 16, 2048, 64), (64, 12, 197, 64), (2, 16, 4096, 128))
KINDS = (("attention", "bf16", False), ("attention.efficient", "bf16", True), ("attention.wide", "fp32", False))
"""By the names of `engines/torch/eager/products.py`: number format, and whether under a mask."""
SIZES = ((8192, 4096), (32768, 4096))
IMAGES, CHANNELS = 64, 128
EDGES = ((1_000_000, 100_000, 64), (1_000_000, 100_000, 256))

FORMATS = {"bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}


def convolutions(bench: Bench) -> Iterator[Row]:
    """Forward, by input and by weight, channels last for 16 bits as the kernels want them."""
    torch = bench.torch
    torch.backends.cudnn.benchmark = False
    for dtype in ("bf16", "tf32"):
        for sizes in CONVOLUTIONS:
            last = torch.channels_last if dtype == "bf16" else torch.contiguous_format
            for row, call in _convolution(bench, sizes, dtype, last):
                yield row | {"time_us": bench.burst_us(call)}
    for sizes in TURNED:
        yield from _turning(bench, sizes)


def _convolution(bench: Bench, sizes: tuple[int, ...], dtype: str, layout: Any) -> Iterator[tuple[Row, Call]]:
    torch = bench.torch
    images, wide, out, height, kernel, stride, groups = sizes
    value = 2 if dtype == "bf16" else 4
    x = bench.random(images, wide, height, height, dtype=FORMATS[dtype]).contiguous(memory_format=layout)
    w = bench.random(out, wide // groups, kernel, kernel, dtype=FORMATS[dtype]).contiguous(memory_format=layout)
    same = ([stride] * 2, [kernel // 2 if stride < kernel else 0] * 2, [1, 1], False, [0, 0], groups)
    y = torch.ops.aten.convolution(x, w, None, *same)
    dense, other, taps = y.numel() // out, x.numel() // wide, kernel * kernel
    moved = float(value * (x.numel() + w.numel() + y.numel()))
    head = {"op": "conv", "dtype": dtype, "batch": groups, "bytes": moved}
    inner, outer = out // groups, wide // groups
    yield (
        head | {"m": dense, "n": inner, "k": outer * taps, "kernel": "forward"},
        (lambda _i: torch.ops.aten.convolution(x, w, None, *same)),
    )
    ways = {"by_input": [True, False, False], "by_weight": [False, True, False]}
    for name, mask in ways.items():
        m, n, k = (other, outer, inner * taps * dense / other) if name == "by_input" else (inner, outer * taps, dense)
        yield head | {"m": m, "n": n, "k": k, "kernel": name}, _backward(torch, y, x, w, same, mask)


def _backward(torch: Any, y: Any, x: Any, w: Any, same: Any, mask: list[bool]) -> Call:
    return lambda _i: torch.ops.aten.convolution_backward(y, x, w, None, *same, mask)


def _turning(bench: Bench, sizes: tuple[int, ...]) -> Iterator[Row]:
    layouts = (bench.torch.contiguous_format, bench.torch.channels_last)
    first, last = (next(_convolution(bench, sizes, "bf16", layout))[1] for layout in layouts)
    images, wide, out, height, _, stride, _ = sizes
    size = 2.0 * images * (wide * height**2 + out * (height // stride) ** 2)
    beside = bench.burst_us(first) - bench.burst_us(last)
    if beside > 0:
        yield _stream("conv.layout", size, size, beside)


def products(bench: Bench) -> Iterator[Row]:
    torch = bench.torch
    for dtype in ("fp32", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        for m, n, k in PRODUCTS:
            x, w = (bench.random(*shape, dtype="float32") for shape in ((m, k), (n, k)))
            took = bench.burst_us(_product(x, w))
            yield {"op": "gemm", "dtype": dtype, "m": m, "n": n, "k": k, "kernel": "forward", "time_us": took}
    torch.backends.cuda.matmul.allow_tf32 = False


def _product(x: Any, w: Any) -> Call:
    return lambda _i: x @ w.t()


def attention(bench: Bench) -> Iterator[Row]:
    """Whole sequences that see all of themselves: plain, under a mask, and in fp32."""
    torch = bench.torch
    for batch, heads, length, head_dim in ATTENTION:
        for name, dtype, masked in KINDS:
            q, k, v = (bench.random(batch, heads, length, head_dim, dtype=FORMATS[dtype]) for _ in range(3))
            mask = bench.random(1, 1, length, length, dtype=FORMATS[dtype]) if masked else None
            shape = {"batch": batch, "heads": heads, "kv_heads": heads, "q_len": length, "kv_len": length}
            for part, call in _attended(torch, q, k, v, mask).items():
                row = shape | {"head_dim": head_dim, "dtype": dtype, "causal": 0, "kernel": name}
                yield row | {"op": f"attention_{part}", "time_us": bench.burst_us(call)}


def _attended(torch: Any, q: Any, k: Any, v: Any, mask: Any) -> dict[str, Call]:
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(q, k, v, attn_mask=mask)
    gradient = torch.randn_like(out)

    def forward(_i: int) -> Any:
        with torch.no_grad():
            return attend(q, k, v, attn_mask=mask)

    return {"forward": forward, "backward": lambda _i: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)}


def streams(bench: Bench) -> Iterator[Row]:
    """Kernels by the names of `engines/torch/eager/streams.yaml`; bytes are counted as its rules count them."""
    for rows, width in SIZES:
        for name, reads, writes, call in _kernels(bench, rows, width):
            size = rows * width * 2.0
            yield _stream(name, reads * size, writes * size, bench.burst_us(call))
    for edges, nodes, width in EDGES:
        yield from _scattered(bench, edges, nodes, width)


def _kernels(bench: Bench, rows: int, width: int) -> Iterator[tuple[str, float, float, Call]]:
    torch, f, aten = bench.torch, bench.torch.nn.functional, bench.torch.ops.aten
    x, y = bench.random(rows, width), bench.random(rows, width)
    image = x.view(IMAGES, CHANNELS, 32, -1)
    scale, mean, rest = bench.random(CHANNELS), x.new_zeros(CHANNELS), x.new_ones(CHANNELS)
    yield "softmax", 1, 1, lambda _i: f.softmax(x, -1)
    yield "reduce.bfloat16", 1, 0, lambda _i: x.sum(0)
    yield "dropout", 1, 1.5, lambda _i: torch.native_dropout(x, 0.1, True)
    yield "copy", 1, 1, lambda _i: torch.cat((x[: rows // 2], y[rows // 2 :]))
    yield "copy.strided", 1, 1, lambda _i: x.view(IMAGES, -1, width).transpose(1, 2).contiguous()
    yield "pointwise.strided", 2, 1, lambda _i: x.view(IMAGES, -1, width).transpose(1, 2) + y.view(IMAGES, width, -1)
    yield "batch_norm", 2, 1, lambda _i: aten.native_batch_norm(image, scale, scale, mean, rest, True, 0.1, 1e-5)
    kept = aten.native_batch_norm(image, scale, scale, mean, rest, True, 0.1, 1e-5)
    yield (
        "batch_norm.backward",
        4,
        1,
        lambda _i: aten.native_batch_norm_backward(
            image, image, scale, mean, rest, kept[1], kept[2], True, 1e-5, [True] * 3
        ),
    )
    points = image.shape[2] * image.shape[3]
    grouped = aten.native_group_norm(image, scale, scale, IMAGES, CHANNELS, points, 32, 1e-5)
    yield "group_norm", 2, 1, lambda _i: aten.native_group_norm(image, scale, scale, IMAGES, CHANNELS, points, 32, 1e-5)
    yield (
        "group_norm.backward",
        4,
        1,
        lambda _i: aten.native_group_norm_backward(
            image, image, grouped[1], grouped[2], scale, IMAGES, CHANNELS, points, 32, [True] * 3
        ),
    )
    yield "pool", 1, 0.25 * 5, lambda _i: f.max_pool2d(image, 2, return_indices=True)
    yield "upsample", 1, 4, lambda _i: f.interpolate(image, scale_factor=2.0)


def _scattered(bench: Bench, edges: int, nodes: int, width: int) -> Iterator[Row]:
    torch = bench.torch
    table, values = bench.random(nodes, width), bench.random(edges, width)
    index = torch.randint(0, nodes, (edges,), device=table.device)
    each, all_ = 2.0 * edges * width, 2.0 * nodes * width
    yield _stream("gather", min(all_, each) + 8.0 * edges, each, bench.burst_us(lambda _i: table[index]))
    read, written = 2 * each + 8.0 * edges, each
    yield _stream("scatter", read, written, bench.burst_us(lambda _i: table.index_add_(0, index, values)))


def _stream(name: str, read: float, written: float, time_us: float) -> Row:
    sizes = {"bytes_read": read, "bytes_written": written}
    return sizes | {"op": "elementwise", "dtype": "bf16", "kernel": name, "time_us": time_us}


PARTS = {"convolutions": convolutions, "products": products, "attention": attention, "streams": streams}

if __name__ == "__main__":
    write_table(*sys.argv[1:], parts=PARTS)
