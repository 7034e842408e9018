"""Kernels of an installed vLLM, which are those its engine runs."""

from __future__ import annotations

from typing import Any

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Lab
from gnomon.calibrate.timer import copies_for

FRAMEWORK = "vllm"
PAGE = 16
MOST_SPLIT_TOKENS, MOST_SPLITS = 512, 32
"""Batches of so few tokens are captured in graphs, for which vLLM fixes the number of splits."""


def vllm_gemm_fp8(lab: Lab, m: int, n: int, k: int) -> Row:
    """Rows and columns scaled, as vLLM's dynamic fp8 does."""
    from vllm import _custom_ops as ops

    torch, copies = lab.torch, copies_for(n * k)
    x, *weights = lab.random("fp8", (m, k), *[(n, k)] * copies)
    scale_x, scale_w = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
    timing = lab.time(
        lambda i: ops.cutlass_scaled_mm(x, weights[i].t(), scale_x, scale_w, torch.bfloat16), copies
    )  # fmt: skip
    return lab.row("gemm", "fp8", timing, framework=FRAMEWORK, m=m, n=n, k=k)


def vllm_attention(
    lab: Lab, batch: int, heads: int, kv_heads: int, head_dim: int, q_len: int, kv_len: int
) -> Row:  # fmt: skip
    """Paged FlashAttention-3: `q_len` new tokens per sequence, `kv_len` keys with them included."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    torch = lab.torch
    pages = (kv_len + PAGE - 1) // PAGE
    copies = copies_for(4 * batch * kv_len * kv_heads * head_dim)
    q, *caches = lab.random(
        "bf16", (batch * q_len, heads, head_dim), *[(batch * pages, PAGE, kv_heads, head_dim)] * (2 * copies)
    )  # fmt: skip
    table = torch.randperm(batch * pages, device="cuda", generator=lab.generator).int().view(batch, pages)
    out = torch.empty_like(q)
    starts = torch.arange(0, (batch + 1) * q_len, q_len, device="cuda", dtype=torch.int32)
    used = torch.full((batch,), kv_len, device="cuda", dtype=torch.int32)
    splits = MOST_SPLITS if batch * q_len <= MOST_SPLIT_TOKENS else 0
    plan = get_scheduler_metadata(
        batch, q_len, kv_len, heads, kv_heads, head_dim, used, cu_seqlens_q=starts, page_size=PAGE,
        causal=True, num_splits=splits,
    )  # fmt: skip

    def call(i: int) -> None:
        flash_attn_varlen_func(
            q, caches[2 * i], caches[2 * i + 1], q_len, starts, kv_len, seqused_k=used, causal=True, block_table=table,
            out=out, scheduler_metadata=plan, num_splits=splits, fa_version=3,
        )  # fmt: skip

    phase = "attention_decode" if q_len == 1 else "attention_prefill"
    shape: dict[str, Any] = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    timing = lab.time(call, copies)
    return lab.row(phase, "bf16", timing, framework=FRAMEWORK, **shape, q_len=q_len, kv_len=kv_len, causal=1)


def vllm_experts(lab: Lab, tokens: int, hidden: int, inter: int, experts: int, topk: int) -> Row:
    """vLLM's fused experts, tokens spread evenly at random."""
    from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

    torch = lab.torch
    x, first, second = lab.random(
        "bf16", (tokens, hidden), (experts, 2 * inter, hidden), (experts, hidden, inter)
    )  # fmt: skip
    chosen: list[Any] = [
        torch.rand(tokens, experts, device="cuda", generator=lab.generator).topk(topk).indices.int() for _ in range(8)
    ]
    weights = torch.full((tokens, topk), 1.0 / topk, device="cuda")
    timing = lab.time(lambda i: fused_experts(x, first, second, weights, chosen[i]), len(chosen))
    shape: dict[str, Any] = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts, "topk": topk}
    return lab.row("moe", "bf16", timing, framework=FRAMEWORK, **shape)


def vllm_stream(lab: Lab, name: str, tokens: int, width: int) -> Row:
    """A norm with its residual, or a gated activation."""
    from vllm import _custom_ops as ops

    torch, size = lab.torch, 2.0 * tokens * width
    x, residual = (side.clone() for side in lab.random("bf16", (tokens, width), (tokens, width)))
    if name == "add_rms_norm":
        ones = torch.ones(width, device="cuda", dtype=torch.bfloat16)
        timing = lab.time(lambda _i: ops.fused_add_rms_norm(x, residual, ones, 1e-6))
        read, written = 2 * size, 2 * size
    else:
        out = lab.empty("bf16", tokens, width // 2)
        timing = lab.time(lambda _i: torch.ops._C.silu_and_mul(out, x))
        read, written = size, size / 2
    sizes = {"tokens": tokens, "bytes_read": read, "bytes_written": written}
    return lab.row("elementwise", "bf16", timing, framework=FRAMEWORK, **sizes, kernel=name)
