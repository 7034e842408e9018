"""Watts, clock and throughput of sustained work of many kinds: `python -m tools.power_loads power.csv`.

Needs torch and an NVIDIA GPU, and takes two and a half minutes. Each load starts after a rest: its first calls are the
burst, a second later the clock has settled and the energy counter is read.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.calibrate.timer import PowerMeter

REST_S, SETTLE_S, READ_S = 0.4, 1.1, 2.4
GRAPH_S = 4e-3
"""Work that one captured graph holds; two of them are far longer than their launch."""
CACHE_BYTES = 40e6
"""Tensors of less than this stay in L2 from call to call."""
ROTATED_BYTES = 200e6
COLUMNS = (
    "op", "kernel", "dtype", "duty", "time_us", "burst_us", "watts", "busy", "sm_hz", "flops", "bytes",
    "cached_bytes", "calls",
)  # fmt: skip
GEMMS = (
    ("bf16", 8192, 8192, 8192), ("bf16", 4096, 4096, 4096), ("bf16", 2048, 2048, 2048), ("bf16", 1024, 1024, 1024),
    ("bf16", 512, 512, 512), ("bf16", 512, 8192, 8192), ("bf16", 128, 8192, 8192), ("bf16", 32, 8192, 8192),
    ("bf16", 8, 16384, 8192), ("fp8", 8192, 8192, 8192), ("fp8", 4096, 14336, 4096), ("fp8", 64, 8192, 8192),
    ("fp32", 4096, 4096, 4096),
)  # fmt: skip
WIDTH = {"bf16": 2, "fp8": 1, "fp32": 4}
LAYER = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
"""Products of a layer of llama-3.1-8b."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A call, with what it computes and moves, from memory and in a cache alone."""

    call: Callable[[int], Any]
    flops: float = 0.0
    bytes: float = 0.0
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    dtype: str
    build: Callable[[Any], Work]
    duty: float = 1.0


def _random(torch: Any, *shape: int, dtype: str = "bf16") -> Any:
    formats = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "fp32": torch.float32}
    made = torch.randn(*shape, device="cuda", dtype=formats["fp32" if dtype == "fp32" else "bf16"])
    return made.to(formats[dtype])


