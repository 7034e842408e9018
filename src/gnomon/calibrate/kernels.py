"""Microbenchmarks, one function a family: shapes in, rows of the `gnomon ops` table out.

GEMM, copies and attention-free operators need torch alone. Attention, norms and experts run the kernels of
an installed vLLM, since those are what its engine runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gnomon.calibrate.timer import PowerMeter, Timing, copies_for, time_call

Row = dict[str, Any]


def _row(op: str, dtype: str, timing: Timing, **shape: Any) -> Row:
    return {"op": op, "dtype": dtype, **shape, "time_us": timing.seconds * 1e6, "spread": timing.spread}


def gemm_bf16(torch: Any, m: int, n: int, k: int) -> Row:
    copies = copies_for(2 * n * k)
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(copies)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    timing = time_call(torch, lambda i: torch.mm(x, weights[i].t(), out=out), copies)
    return _row("gemm", "bf16", timing, m=m, n=n, k=k)


def gemm_fp8(torch: Any, m: int, n: int, k: int) -> Row:
    """Rows and columns scaled, as vLLM's dynamic fp8 does."""
    copies = copies_for(n * k)
    fp8 = torch.float8_e4m3fn
    x = torch.randn(m, k, device="cuda").to(fp8)
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16).to(fp8) for _ in range(copies)]
    sx = torch.ones(m, 1, device="cuda")
    sw = torch.ones(1, n, device="cuda")
    run = _scaled_mm(torch)
    timing = time_call(torch, lambda i: run(x, weights[i].t(), sx, sw), copies)
    return _row("gemm", "fp8", timing, m=m, n=n, k=k)


def _scaled_mm(torch: Any) -> Any:
    try:
        from vllm import _custom_ops as ops

        return lambda a, b, sa, sb: ops.cutlass_scaled_mm(a, b, sa, sb, torch.bfloat16)
    except ImportError:
        return lambda a, b, sa, sb: torch._scaled_mm(a, b, scale_a=sa, scale_b=sb, out_dtype=torch.bfloat16)


def attention(torch: Any, batch: int, heads: int, kv_heads: int, head_dim: int, q_len: int, kv_len: int) -> Row:
    """Paged FlashAttention-3 of vLLM: `q_len` new tokens a sequence, `kv_len` keys with them included."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    block = 16
    pages = (kv_len + block - 1) // block
    copies = copies_for(4 * batch * kv_len * kv_heads * head_dim)
    shape = (batch * pages, block, kv_heads, head_dim)
    caches = [[torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for _ in range(copies)]
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    q = torch.randn(batch * q_len, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    starts = torch.arange(0, (batch + 1) * q_len, q_len, device="cuda", dtype=torch.int32)
    used = torch.full((batch,), kv_len, device="cuda", dtype=torch.int32)
    splits = 32 if batch * q_len <= 512 else 0
    plan = get_scheduler_metadata(
        batch, q_len, kv_len, heads, kv_heads, head_dim, used, cu_seqlens_q=starts, page_size=block,
        causal=True, num_splits=splits,
    )  # fmt: skip

    def call(i: int) -> None:
        flash_attn_varlen_func(
            q, caches[i][0], caches[i][1], q_len, starts, kv_len, seqused_k=used, causal=True, block_table=table,
            out=out, scheduler_metadata=plan, num_splits=splits, fa_version=3,
        )  # fmt: skip

    phase = "attention_decode" if q_len == 1 else "attention_prefill"
    return _row(
        phase, "bf16", time_call(torch, call, copies), batch=batch, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, q_len=q_len, kv_len=kv_len, causal=1,
    )  # fmt: skip


def moe(torch: Any, tokens: int, hidden: int, inter: int, experts: int, topk: int) -> Row:
    """vLLM's fused experts, tokens spread evenly at random."""
    from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    w1 = torch.randn(experts, 2 * inter, hidden, device="cuda", dtype=torch.bfloat16) * 0.02
    w2 = torch.randn(experts, hidden, inter, device="cuda", dtype=torch.bfloat16) * 0.02
    chosen = [torch.rand(tokens, experts, device="cuda").topk(topk).indices.int() for _ in range(8)]
    weights = torch.full((tokens, topk), 1.0 / topk, device="cuda")
    timing = time_call(torch, lambda i: fused_experts(x, w1, w2, weights, chosen[i]), len(chosen))
    return _row("moe", "bf16", timing, tokens=tokens, hidden=hidden, inter=inter, experts=experts, topk=topk)


