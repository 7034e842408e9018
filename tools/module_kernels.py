"""Measures what networks beyond transformers are made of, as PyTorch runs it: convolutions in three directions,
GEMMs of every format and alignment, attention under masks, recurrent steps, and (`module_streams`) the kernels
between them. Every call is captured in a graph, so that no host stands between a kernel and its time.

    python -m tools.module_kernels modules.csv
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tools.module_streams import stream_calls
from tools.training_kernels import Bench, Call, Row, write_table

from gnomon.calibrate.timer import time_call

CONVOLUTIONS = (
    # images, channels in, channels out, height, kernel, stride, groups
    (32, 96, 96, 48, 1, 1, 1), (32, 96, 96, 48, 3, 1, 1), (32, 384, 96, 48, 1, 1, 1), (32, 96, 384, 48, 1, 1, 1),
    (32, 192, 192, 48, 3, 2, 1), (32, 192, 768, 24, 1, 1, 1), (32, 192, 192, 24, 3, 1, 1), (32, 768, 192, 24, 1, 1, 1),
    (96, 288, 288, 12, 3, 1, 1), (96, 1152, 288, 12, 1, 1, 1), (96, 640, 640, 6, 3, 1, 1), (64, 512, 1024, 16, 1, 2, 1),
    (128, 64, 64, 64, 3, 1, 1), (128, 128, 256, 32, 3, 1, 1), (256, 512, 512, 8, 3, 1, 1), (48, 48, 240, 80, 1, 1, 1),
    (6, 256, 256, 80, 3, 1, 1), (6, 768, 512, 40, 3, 1, 1), (6, 1024, 1024, 20, 3, 1, 1), (8, 2048, 1024, 10, 3, 1, 1),
    (6, 512, 512, 40, 3, 2, 1), (6, 768, 512, 40, 1, 1, 1), (2, 1024, 1024, 8, 3, 1, 1),
    (32, 3, 48, 192, 7, 2, 1), (48, 3, 32, 256, 3, 2, 1), (32, 3, 96, 192, 4, 4, 1), (48, 3, 640, 196, 14, 14, 1),
    (8, 4, 256, 80, 3, 1, 1), (8, 256, 4, 80, 3, 1, 1), (256, 4, 24, 96, 8, 4, 1), (256, 24, 48, 23, 4, 2, 1),
    (48, 64, 64, 64, 7, 1, 64), (48, 256, 256, 32, 5, 1, 256), (48, 144, 144, 56, 3, 1, 144),
    (32, 576, 576, 14, 3, 1, 576),
)  # fmt: skip
ALIGNED = (
    (4096, 2560, 1024), (8192, 1152, 1152), (2048, 5120, 2560), (16384, 640, 640), (65536, 192, 320),
    (64, 5200, 1304), (512, 3072, 768), (131072, 384, 48), (4096, 32000, 1024), (1024, 1024, 4096),
)  # fmt: skip
"""Rows and sides of GEMMs whose sides are also lengthened, so that their rows are less aligned."""
LONGER = {
    "bf16": ((0, 0), (0, 4), (0, 2), (0, 1), (4, 0), (2, 0), (1, 0), (4, 4), (2, 2), (1, 1)),
    "tf32": ((0, 0), (0, 2), (0, 1), (2, 0), (1, 0), (2, 2), (1, 1)),
    "fp32": ((0, 0), (0, 1), (1, 0), (2, 2)),
}
"""Values by which n and k grow, by format."""
LONG = (
    (524288, 64, 128), (262144, 320, 192), (100000, 256, 256), (400000, 96, 96), (131072, 1, 192), (131072, 3, 160),
    (200000, 2, 64), (524288, 24, 40),
)  # fmt: skip
"""Many rows: their gradient by weight is a small matrix summed over all of them."""
PLAIN = (
    (4096, 4096, 4096), (16384, 2048, 2048), (2048, 8192, 2048), (1024, 1024, 1024), (2048, 2048, 2048),
    (8192, 8192, 1024), (4096, 1024, 1024), (8192, 4096, 1024), (8192, 1024, 4096), (9216, 1024, 1024),
    (9216, 512, 2048),
)  # fmt: skip
"""Other GEMMs of fp32 values; those of 16 bits are in the table of `tools.training_kernels`."""
ATTENTION = (
    # batch, heads, queries, keys, width of a head
    (4, 16, 2048, 2048, 64), (2, 16, 4096, 4096, 128), (32, 16, 256, 256, 64), (48, 8, 144, 144, 64),
    (4, 8, 2304, 2304, 48), (4, 10, 576, 576, 96), (4, 8, 2304, 64, 48), (8, 12, 1024, 1024, 96),
)  # fmt: skip
KINDS = (("attention", "bf16", False), ("attention.efficient", "bf16", True), ("attention.wide", "fp32", False))
"""By the names of `engines/torch/eager/gemms.py`: number format, and whether under a mask."""
RECURRENT = ((64, 1300), (64, 1304), (64, 1024), (16, 640), (128, 768), (32, 500))
"""Sequences and width of one LSTM layer."""
STEPS, INPUT = 16, 64
FORMATS = {"bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}


def device_us(bench: Bench, call: Call, copies: int = 1) -> float:
    time.sleep(2e-3)
    return time_call(bench.torch, call, copies).seconds * 1e6


def timed(bench: Bench, calls: Iterable[tuple[Row, Call]], copies: int = 1) -> Iterator[Row]:
    """Rows with their times; what this GPU or version cannot run is named and left out."""
    for row, call in calls:
        try:
            yield row | {"time_us": device_us(bench, call, copies)}
        except RuntimeError as problem:
            print(f"left out {row}: {str(problem).splitlines()[0]}", file=sys.stderr)


def convolutions(bench: Bench) -> Iterator[Row]:
    """Forward, by input and by weight: 16 bits with channels last, as the kernels want them, and with channels first,
    where what they take beside is the turning; fp32 with channels first."""
    torch = bench.torch
    torch.backends.cudnn.benchmark = False
    for sizes in CONVOLUTIONS:
        yield from timed(bench, _convolution(bench, sizes, "tf32", torch.contiguous_format))
        last = list(timed(bench, _convolution(bench, sizes, "bf16", torch.channels_last)))
        first = {
            row["kernel"]: row for row in timed(bench, _convolution(bench, sizes, "bf16", torch.contiguous_format))
        }
        for row in last:
            yield row
            if row["kernel"] in first:
                yield first[row["kernel"]] | {"kernel": f"{row['kernel']}.first"}


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


def gemms(bench: Bench) -> Iterator[Row]:
    """Forward, by input and by weight, in every format, with sides of every alignment and over many rows."""
    torch = bench.torch
    for dtype in FORMATS:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        shapes = ALIGNED if dtype == "bf16" else ALIGNED[:7]
        for m, n, k in shapes:
            for more_n, more_k in LONGER[dtype]:
                yield from _three_ways(bench, m, n + more_n, k + more_k, dtype)
        for shape in LONG if dtype == "bf16" else LONG + PLAIN:
            yield from _three_ways(bench, *shape, dtype)
    torch.backends.cuda.matmul.allow_tf32 = False


def _three_ways(bench: Bench, m: int, n: int, k: int, dtype: str) -> Iterator[Row]:
    value = 2 if dtype == "bf16" else 4
    copies = max(1, min(4, int(3e8 / (value * (m * k + n * k)))))
    shapes = ((m, k), (n, k), (m, n))
    x, w, y = ([bench.random(*shape, dtype=FORMATS[dtype]) for _ in range(copies)] for shape in shapes)
    head = {"op": "gemm", "dtype": dtype}
    calls: tuple[tuple[Row, Call], ...] = (
        (head | {"m": m, "n": n, "k": k, "kernel": "forward"}, lambda i: x[i] @ w[i].t()),
        (head | {"m": m, "n": k, "k": n, "kernel": "by_input"}, lambda i: y[i] @ w[i]),
        (head | {"m": n, "n": k, "k": m, "kernel": "by_weight"}, lambda i: y[i].t() @ x[i]),
    )
    yield from timed(bench, calls, copies)


def attention(bench: Bench) -> Iterator[Row]:
    """Whole sequences that see all of another: plain, under a mask, in fp32. Backward is what it adds to forward."""
    for batch, heads, queries, keys, head_dim in ATTENTION:
        for name, dtype, masked in KINDS:
            q, k, v = (bench.random(batch, heads, n, head_dim, dtype=FORMATS[dtype]) for n in (queries, keys, keys))
            mask = bench.random(1, 1, queries, keys, dtype=FORMATS[dtype]) if masked else None
            shape = {"batch": batch, "heads": heads, "kv_heads": heads, "q_len": queries, "kv_len": keys}
            row = shape | {"head_dim": head_dim, "dtype": dtype, "causal": 0, "kernel": name}
            yield from _both(bench, row, *_attended(bench.torch, q, k, v, mask))


def _both(bench: Bench, row: Row, forward: Call, whole: Call) -> Iterator[Row]:
    found = list(
        timed(bench, ((row | {"op": "attention_forward"}, forward), (row | {"op": "attention_backward"}, whole)))
    )
    if len(found) == 2:
        yield found[0]
        yield found[1] | {"time_us": found[1]["time_us"] - found[0]["time_us"]}


def _attended(torch: Any, q: Any, k: Any, v: Any, mask: Any) -> tuple[Call, Call]:
    leaves = tuple(t.requires_grad_() for t in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    gradient = torch.randn_like(q)

    def forward(_i: int) -> Any:
        with torch.no_grad():
            return attend(*leaves, attn_mask=mask)

    return forward, lambda _i: torch.autograd.grad(attend(*leaves, attn_mask=mask), leaves, gradient)


def recurrent(bench: Bench) -> Iterator[Row]:
    """What one more time step of an LSTM takes: a GEMM of the state with its weights, and the cell."""
    torch = bench.torch
    for sequences, hidden in RECURRENT:
        for dtype in ("bf16", "tf32"):
            net = torch.nn.LSTM(INPUT, hidden).to(device="cuda", dtype=getattr(torch, FORMATS[dtype]))
            row = {"op": "gemm", "dtype": dtype, "m": sequences, "n": 4 * hidden, "k": hidden}
            took = []
            for steps in (STEPS, 2 * STEPS):
                x = bench.random(steps, sequences, INPUT, dtype=FORMATS[dtype])
                both: tuple[tuple[Row, Call], ...] = (({}, _recurred(torch, net, x)), ({}, _trained(torch, net, x)))
                took.append([found["time_us"] for found in timed(bench, both)])
            if all(len(times) == 2 for times in took):
                forward, whole = ((after - before) / STEPS for before, after in zip(*took, strict=True))
                yield row | {"kernel": "step.forward", "time_us": forward}
                yield row | {"kernel": "step.backward", "time_us": whole - forward}


def _recurred(torch: Any, net: Any, x: Any) -> Call:
    def forward(_i: int) -> Any:
        with torch.no_grad():
            return net(x)

    return forward


def _trained(torch: Any, net: Any, x: Any) -> Call:
    leaves = tuple(net.parameters())

    def step(_i: int) -> Any:
        out = net(x)[0]
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    return step


def streams(bench: Bench) -> Iterator[Row]:
    yield from timed(bench, stream_calls(bench))


PARTS = {
    "gemms": gemms,
    "convolutions": convolutions,
    "streams": streams,
    "attention": attention,
    "recurrent": recurrent,
}

if __name__ == "__main__":
    gc.freeze()  # a capture may collect garbage, and need not look through all of PyTorch for it
    write_table(*sys.argv[1:], parts=PARTS)
