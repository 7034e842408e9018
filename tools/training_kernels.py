"""Measures what a training step is made of, as PyTorch runs it: GEMMs in three layouts, whole-sequence attention
both ways, the small kernels between them, and all of these again sustained, under the power limit.

    python -m tools.training_kernels torch.csv
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gnomon.calibrate.collect import COLUMNS, torch_module
from gnomon.calibrate.timer import PowerMeter

MATRICES = (
    (2048, 2048), (512, 2048), (8192, 2048), (2048, 8192), (3072, 3072), (8192, 3072), (3072, 8192), (4096, 4096),
    (1024, 4096), (14336, 4096), (4096, 14336), (6144, 6144), (24576, 6144), (128256, 2048), (128256, 4096),
    (9216, 2304), (1536, 5120), (1280, 5120), (768, 3072), (20480, 5120),
)  # fmt: skip
ROWS = (512, 1024, 2048, 4096, 8192, 16384)
HEADS = ((32, 8, 64), (24, 8, 128), (32, 8, 128), (16, 16, 128), (64, 8, 128), (16, 16, 96), (12, 12, 64))
SEQUENCES = (
    (1, 1024), (1, 2048), (2, 2048), (4, 2048), (1, 4096), (2, 4096), (4, 4096), (1, 8192), (2, 8192), (1, 16384),
    (8, 1024), (16, 512),
)  # fmt: skip
STREAMS = ((8192, 4096), (16384, 2048), (16384, 4096), (16384, 8192), (32768, 4096))
PARAMETERS = 400_000_000
VOCABULARY = 128256
BURST_S = 15e-3
SUSTAINED_S = 3.0

Row = dict[str, Any]
Call = Callable[[int], Any]


class Bench:
    """One GPU and its clock."""

    def __init__(self) -> None:
        self.torch = torch_module()
        self.torch.manual_seed(0)
        self.meter = PowerMeter()

    def random(self, *shape: int, dtype: str = "bfloat16") -> Any:
        return self.torch.randn(*shape, device="cuda", dtype=getattr(self.torch, dtype)) * 0.5

    def burst_us(self, call: Call) -> float:
        """Median of short runs, the chip cool in between."""
        call(0)
        self.torch.cuda.synchronize()
        repeats = max(2, min(400, int(BURST_S / max(self._each(call, 2), 1e-7))))
        samples = []
        for _ in range(5):
            time.sleep(0.03)
            samples.append(self._each(call, repeats))
        return sorted(samples)[2] * 1e6

    def sustained(self, call: Call) -> Row:
        """Time, watts and clock once the power limit has settled."""
        once = self.burst_us(call)
        repeats, samples, watts, clocks = max(1, int(1e5 / once)), [], [], []
        time.sleep(1.0)
        start = time.perf_counter()
        while time.perf_counter() - start < SUSTAINED_S:
            samples.append(self._each(call, repeats))
            watts.append(self.meter.watts)
            clocks.append(self.meter.sm_hz)
        late = slice(len(samples) // 2, None)
        middle = len(samples[late]) // 2
        figures = (sorted(series[late])[middle] for series in (samples, watts, clocks))
        seconds, drawn, clock = figures
        return {"time_us": seconds * 1e6, "burst_us": once, "watts": drawn, "sm_hz": clock}

    def _each(self, call: Call, repeats: int) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for i in range(repeats):
            call(i)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / repeats


def _turns(function: Callable[..., Any], *operands: list[Any]) -> Call:
    """Calls a function on one copy of its operands after the other."""
    return lambda i: function(*(copies[i % len(copies)] for copies in operands))


def fixed(function: Callable[..., Any], *operands: Any, **options: Any) -> Call:
    return lambda _i: function(*operands, **options)


def gemms(bench: Bench) -> Iterator[Row]:
    """Forward, by input and by weight: one GEMM with each operand in the layout autograd has it in."""
    for n, k in MATRICES:
        for m in ROWS:
            if m * n > 2**31:
                continue
            copies = max(1, min(4, int(3e8 / (2 * (m * k + n * k)))))
            x, w, y = ([bench.random(*shape) for _ in range(copies)] for shape in ((m, k), (n, k), (m, n)))
            sizes = {"forward": (m, n, k), "by_input": (m, k, n), "by_weight": (n, k, m)}
            calls = {
                "forward": _turns(lambda a, b: a @ b.t(), x, w),
                "by_input": _turns(lambda a, b: a @ b, y, w),
                "by_weight": _turns(lambda a, b: a.t() @ b, y, x),
            }
            for name, call in calls.items():
                shape = dict(zip("mnk", sizes[name], strict=True))
                yield shape | {"op": "gemm", "dtype": "bf16", "kernel": name, "time_us": bench.burst_us(call)}


def attention(bench: Bench) -> Iterator[Row]:
    torch = bench.torch
    for heads, kv_heads, head_dim in HEADS:
        for batch, length in SEQUENCES:
            forward, backward = _attention(bench, batch, length, heads, kv_heads, head_dim)
            shape = {"batch": batch, "q_len": length, "kv_len": length, "dtype": "bf16"}
            shape |= {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
            with torch.no_grad():
                yield shape | {"op": "attention_forward", "time_us": bench.burst_us(forward)}
            yield shape | {"op": "attention_backward", "time_us": bench.burst_us(backward)}


def _attention(bench: Bench, batch: int, length: int, heads: int, kv_heads: int, head_dim: int) -> tuple[Call, Call]:
    torch = bench.torch
    q, k, v = (
        bench.random(batch, length, n, head_dim).transpose(1, 2).requires_grad_() for n in (heads, kv_heads, kv_heads)
    )
    gradient = bench.random(batch, length, heads, head_dim).transpose(1, 2)

    def forward(_i: int) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

    out = forward(0)
    return forward, lambda _i: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def streams(bench: Bench) -> Iterator[Row]:
    """The kernels between the GEMMs; bytes are those that must move."""
    for rows, width in STREAMS:
        size = rows * width * 2
        for name, reads, writes, call in _kernels(bench, rows, width):
            sizes = {"bytes_read": reads * size, "bytes_written": writes * size}
            yield _elementwise(name, sizes, bench.burst_us(call))
    for name, sizes, call in (*_losses(bench), *_updates(bench)):
        yield _elementwise(name, sizes, bench.burst_us(call))


def _elementwise(name: str, sizes: Row, time_us: float) -> Row:
    return sizes | {"op": "elementwise", "dtype": "bf16", "kernel": name, "time_us": time_us}


def _kernels(bench: Bench, rows: int, width: int) -> Iterator[tuple[str, float, float, Call]]:
    torch, f = bench.torch, bench.torch.nn.functional
    x, y = bench.random(rows, width), bench.random(rows, width)
    ones = torch.ones(width, device="cuda", dtype=torch.bfloat16)
    leaf, weight = x.clone().requires_grad_(), ones.clone().requires_grad_()
    head = 128
    cos, sin = (torch.rand(rows, 1, head // 2, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def turned(t: Any) -> Any:
        a, b = t.view(rows, width // head, head).chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    yield "add", 2, 1, lambda _i: x + y
    yield "mul", 2, 1, lambda _i: x * y
    yield "silu", 1, 1, lambda _i: f.silu(x)
    yield "gelu", 1, 1, lambda _i: f.gelu(x, approximate="tanh")
    yield "rms_norm", 1, 1, lambda _i: f.rms_norm(x, (width,), ones)
    yield "layer_norm", 1, 1, lambda _i: f.layer_norm(x, (width,), ones, ones)
    yield "rope", 5, 4, lambda _i: turned(x)
    for name, reads, writes, made, leaves in (
        ("silu.backward", 2, 1, f.silu(leaf), (leaf,)),
        ("gelu.backward", 2, 1, f.gelu(leaf, approximate="tanh"), (leaf,)),
        ("rms_norm.backward", 4, 1, f.rms_norm(leaf, (width,), weight), (leaf, weight)),
        ("layer_norm.backward", 4, 1, f.layer_norm(leaf, (width,), weight, weight), (leaf, weight)),
        ("rope.backward", 5.5, 4.5, turned(leaf).view(rows, width), (leaf,)),
    ):
        yield name, reads, writes, fixed(torch.autograd.grad, made, leaves, y, retain_graph=True)


def _losses(bench: Bench) -> Iterator[tuple[str, Row, Call]]:
    torch, f = bench.torch, bench.torch.nn.functional
    for rows in (2048, 8192):
        values = rows * VOCABULARY
        logits, target = bench.random(rows, VOCABULARY), torch.randint(0, VOCABULARY, (rows,), device="cuda")
        wide = logits.float().requires_grad_()
        loss = f.cross_entropy(wide, target)
        plain = wide.detach()
        yield "widen", {"bytes_read": 2 * values, "bytes_written": 4 * values}, fixed(logits.float)
        yield "narrow", {"bytes_read": 4 * values, "bytes_written": 2 * values}, fixed(plain.bfloat16)
        both = {"bytes_read": 4 * values, "bytes_written": 4 * values}
        yield "loss", both, fixed(f.cross_entropy, wide, target)
        back = {"bytes_read": 8 * values, "bytes_written": 8 * values}
        yield "loss.backward", back, fixed(torch.autograd.grad, loss, wide, retain_graph=True)
    for rows, width in ((8192, 2048), (8192, 4096)):
        table = bench.random(VOCABULARY, width).requires_grad_()
        index = torch.randint(0, VOCABULARY, (rows,), device="cuda")
        found, gradient = f.embedding(index, table), bench.random(rows, width)
        moved = {"bytes_read": 2.0 * rows * width, "bytes_written": 2.0 * VOCABULARY * width + 2.0 * rows * width}
        yield "embedding.backward", moved, fixed(torch.autograd.grad, found, table, gradient, retain_graph=True)


def _updates(bench: Bench) -> Iterator[tuple[str, Row, Call]]:
    torch, count, parts = bench.torch, PARAMETERS, 100
    for name, value in (("float32", 4), ("bfloat16", 2)):
        weights = [torch.nn.Parameter(bench.random(count // parts, dtype=name)) for _ in range(parts)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        gradients, plain = [weight.grad for weight in weights], [weight.data for weight in weights]
        halves = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in plain]
        sums = [torch.zeros_like(weight, dtype=torch.float32) for weight in plain]
        adamw = torch.optim.AdamW(weights, fused=True)
        adamw.step()
        size = value * count
        yield f"adamw.{name}", {"bytes_read": 4 * size, "bytes_written": 3 * size}, fixed(adamw.step)
        yield f"norm.{name}", {"bytes_read": size, "bytes_written": 0}, fixed(torch._foreach_norm, gradients)
        both = {"bytes_read": size, "bytes_written": size}
        yield f"scale.{name}", both, fixed(torch._foreach_mul_, gradients, 1.0)
        if value == 4:
            to = {"bytes_read": size, "bytes_written": 2 * count}
            yield "copy_back", to, fixed(torch._foreach_copy_, halves, plain)
            into = {"bytes_read": 6 * count, "bytes_written": 4 * count}
            yield "accumulate", into, fixed(_add_all, sums, halves)
            cleared = {"bytes_read": 0, "bytes_written": 4 * count}
            yield "zero", cleared, fixed(torch._foreach_zero_, sums)


def _add_all(sums: list[Any], parts: list[Any]) -> None:
    for total, part in zip(sums, parts, strict=True):
        total.add_(part)


def sustained(bench: Bench) -> Iterator[Row]:
    """Operators of different intensity sustained, and one mixture of them."""
    f = bench.torch.nn.functional
    for m, n, k in ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (12288, 12288, 12288),
                    (8192, 14336, 4096), (16384, 8192, 2048), (4096, 2048, 2048)):  # fmt: skip
        x, w = [bench.random(m, k) for _ in range(3)], [bench.random(n, k) for _ in range(3)]
        row = bench.sustained(_turns(lambda a, b: a @ b.t(), x, w))
        moved = 2 * (m * k + n * k + m * n)
        yield row | {"op": "sustained", "kernel": f"gemm {m}x{n}x{k}", "flops": 2 * m * n * k, "bytes": moved}
    a, b = bench.random(16384, 14336), bench.random(16384, 14336)
    row = bench.sustained(lambda _i: a + b)
    yield row | {"op": "sustained", "kernel": "add", "flops": 0, "bytes": 6 * a.numel()}
    forward, backward = _attention(bench, 4, 4096, 32, 8, 128)
    pairs = 4 * 32 * 128 * 4096 * 4097 / 2
    moved = 4 * 4096 * (64 + 16) * 128 * 2
    yield bench.sustained(backward) | {
        "op": "sustained", "kernel": "attention.backward", "flops": 10 * pairs, "bytes": 2 * moved,
    }  # fmt: skip
    with bench.torch.no_grad():
        row = bench.sustained(forward)
    yield row | {"op": "sustained", "kernel": "attention", "flops": 4 * pairs, "bytes": moved}
    x, w = bench.random(8192, 4096), bench.random(4096, 4096)

    def mixture(_i: int) -> None:
        h = x @ w.t()
        f.silu((h + h) * h)

    values = 8192 * 4096
    row = bench.sustained(mixture)
    moved = 2 * (2 * values + 4096**2)
    yield row | {
        "op": "sustained", "kernel": "mixture", "flops": 2 * values * 4096, "bytes": moved + 16 * values,
    }  # fmt: skip


PARTS = {"gemms": gemms, "attention": attention, "streams": streams, "sustained": sustained}


def write_table(path: str, *names: str, parts: Mapping[str, Callable[[Bench], Iterator[Row]]] = PARTS) -> None:
    """Write the table, a part after the other."""
    bench = Bench()
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in names or parts:
            for row in parts[name](bench):
                writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
                file.flush()
            print(f"{name} measured", file=sys.stderr)


if __name__ == "__main__":
    write_table(*sys.argv[1:])