def elementwise(torch: Any, name: str, tokens: int, width: int) -> Row:
    """Norm with residual, gated activation, copy: vLLM's own kernels but for the copy."""
    x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    size = 2.0 * tokens * width
    if name == "copy":
        y = torch.empty_like(x)
        timing, read, written = time_call(torch, lambda i: y.copy_(x)), size, size
    elif name == "add_rms_norm":
        from vllm import _custom_ops as ops

        residual, weight = torch.randn_like(x), torch.ones(width, device="cuda", dtype=torch.bfloat16)
        timing = time_call(torch, lambda i: ops.fused_add_rms_norm(x, residual, weight, 1e-6))
        read, written = 2 * size, 2 * size
    else:
        out = torch.empty(tokens, width // 2, device="cuda", dtype=torch.bfloat16)
        timing = time_call(torch, lambda i: torch.ops._C.silu_and_mul(out, x))
        read, written = size, size / 2
    sizes = {"tokens": tokens, "bytes_read": read, "bytes_written": written}
    return _row("elementwise", "bf16", timing, kernel=name, **sizes)


SUSTAINED = (("gemm", 8192, 8192, 8192), ("gemm", 256, 8192, 8192), ("gemm", 8, 16384, 8192), ("copy", 0, 0, 0))


def sustained(torch: Any, seconds: float = 1.5) -> Iterator[Row]:
    """Power, clock and rate of work of different intensity once the card has settled."""
    meter = PowerMeter()
    for name, m, n, k in SUSTAINED:
        yield _sustain(torch, meter, name, m, n, k, seconds)
    yield _rest(meter)


def _rest(meter: PowerMeter) -> Row:
    """A card that has just worked and does nothing: its clock is still up."""
    import time

    start, energy = time.monotonic(), meter.joules
    time.sleep(0.5)
    watts = (meter.joules - energy) / (time.monotonic() - start)
    return {
        "op": "sustained", "kernel": "rest", "dtype": "bf16", "time_us": 1.0, "watts": watts, "sm_hz": meter.sm_hz,
        "flops": 0.0, "bytes": 0.0,
    }  # fmt: skip


def _sustain(torch: Any, meter: PowerMeter, name: str, m: int, n: int, k: int, seconds: float) -> Row:
    import time

    if name == "gemm":
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(copies_for(2 * n * k))]
        flops, moved = 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n)

        def run(i: int) -> Any:
            return x @ weights[i % len(weights)].t()
    else:
        source = torch.randn(256 << 20, device="cuda", dtype=torch.bfloat16)
        target = torch.empty_like(source)
        flops, moved = 0.0, 4.0 * source.numel()

        def run(i: int) -> Any:
            return target.copy_(source)

    once = time_call(torch, run).seconds
    batch = max(1, int(0.02 / once))
    for _ in ("settle", "read"):
        torch.cuda.synchronize()
        start, energy, calls, hz = time.monotonic(), meter.joules, 0, []
        while time.monotonic() - start < seconds:
            for i in range(batch):
                run(i)
            torch.cuda.synchronize()
            calls += batch
            hz.append(meter.sm_hz)
        took = time.monotonic() - start
    return {
        "op": "sustained", "kernel": name, "dtype": "bf16", "m": m, "n": n, "k": k, "time_us": took / calls * 1e6,
        "burst_us": once * 1e6, "watts": (meter.joules - energy) / took, "sm_hz": sorted(hz)[len(hz) // 2],
        "flops": flops, "bytes": moved,
    }  # fmt: skip