def gemm(torch: Any, dtype: str, m: int, n: int, k: int) -> Work:
    size = WIDTH[dtype]
    x = _random(torch, m, k, dtype=dtype)
    copies = int(min(48, max(2, -(-ROTATED_BYTES // (size * n * k)))))
    weights = [_random(torch, n, k, dtype=dtype) for _ in range(copies)]

    def plain(i: int) -> Any:
        return x @ weights[i % copies].t()

    def scaled(i: int) -> Any:
        return torch._scaled_mm(x, weights[i % copies].t(), scale_a=rows, scale_b=columns, out_dtype=torch.bfloat16)

    rows, columns = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
    moved = size * (m * k + n * k) + max(size, 2) * m * n
    return Work(call=scaled if dtype == "fp8" else plain, flops=2.0 * m * n * k, bytes=float(moved))


def attention(torch: Any, batch: int, heads: int, tokens: int, *, causal: bool = True) -> Work:
    q, k, v = (_random(torch, batch, heads, tokens, 128) for _ in range(3))
    pairs = tokens * (tokens + 1) / 2 if causal else tokens**2
    attend = torch.nn.functional.scaled_dot_product_attention
    kernel, backend = torch.nn.attention.sdpa_kernel, torch.nn.attention.SDPBackend.FLASH_ATTENTION

    def call(_i: int) -> Any:
        with kernel(backend):
            return attend(q, k, v, is_causal=causal)

    return Work(call=call, flops=4.0 * batch * heads * pairs * 128, bytes=8.0 * q.numel())


def decode(torch: Any) -> Work:
    """Scores of 64 sequences of 4096 cached tokens, eight heads to a key."""
    q, keys = _random(torch, 512, 8, 128), [_random(torch, 512, 128, 4096) for _ in range(2)]
    return Work(call=lambda i: torch.bmm(q, keys[i % 2]), flops=2.0 * q.numel() * 4096, bytes=2.0 * keys[0].numel())


def stream(torch: Any, name: str, count: int, dtype: str = "bf16") -> Work:
    a, b, c = (_random(torch, count // 4096, 4096, dtype=dtype) for _ in range(3))
    weight = torch.ones(4096, device="cuda", dtype=a.dtype)
    calls: dict[str, tuple[Callable[[int], Any], int]] = {
        "copy": (lambda _i: b.copy_(a), 2),
        "add": (lambda _i: torch.add(a, b, out=c), 3),
        "sum": (lambda _i: a.sum(dim=-1), 1),
        "exp": (lambda _i: torch.exp(a, out=b), 2),
        "norm": (lambda _i: torch.nn.functional.rms_norm(a, (4096,), weight), 2),
    }
    call, passes = calls[name]
    moved = float(WIDTH[dtype] * count * passes)
    return Work(call=call, cached=moved) if moved < CACHE_BYTES else Work(call=call, bytes=moved)


def mixed(*parts: Work) -> Work:
    def call(i: int) -> None:
        for part in parts:
            part.call(i)

    flops, moved, cached = (sum(getattr(part, name) for part in parts) for name in ("flops", "bytes", "cached"))
    return Work(call=call, flops=flops, bytes=moved, cached=cached)


def layer(torch: Any, tokens: int) -> Work:
    norm = stream(torch, "norm", max(tokens, 16) * 4096)
    return mixed(norm, norm, *(gemm(torch, "bf16", tokens, n, k) for n, k in LAYER))


def _gemm(dtype: str, m: int, n: int, k: int) -> Callable[[Any], Work]:
    return lambda torch: gemm(torch, dtype, m, n, k)


def _stream(name: str, count: int, dtype: str = "bf16") -> Callable[[Any], Work]:
    return lambda torch: stream(torch, name, count, dtype)


def _layer(tokens: int) -> Callable[[Any], Work]:
    return lambda torch: layer(torch, tokens)


def named() -> Iterator[Named]:
    """All loads, in the order in which they run."""
    yield Named("spin", "", lambda torch: Work(call=lambda _i: torch.cuda._sleep(20_000)))
    for dtype, m, n, k in GEMMS:
        yield Named(f"gemm {m}x{n}x{k}", dtype, _gemm(dtype, m, n, k))
    yield Named("attention causal 4x4096", "bf16", lambda torch: attention(torch, 4, 32, 4096))
    yield Named("attention causal 1x16384", "bf16", lambda torch: attention(torch, 1, 16, 16384))
    yield Named("attention full 32x512", "bf16", lambda torch: attention(torch, 32, 32, 512, causal=False))
    yield Named("decode bmm 64x4096", "bf16", decode)
    for name, count, dtype in (
        ("copy", 28, "bf16"), ("add", 27, "bf16"), ("sum", 28, "bf16"), ("exp", 27, "fp32"), ("norm", 27, "bf16"),
    ):  # fmt: skip
        yield Named(name, dtype, _stream(name, 1 << count, dtype))
    yield Named("add in l2", "bf16", _stream("add", 1 << 21))
    yield Named("add tiny", "bf16", _stream("add", 1 << 14))
    for tokens in (4096, 256, 16):
        yield Named(f"layer {tokens} tokens", "bf16", _layer(tokens))
    big = ("bf16", 4096, 4096, 4096)
    yield Named(
        "mixed gemm and copy",
        "bf16",
        lambda torch: mixed(gemm(torch, *big), gemm(torch, *big), stream(torch, "copy", 1 << 28)),
    )
    for duty in (0.75, 0.5, 0.25):
        yield Named("duty gemm", "bf16", _gemm("bf16", 8192, 8192, 8192), duty)
    yield Named("duty copy", "bf16", _stream("copy", 1 << 28), 0.5)


def captured(torch: Any, call: Callable[[int], Any]) -> tuple[Any, int]:
    """A graph of calls, and how many it holds."""
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        for i in range(3):
            call(i)
        side.synchronize()
        start.record()
        call(0)
        end.record()
        end.synchronize()
    many = int(min(400, max(1, round(GRAPH_S / max(start.elapsed_time(end) * 1e-3, 2e-6)))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for i in range(many):
            call(i)
    graph.replay()
    torch.cuda.synchronize()
    return graph, many


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """Device seconds of two replays at a time, and what the meter said of all of them."""

    pieces: list[float]
    wall_s: float
    joules: float
    sm_hz: float


def _drive(torch: Any, meter: PowerMeter, graph: Any, seconds: float, duty: float) -> Driven:
    pieces: list[float] = []
    clocks: list[float] = []
    begun, energy = time.monotonic(), meter.joules
    while time.monotonic() - begun < seconds:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        graph.replay()
        end.record()
        clocks.append(meter.sm_hz)
        end.synchronize()
        pieces.append(start.elapsed_time(end) * 1e-3)
        time.sleep(pieces[-1] * (1 / duty - 1))
    wall = time.monotonic() - begun
    return Driven(pieces=pieces, wall_s=wall, joules=meter.joules - energy, sm_hz=statistics.median(clocks))


def measure(torch: Any, meter: PowerMeter, load: Named) -> dict[str, Any]:
    work = load.build(torch)
    graph, many = captured(torch, work.call)
    time.sleep(REST_S)
    first = _drive(torch, meter, graph, SETTLE_S, load.duty)
    then = _drive(torch, meter, graph, READ_S, load.duty)
    row = {
        "op": "sustained", "kernel": load.name, "dtype": load.dtype, "duty": load.duty, "calls": many,
        "time_us": statistics.fmean(then.pieces) / (2 * many) * 1e6,
        "burst_us": statistics.median(first.pieces[1:4]) / (2 * many) * 1e6,
        "watts": then.joules / then.wall_s, "busy": sum(then.pieces) / then.wall_s, "sm_hz": then.sm_hz,
    }  # fmt: skip
    return row | {"flops": work.flops, "bytes": work.bytes, "cached_bytes": work.cached}


def rest(meter: PowerMeter, seconds: float = 1.0) -> dict[str, Any]:
    begun, energy = time.monotonic(), meter.joules
    time.sleep(seconds)
    watts = (meter.joules - energy) / (time.monotonic() - begun)
    nothing = dict.fromkeys(("duty", "busy", "flops", "bytes", "cached_bytes", "calls"), 0.0)
    return nothing | {"op": "sustained", "kernel": "rest", "dtype": "", "time_us": 1.0, "watts": watts}


def write_table(path: str) -> None:
    """Write the table, load by load."""
    import torch

    meter = PowerMeter()
    torch.zeros(1, device="cuda")
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerow(rest(meter))
        for load in named():
            row = measure(torch, meter, load)
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
            file.flush()
            torch.cuda.empty_cache()
            print(f"{load.name} {row['watts']:.0f} W", file=sys.stderr)


if __name__ == "__main__":
    write_table(sys.argv[1])
