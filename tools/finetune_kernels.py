"""Measures what fine-tuning, narrow optimizers and offloading add to a training step: nf4 dequantised, GEMMs of low
rank, 8-bit AdamW, Newton-Schulz iterations, grouped and scaled GEMMs, copies between host and card, AdamW on the host.

    python -m tools.finetune_kernels OUT.csv [PART ...]

nf4 and 8-bit AdamW are bitsandbytes's and are left out where it cannot be imported.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tools.training_kernels import Bench, Call, Row, fixed, write_table

WEIGHTS = (
    (1024, 4096), (4096, 4096), (11008, 4096), (14336, 4096), (3584, 3584), (18944, 3584), (5120, 5120),
    (13824, 5120), (8192, 8192), (28672, 8192),
)  # fmt: skip
ROWS = (4096, 16384)
WIDTHS = (4096, 11008)
RANKS = (8, 16, 64)
SQUARES = ((2048, 1024), (4096, 1024), (2048, 2048), (4096, 4096), (11008, 4096), (18944, 3584), (13824, 5120))
EXPERTS = ((64, 2048, 1024, 65536), (128, 2048, 768, 65536), (8, 4096, 14336, 16384), (64, 2048, 1024, 32768))
SCALED = ((8192, 4096, 4096), (8192, 14336, 4096), (16384, 8192, 8192), (8192, 28672, 8192), (8192, 8192, 28672))
COPIED = (2**20, 2**23, 2**26, 2**29)
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
STEPS = 5
KINDS = {"bfloat16": "bf16", "float32": "fp32"}


def _row(kernel: str, dtype: str, time_us: float, **sizes: float) -> Row:
    return {"op": "elementwise", "dtype": dtype, "kernel": kernel, "time_us": time_us, **sizes}


def _gemm(bench: Bench, kernel: str, left: Any, right: Any, dtype: str = "bf16") -> Row:
    """A product of two matrices, timed."""
    sizes = {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]}
    call = fixed(bench.torch.matmul, left, right)
    return {"op": "gemm", "dtype": dtype, "kernel": kernel, "time_us": bench.burst_us(call), **sizes}


def nf4(bench: Bench) -> Iterator[Row]:
    """Weights of 4 bits to bf16, their scales in fp32 or quantised once more."""
    try:
        from bitsandbytes import functional
    except ImportError as error:
        print(f"nf4 left out: {error}", file=sys.stderr)
        return
    for n, k in WEIGHTS:
        for twice in (True, False):
            made = [
                functional.quantize_4bit(bench.random(n, k), quant_type="nf4", compress_statistics=twice)
                for _ in range(max(1, min(8, int(2e8 / (n * k)))))
            ]
            time_us = bench.burst_us(_in_turn(functional.dequantize_4bit, made))
            scales = n * k / 64 * (1 if twice else 4)
            sizes = {"n": n, "k": k, "bytes_read": n * k / 2 + scales, "bytes_written": 2 * n * k}
            yield _row("nf4.double" if twice else "nf4", "bf16", time_us, **sizes)


def _in_turn(function: Callable[..., Any], made: list[Any]) -> Call:
    return lambda i: function(*made[i % len(made)])


def low_rank(bench: Bench) -> Iterator[Row]:
    """An adapter's GEMMs: down to its rank and up again, and their gradients."""
    for dtype, ranks in (("bfloat16", RANKS), ("float32", (16,))):
        for rank in ranks:
            for m in ROWS:
                for k in WIDTHS:
                    x, a, h = (bench.random(*shape, dtype=dtype) for shape in ((m, k), (rank, k), (m, rank)))
                    for name, left, right in (
                        ("down", x, a.t()),
                        ("up", h, a),
                        ("down.wgrad", h.t(), x),
                        ("up.wgrad", x.t(), h),
                    ):
                        yield _gemm(bench, f"low_rank.{name}", left, right, KINDS[dtype])


