"""Power, clock and rate of work of different intensity, once the card has settled under it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.kernels.attention import attention_of
from gnomon.calibrate.lab import FORMATS, Lab
from gnomon.calibrate.timer import captured, copies_for

SECONDS = 1.5
"""To settle, and again to read."""
REST_S = 0.5
COOL_S = 0.8
"""After heavy work, until a burst is one."""
BATCH_S, MOST_CALLS = 0.02, 2000
"""Work is replayed in graphs of about so long, so that the host does not hold it up."""


def sustained(lab: Lab, name: str, m: int = 0, n: int = 0, k: int = 0, seconds: float = SECONDS) -> Row:
    """A GEMM in some format, a plain sum of two arrays, attention over whole sequences, or nothing at all."""
    if name == "rest":
        return _rest(lab)
    makers = {"add": _add, "attention": _attention}
    run, flops, moved, copies = makers[name](lab, m, n, k) if name in makers else _gemm(lab, name, m, n, k)
    time.sleep(COOL_S)
    once = lab.time(run, copies).seconds
    batch = max(copies, min(MOST_CALLS, int(BATCH_S / once)))
    graph = captured(lab.torch, run, batch, copies)
    for _ in ("settle", "read"):
        lab.torch.cuda.synchronize()
        start, energy, calls, clocks = time.monotonic(), lab.card.joules, 0, []
        while time.monotonic() - start < seconds:
            graph.replay()
            clocks.append(lab.card.sm_hz)
            lab.torch.cuda.synchronize()
            calls += batch
        took = time.monotonic() - start
    dtype = name if name not in makers else "bf16"
    kind = name if name in makers else "gemm_fp8" if name == "fp8" else "gemm"
    return {
        "op": "sustained", "kernel": kind, "dtype": dtype, "framework": "torch", "m": m, "n": n, "k": k,
        "time_us": took / calls * 1e6, "burst_us": once * 1e6, "watts": (lab.card.joules - energy) / took,
        "sm_hz": sorted(clocks)[len(clocks) // 2], "flops": flops, "bytes": moved,
    }  # fmt: skip


Work = tuple[Callable[[int], Any], float, float, int]
"""What to run, its FLOPs and its bytes, and how many copies of its operands take turns."""


def _gemm(lab: Lab, dtype: str, m: int, n: int, k: int) -> Work:
    size = FORMATS[dtype].size
    torch, copies = lab.torch, copies_for(size * n * k)
    x, *weights = lab.random(dtype, (m, k), *[(n, k)] * copies)
    flops, moved = 2.0 * m * n * k, size * (m * k + n * k) + 2.0 * m * n
    if dtype != "fp8":
        return (lambda i: x @ weights[i].t()), flops, moved, copies
    scales = {"scale_a": torch.ones(m, 1, device="cuda"), "scale_b": torch.ones(1, n, device="cuda")}
    options = scales | {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return (lambda i: torch._scaled_mm(x, weights[i].t(), **options)), flops, moved, copies


def _add(lab: Lab, m: int, _n: int, k: int) -> Work:
    x, y = lab.random("bf16", (m, k), (m, k))
    out = lab.torch.empty_like(x)
    return (lambda _i: lab.torch.add(x, y, out=out)), 0.0, 6.0 * m * k, 1


def _attention(lab: Lab, batch: int, heads: int, length: int) -> Work:
    """Sequences of `length` tokens, heads of 128 channels, a quarter as many of keys."""
    dim = 128
    q, k, v = lab.random("bf16", *[(batch, n, length, dim) for n in (heads, heads // 4, heads // 4)])
    attend = attention_of(lab)
    pairs = batch * heads * dim * length * (length + 1) / 2
    moved = 2.0 * batch * length * dim * 2.5 * heads
    return (lambda _i: attend(q, k, v, is_causal=True, enable_gqa=True)), 4.0 * pairs, moved, 1


def _rest(lab: Lab) -> Row:
    """A card that has just worked and does nothing: its clock is still up."""
    start, energy = time.monotonic(), lab.card.joules
    time.sleep(REST_S)
    watts = (lab.card.joules - energy) / (time.monotonic() - start)
    return {
        "op": "sustained", "kernel": "rest", "dtype": "bf16", "framework": "torch", "time_us": 1.0, "watts": watts,
        "sm_hz": lab.card.sm_hz, "flops": 0.0, "bytes": 0.0,
    }  # fmt: skip
