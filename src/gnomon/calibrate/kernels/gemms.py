"""GEMMs of PyTorch: cuBLAS in every format of the card, batched ones, and grouped ones of experts."""

from __future__ import annotations

from typing import Any

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import FORMATS, Lab
from gnomon.calibrate.timer import copies_for


def gemm(lab: Lab, dtype: str, m: int, n: int, k: int) -> Row:
    """Activations by a row-major weight, as in `torch.nn.Linear`."""
    torch, copies = lab.torch, copies_for(FORMATS[dtype].size * n * k)
    if dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    x, *weights = lab.random(dtype, (m, k), *[(n, k)] * copies)
    out = lab.empty(dtype, m, n)
    timing = lab.time(lambda i: torch.mm(x, weights[i].t(), out=out), copies)
    return lab.row("gemm", dtype, timing, m=m, n=n, k=k)


def gemm_fp8(lab: Lab, m: int, n: int, k: int) -> Row:
    """One scale per row of activations and per column of weights."""
    torch, copies = lab.torch, copies_for(n * k)
    x, *weights = lab.random("fp8", (m, k), *[(n, k)] * copies)
    scale_x, scale_w = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")

    def call(i: int) -> Any:
        return torch._scaled_mm(
            x, weights[i].t(), scale_a=scale_x, scale_b=scale_w, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    return lab.row("gemm", "fp8", lab.time(call, copies), m=m, n=n, k=k)


def gemm_int8(lab: Lab, m: int, n: int, k: int) -> Row:
    copies = copies_for(n * k)
    x, *weights = lab.random("int8", (m, k), *[(n, k)] * copies)
    timing = lab.time(lambda i: lab.torch._int_mm(x, weights[i].t()), copies)
    return lab.row("gemm", "int8", timing, m=m, n=n, k=k)


def gemm_batched(lab: Lab, batch: int, m: int, n: int, k: int) -> Row:
    copies = copies_for(2 * batch * (n + m) * k)
    sides = lab.random("bf16", *[(batch, m, k), (batch, k, n)] * copies)
    timing = lab.time(lambda i: lab.torch.bmm(sides[2 * i], sides[2 * i + 1]), copies)
    return lab.row("gemm", "bf16", timing, batch=batch, m=m, n=n, k=k)


def experts(lab: Lab, tokens: int, hidden: int, inter: int, experts: int, topk: int) -> Row:
    """Gather by expert, two grouped GEMMs with a gated activation between them, and the weighted sum."""
    torch = lab.torch
    x, first, second = lab.random(
        "bf16", (tokens, hidden), (experts, 2 * inter, hidden), (experts, hidden, inter)
    )  # fmt: skip
    chosen = torch.rand(tokens, experts, device="cuda", generator=lab.generator).topk(topk).indices.flatten()
    order = chosen.argsort()
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).int()
    source, share = order // topk, torch.full((tokens * topk, 1), 1.0 / topk, device="cuda", dtype=torch.bfloat16)
    out = lab.empty("bf16", tokens, hidden)

    def call(_i: int) -> None:
        inside = torch._grouped_mm(x[source], first.transpose(-2, -1), offs=ends)
        gate, up = inside.chunk(2, dim=-1)
        made = torch._grouped_mm(torch.nn.functional.silu(gate) * up, second.transpose(-2, -1), offs=ends)
        out.zero_().index_add_(0, source, made * share)

    shape: dict[str, Any] = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts, "topk": topk}
    return lab.row("moe", "bf16", lab.time(call), **shape)