def narrow_updates(bench: Bench) -> Iterator[Row]:
    """AdamW with moments of a byte, over one tensor and over the tensors of a network."""
    try:
        import bitsandbytes
    except ImportError as error:
        print(f"8-bit AdamW left out: {error}", file=sys.stderr)
        return
    for value, name in ((2, "bfloat16"), (4, "float32")):
        for parts, each in ((1, 2**28), (64, 4096 * 4096), (256, 1024 * 1024)):
            weights = [bench.torch.nn.Parameter(bench.random(each // 1024, 1024, dtype=name)) for _ in range(parts)]
            for weight in weights:
                weight.grad = bench.torch.randn_like(weight)
            update = bitsandbytes.optim.AdamW8bit(weights, lr=1e-4)
            update.step()
            count = parts * each
            sizes = {"n": parts, "bytes_read": (2 * value + 2) * count, "bytes_written": (value + 2) * count}
            yield _row("adamw8bit", KINDS[name], bench.burst_us(fixed(update.step)), **sizes)
            del update, weights


def newton_schulz(bench: Bench) -> Iterator[Row]:
    """Muon's five iterations on a matrix, and the three GEMMs of one."""
    addmm, (a, b, c) = bench.torch.addmm, NEWTON_SCHULZ

    def orthogonal(x: Any) -> Any:
        x = x.bfloat16()
        x = x.t() if x.shape[0] > x.shape[1] else x
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(STEPS):
            gram = x @ x.t()
            x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x

    for n, k in SQUARES:
        call = fixed(orthogonal, bench.random(n, k, dtype="float32"))
        timed = bench.sustained(call) if n == 4096 else {"time_us": bench.burst_us(call)}
        low, high = min(n, k), max(n, k)
        flops = STEPS * (4 * low * low * high + 2 * low**3)
        yield {"op": "newton_schulz", "dtype": "bf16", "kernel": "muon", "m": n, "n": k, "flops": flops} | timed
        x, gram = bench.random(low, high), bench.random(low, low)
        for name, (m, width, depth), call in (
            ("gram", (low, low, high), fixed(bench.torch.matmul, x, x.t())),
            ("square", (low, low, low), fixed(addmm, gram, gram, gram, beta=b, alpha=c)),
            ("product", (low, high, low), fixed(addmm, x, gram, x, beta=a)),
        ):
            sizes = {"m": m, "n": width, "k": depth}
            yield {"op": "gemm", "dtype": "bf16", "kernel": f"muon.{name}", "time_us": bench.burst_us(call)} | sizes


def grouped(bench: Bench) -> Iterator[Row]:
    """Experts as one grouped GEMM, forward, by input and by weight, in even groups; rows taken and put back."""
    torch = bench.torch
    multiply = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    for experts, hidden, inner, rows in EXPERTS:
        ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (rows // experts)
        x, y = bench.random(rows, hidden), bench.random(rows, inner)
        up = bench.random(experts, hidden, inner)
        for name, call in (
            ("forward", fixed(multiply, x, up, offs=ends)),
            ("by_input", fixed(multiply, y, up.transpose(-2, -1), offs=ends)),
            ("by_weight", fixed(multiply, x.t(), y, offs=ends)),
        ):
            sizes = {"batch": experts, "m": rows, "n": inner, "k": hidden}
            timed = bench.sustained(call) if name == "forward" else {"time_us": bench.burst_us(call)}
            yield {"op": "grouped_gemm", "dtype": "bf16", "kernel": name} | sizes | timed
        yield from _permuted(bench, experts, x)


def _permuted(bench: Bench, experts: int, x: Any) -> Iterator[Row]:
    """Rows in the order of their experts, scaled, and added up where they came from."""
    torch, (rows, hidden) = bench.torch, x.shape
    chosen = torch.randint(0, experts, (rows,), device="cuda")
    back = chosen.argsort() // 8
    source, weight = bench.random(rows // 8, hidden), bench.random(rows, 1)
    sums = torch.zeros(rows // 8, hidden, device="cuda", dtype=torch.bfloat16)
    moved = 2.0 * rows * hidden
    for name, call in (
        ("argsort", fixed(chosen.argsort)),
        ("gather", lambda _i: source[back]),
        ("scale", lambda _i: x * weight),
        ("scatter_add", fixed(sums.index_add_, 0, back, x)),
    ):
        sizes = {"m": rows, "n": hidden, "bytes_read": moved, "bytes_written": moved}
        yield _row(f"permute.{name}", "bf16", bench.burst_us(call), **sizes)


def routed(bench: Bench) -> Iterator[Row]:
    """Rows to experts and back as the built-in runner moves them, and their gradients, with the bytes that they are
    priced by. What chooses experts is many short kernels, which wait for the host when they are alone."""
    from gnomon.engines.torch.experts import MixtureOfExperts
    from gnomon.engines.torch.style import routing_streams
    from gnomon.spec import MoeFfn

    torch = bench.torch
    for experts, topk, hidden, tokens in ((64, 8, 2048, 8192), (128, 8, 2048, 4096), (8, 2, 4096, 8192)):
        with torch.device("cuda"):
            mixture = MixtureOfExperts(hidden, MoeFfn(experts=experts, topk=topk, inner=256)).bfloat16()
        shares, chosen = mixture.shares_of(bench.random(tokens, experts).requires_grad_())
        order, back, _ = mixture.ordered(chosen)
        rows, given = (bench.random(count, hidden).requires_grad_() for count in (tokens, tokens * topk))
        parts: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
            "permute": (partial(mixture.permuted, rows, order, back), (rows,)),
            "unpermute": (partial(mixture.summed, given, order, back, shares), (given, shares)),
        }
        for name, (run, inputs) in parts.items():
            stream, made = routing_streams(topk)[name], run()
            with torch.no_grad():
                forward_us = bench.burst_us(fixed(run))
            gradient = fixed(torch.autograd.grad, made, inputs, torch.randn_like(made), retain_graph=True)
            for kind, time_us, one in (
                ("", forward_us, stream),
                (".backward", bench.burst_us(gradient), stream.backward),
            ):
                sizes = {
                    "bytes_read": 2.0 * given.numel() * one.reads,
                    "bytes_written": 2.0 * given.numel() * one.writes,
                }
                yield _row(f"experts.{name}{kind}", "bf16", time_us, **sizes)


def scaled(bench: Bench) -> Iterator[Row]:
    """GEMMs in fp8 with a scale for each tensor, each row, or each block."""
    torch = bench.torch
    one = torch.ones((), device="cuda")
    for m, n, k in SCALED:
        x, w = bench.random(m, k).to(torch.float8_e4m3fn), bench.random(n, k).to(torch.float8_e4m3fn)
        rows, columns = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
        blocks = torch.ones(k // 128, m, device="cuda").t(), torch.ones(n // 128, k // 128, device="cuda").t()
        for name, scales in (("tensor", (one, one)), ("row", (rows, columns)), ("block", blocks)):
            fast = name == "tensor"
            call = fixed(torch._scaled_mm, x, w.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast)
            try:
                timed = bench.sustained(call) if m > 8192 else {"time_us": bench.burst_us(call)}
            except (RuntimeError, ValueError) as error:
                print(f"scaled {name} {m}x{n}x{k}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            yield {"op": "scaled_gemm", "dtype": "fp8", "kernel": name, "m": m, "n": n, "k": k} | timed


def copies(bench: Bench) -> Iterator[Row]:
    """Pinned copies each way alone, both at once, and beside GEMMs."""
    torch = bench.torch
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for size in COPIED:
        moves = _moves(torch, size)
        for name, move in moves.items():
            yield _row(name, "uint8", bench.burst_us(move), bytes_read=size, bytes_written=size)
        if size >= 2**26:
            both = fixed(_on_streams, torch, tuple(moves.values()), streams)
            yield _row("both_ways", "uint8", _wall_us(torch, both, 8), bytes_read=2 * size, bytes_written=2 * size)
    left, right = bench.random(8192, 8192), bench.random(8192, 8192)
    multiply = fixed(torch.matmul, left, right)
    cube = {"op": "gemm", "dtype": "bf16", "m": 8192, "n": 8192, "k": 8192}
    yield cube | {"kernel": "alone", "time_us": _wall_us(torch, multiply, 400)}
    for names in (("to_host",), ("to_card",), ("to_host", "to_card")):
        gemm_us, copy_us = _beside(torch, multiply, tuple(moves[name] for name in names), streams)
        figures = {"time_us": gemm_us, "burst_us": copy_us, "bytes_read": size * len(names)}
        yield cube | {"kernel": f"beside {' and '.join(names)}"} | figures


def _moves(torch: Any, size: int) -> dict[str, Call]:
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    card = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
    return {
        "to_host": fixed(host[0].copy_, card[0], non_blocking=True),
        "to_card": fixed(card[1].copy_, host[1], non_blocking=True),
    }


def _on_streams(torch: Any, moves: tuple[Call, ...], streams: tuple[Any, ...]) -> None:
    for move, stream in zip(moves, streams, strict=False):
        with torch.cuda.stream(stream):
            move(0)


def _beside(torch: Any, multiply: Call, moves: tuple[Call, ...], streams: tuple[Any, ...]) -> tuple[float, float]:
    """Microseconds of a GEMM while copies run, and of one copy while GEMMs do."""
    torch.cuda.synchronize()
    copied, multiplied = ([torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(2))
    count, repeats = 40, 250
    copied[0].record(streams[0])
    for _ in range(count):
        _on_streams(torch, moves, streams)
    copied[1].record(streams[0])
    multiplied[0].record()
    for i in range(repeats):
        multiply(i)
    multiplied[1].record()
    torch.cuda.synchronize()
    return multiplied[0].elapsed_time(multiplied[1]) * 1e3 / repeats, copied[0].elapsed_time(copied[1]) * 1e3 / count


def _wall_us(torch: Any, call: Call, repeats: int) -> float:
    call(0)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(repeats):
        call(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats * 1e6


def host_updates(bench: Bench) -> Iterator[Row]:
    """Fused AdamW in fp32 on the host's processors by size and threads, and values narrowed and widened there."""
    torch, every = bench.torch, os.cpu_count() or 1
    for count, threads in ((2**24, every), (2**27, every), (2**29, every), (2**27, max(1, every // 2)), (2**27, 4)):
        torch.set_num_threads(threads)
        weight = torch.nn.Parameter(torch.ones(count))
        weight.grad, narrow = torch.ones(count), torch.empty(count, dtype=torch.bfloat16)
        update = torch.optim.AdamW([weight], fused=True)
        update.step()
        for name, dtype, call, read, written in (
            ("host.adamw", "fp32", fixed(update.step), 16.0, 12.0),
            ("host.narrow", "bf16", fixed(narrow.copy_, weight.data), 4.0, 2.0),
            ("host.widen", "bf16", fixed(weight.grad.copy_, narrow), 2.0, 4.0),
        ):
            sizes = {"m": threads, "n": count, "bytes_read": read * count, "bytes_written": written * count}
            yield _row(name, dtype, min(_timed_us(call) for _ in range(4)), **sizes)
    torch.set_num_threads(every)


def _timed_us(call: Call) -> float:
    start = time.perf_counter()
    call(0)
    return (time.perf_counter() - start) * 1e6


PARTS = {
    "nf4": nf4, "low_rank": low_rank, "narrow_updates": narrow_updates, "newton_schulz": newton_schulz,
    "grouped": grouped, "routed": routed, "scaled": scaled, "copies": copies, "host_updates": host_updates,
}  # fmt: skip

if __name__ == "__main__":
    write_table(*sys.argv[1:], parts=PARTS)
