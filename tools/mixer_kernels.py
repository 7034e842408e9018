"""Measures, with vLLM's own kernels, what models beyond grouped-query attention in 16 bits run: latent and windowed
attention, state-space and delta-rule scans, and GEMMs with 4-bit weights.

    python -m tools.mixer_kernels mixers.csv [latent_decode windows …]
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from gnomon.calibrate.collect import torch_module
from gnomon.calibrate.timer import copies_for, time_call

COLUMNS = (
    "op", "dtype", "mixer", "m", "n", "k", "batch", "tokens", "hidden", "inter", "experts", "topk", "heads", "kv_heads",
    "q_len", "kv_len", "head_dim", "value_dim", "window", "kv_rank", "rope_dim", "sequences", "state_dim", "groups",
    "chunk", "state_bytes", "kernel", "time_us", "spread",
)  # fmt: skip
BLOCK = 16
KV_RANK, ROPE = 512, 64
MATRICES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 28672), (5120, 5120))
ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
EXPERTS = ((2880, 2880, 32, 4), (2048, 768, 128, 8), (4096, 1536, 128, 8))
GROUP = 128

Row = dict[str, Any]
Call = Callable[[int], Any]


def latent_decode(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    """FlashAttention-3 over the cached latent, as the default backend on Hopper calls it."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    shapes = [*product((1, 8, 32, 128), (16, 128), (1024, 8192)), (64, 16, 4096), (64, 32, 2048), (16, 64, 32768)]
    for batch, heads, kv_len in shapes:
        pages = kv_len // BLOCK
        copies = copies_for(2 * batch * kv_len * (KV_RANK + ROPE))
        size = (batch * pages, BLOCK, 1, KV_RANK + ROPE)
        caches = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
        turned = torch.randn(batch, heads, ROPE, device="cuda", dtype=torch.bfloat16)
        folded = torch.randn(batch, heads, KV_RANK, device="cuda", dtype=torch.bfloat16)
        starts = torch.arange(0, batch + 1, device="cuda", dtype=torch.int32)
        used = torch.full((batch,), kv_len, device="cuda", dtype=torch.int32)
        plan = get_scheduler_metadata(
            batch, 1, kv_len, heads, 1, ROPE, used, headdim_v=KV_RANK, cu_seqlens_q=starts, page_size=BLOCK,
            causal=True, num_splits=32,
        )  # fmt: skip

        def call(
            i: int, table: Any = table, starts: Any = starts, used: Any = used, plan: Any = plan, turned: Any = turned,
            folded: Any = folded, caches: Any = caches, kv_len: int = kv_len,
        ) -> None:  # fmt: skip
            flash_attn_varlen_func(
                q=turned, k=caches[i][..., KV_RANK:], v=caches[i][..., :KV_RANK], q_v=folded, max_seqlen_q=1,
                cu_seqlens_q=starts, max_seqlen_k=kv_len, seqused_k=used, block_table=table, causal=True,
                softmax_scale=0.1, fa_version=3, scheduler_metadata=plan, num_splits=32,
            )  # fmt: skip

        row = {"op": "mla_decode", "dtype": "bf16", "batch": batch, "heads": heads, "kv_len": kv_len}
        yield row | {"kv_rank": KV_RANK, "rope_dim": ROPE}, call, copies


def unfolded_prefill(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    """Prompts of latent attention: keys of 192 channels, values of 128, every head its own."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    for batch, length, heads in ((1, 1024, 16), (1, 2048, 128), (1, 8192, 16), (4, 2048, 32), (1, 4096, 64)):
        q, k = (torch.randn(batch * length, heads, 192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        v = torch.randn(batch * length, heads, 128, device="cuda", dtype=torch.bfloat16)
        starts = torch.arange(0, (batch + 1) * length, length, device="cuda", dtype=torch.int32)

        def call(_i: int, q: Any = q, k: Any = k, v: Any = v, starts: Any = starts, n: int = length) -> None:
            flash_attn_varlen_func(q, k, v, n, starts, n, cu_seqlens_k=starts, causal=True, fa_version=3)

        row = {"op": "attention_prefill", "dtype": "bf16", "batch": batch, "heads": heads, "kv_heads": heads}
        yield row | {"q_len": length, "kv_len": length, "head_dim": 192, "value_dim": 128}, call, 1


def windows(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    """Attention that looks back a window only, over a paged cache: a whole prompt, or one token."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    shapes = [(1, 8192, 8192), (2, 4096, 4096), (1, 2048, 16384), (32, 1, 8192), (128, 1, 2048), (8, 1, 32768)]
    for (batch, q_len, kv_len), (heads, kv_heads, dim), window in product(
        shapes, ((64, 8, 64), (16, 8, 256), (32, 8, 128)), (128, 1024, 4096)
    ):
        pages = kv_len // BLOCK
        size = (batch * pages, BLOCK, kv_heads, dim)
        copies = copies_for(4 * batch * min(kv_len, window + q_len) * kv_heads * dim)
        copies = min(copies, max(1, int(4e9 / (4 * batch * kv_len * kv_heads * dim))))
        caches = [[torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for _ in range(copies)]
        table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
        q = torch.randn(batch * q_len, heads, dim, device="cuda", dtype=torch.bfloat16)
        starts = torch.arange(0, (batch + 1) * q_len, q_len, device="cuda", dtype=torch.int32)
        used = torch.full((batch,), kv_len, device="cuda", dtype=torch.int32)

        def call(i: int, q: Any = q, caches: Any = caches, table: Any = table, starts: Any = starts, used: Any = used,
                 q_len: int = q_len, kv_len: int = kv_len, window: int = window) -> None:  # fmt: skip
            flash_attn_varlen_func(
                q, caches[i][0], caches[i][1], q_len, starts, kv_len, seqused_k=used, causal=True, block_table=table,
                window_size=[window - 1, 0], fa_version=3,
            )  # fmt: skip

        op = "attention_decode" if q_len == 1 else "attention_prefill"
        row = {"op": op, "dtype": "bf16", "batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}
        yield row | {"q_len": q_len, "kv_len": kv_len, "window": window}, call, copies


SCANS = ((128, 64, 128, 8), (80, 64, 128, 1), (64, 64, 128, 8))
"""Heads, channels of a head, numbers of state a channel, groups: Nemotron-H 8B, Mamba-2 2.7B, and a smaller one."""
PROMPTS = ((1, 512), (1, 2048), (1, 8192), (4, 1024), (8, 1024))


def states_prefill(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    from vllm.model_executor.layers.mamba.ops.ssd_combined import mamba_chunk_scan_combined_varlen as scan

    for (heads, dim, state, groups), (sequences, length), chunk in product(SCANS, PROMPTS, (128, 256)):
        tokens = sequences * length
        new = {"device": "cuda", "dtype": torch.bfloat16}
        x, out = torch.randn(tokens, heads, dim, **new), torch.empty(tokens, heads, dim, **new)
        dt, b, c = (torch.randn(tokens, *shape, **new) for shape in ((heads,), (groups, state), (groups, state)))
        a, d, bias = (
            -torch.rand(heads, device="cuda"),
            torch.ones(heads, device="cuda"),
            torch.zeros(heads, device="cuda"),
        )
        starts = torch.arange(0, tokens + 1, length, device="cuda", dtype=torch.int32)
        cuts = torch.arange(0, tokens + 1, chunk, device="cuda", dtype=torch.int32)
        last = starts[1:] // chunk - 1
        of = (torch.arange(0, tokens, chunk, device="cuda") // length).int()

        def call(
            _i: int, t: Any = (x, dt, a, b, c, chunk, starts, cuts, last, of, out), d: Any = d, bias: Any = bias
        ) -> None:
            scan(*t, D=d, dt_bias=bias, dt_softplus=True, state_dtype=torch.float32)

        row = {"op": "scan_prefill", "mixer": "mamba2", "dtype": "bf16", "sequences": sequences, "tokens": tokens}
        yield (
            row
            | {"heads": heads, "head_dim": dim, "state_dim": state, "groups": groups, "chunk": chunk, "state_bytes": 4},
            call,
            1,
        )


def states_decode(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    from vllm.model_executor.layers.mamba.ops.mamba_ssm import selective_state_update as update

    for (heads, dim, state, groups), batch in product(SCANS, (1, 8, 32, 128, 256)):
        new = {"device": "cuda", "dtype": torch.bfloat16}
        copies = copies_for(4 * batch * heads * dim * state)
        states = [torch.randn(batch + 1, heads, dim, state, device="cuda") for _ in range(copies)]
        x, dt = torch.randn(batch, heads, dim, **new), torch.randn(batch, heads, 1, **new).expand(-1, -1, dim)
        b, c = (torch.randn(batch, groups, state, **new) for _ in range(2))
        a = -torch.rand(heads, device="cuda")[:, None, None].expand(-1, dim, state)
        d, bias = (torch.ones(heads, device="cuda")[:, None].expand(-1, dim) for _ in range(2))
        out, index = torch.empty_like(x), torch.arange(1, batch + 1, device="cuda", dtype=torch.int32)

        def call(
            i: int, states: Any = states, t: Any = (x, dt, a, b, c, d, bias), out: Any = out, at: Any = index
        ) -> None:
            update(states[i], *t, dt_softplus=True, state_batch_indices=at, out=out)

        row = {"op": "scan_decode", "mixer": "mamba2", "dtype": "bf16", "sequences": batch, "tokens": batch}
        yield (
            row | {"heads": heads, "head_dim": dim, "state_dim": state, "groups": groups, "chunk": 1, "state_bytes": 4},
            call,
            copies,
        )


DELTAS = ((32, 16, 128), (16, 8, 128))
"""Value heads, key heads, channels of both: Qwen3-Next 80B, and half of it."""


def deltas_prefill(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    from vllm.model_executor.layers.fla.ops.chunk import chunk_gated_delta_rule as rule
    from vllm.model_executor.layers.fla.ops.index import prepare_chunk_indices, prepare_chunk_offsets

    for (heads, groups, dim), (sequences, length) in product(DELTAS, PROMPTS):
        tokens = sequences * length
        new = {"device": "cuda", "dtype": torch.bfloat16}
        q, k = (torch.randn(1, tokens, groups, dim, **new) for _ in range(2))
        v = torch.randn(1, tokens, heads, dim, **new)
        g, beta = -torch.rand(1, tokens, heads, device="cuda"), torch.rand(1, tokens, heads, **new)
        state = torch.zeros(sequences, heads, dim, dim, device="cuda")
        starts = torch.arange(0, tokens + 1, length, device="cuda", dtype=torch.int64)
        chunks = {
            "chunk_indices": prepare_chunk_indices(starts, 64),
            "chunk_offsets": prepare_chunk_offsets(starts, 64),
        }

        def call(
            _i: int, t: Any = (q, k, v, g, beta), state: Any = state, starts: Any = starts, chunks: Any = chunks
        ) -> None:
            rule(
                *t,
                initial_state=state,
                output_final_state=True,
                cu_seqlens=starts,
                use_qk_l2norm_in_kernel=True,
                **chunks,
            )

        row = {"op": "scan_prefill", "mixer": "gated_delta", "dtype": "bf16", "sequences": sequences, "tokens": tokens}
        yield (
            row | {"heads": heads, "head_dim": dim, "state_dim": dim, "groups": groups, "chunk": 64, "state_bytes": 4},
            call,
            1,
        )


def deltas_decode(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    from vllm.model_executor.layers.fla.ops.fused_recurrent import fused_recurrent_gated_delta_rule as rule

    for (heads, groups, dim), batch in product(DELTAS, (1, 8, 32, 128, 256)):
        new = {"device": "cuda", "dtype": torch.bfloat16}
        copies = copies_for(4 * batch * heads * dim * dim)
        states = [torch.zeros(batch + 1, heads, dim, dim, device="cuda") for _ in range(copies)]
        q, k = (torch.randn(1, batch, groups, dim, **new) for _ in range(2))
        v = torch.randn(1, batch, heads, dim, **new)
        g, beta = -torch.rand(1, batch, heads, device="cuda"), torch.rand(1, batch, heads, **new)
        starts = torch.arange(0, batch + 1, device="cuda", dtype=torch.int32)
        at = torch.arange(1, batch + 1, device="cuda", dtype=torch.int32)

        def call(i: int, t: Any = (q, k, v, g, beta), states: Any = states, starts: Any = starts, at: Any = at) -> None:
            rule(*t, initial_state=states[i], inplace_final_state=True, cu_seqlens=starts, ssm_state_indices=at,
                 use_qk_l2norm_in_kernel=True)  # fmt: skip

        row = {"op": "scan_decode", "mixer": "gated_delta", "dtype": "bf16", "sequences": batch, "tokens": batch}
        yield (
            row | {"heads": heads, "head_dim": dim, "state_dim": dim, "groups": groups, "chunk": 1, "state_bytes": 4},
            call,
            copies,
        )


def four_bits(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    """Marlin on integers in groups of 128, as GPTQ and AWQ checkpoints run; what the bits say does not matter."""
    from vllm import _custom_ops as ops
    from vllm.model_executor.layers.quantization.utils.marlin_utils import (
        marlin_make_workspace_new,
        should_use_atomic_add_reduce,
    )
    from vllm.scalar_type import scalar_types

    space, kind = marlin_make_workspace_new(torch.device("cuda")), scalar_types.uint4b8
    for n, k in MATRICES:
        copies = copies_for(n * k / 2)
        size = (k // 16, n * 16 // 8)
        weights = [torch.randint(0, 2**31 - 1, size, device="cuda", dtype=torch.int32) for _ in range(copies)]
        scales = torch.full((k // GROUP, n), 0.01, device="cuda", dtype=torch.bfloat16)
        for m in ROWS:
            x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
            atomic = should_use_atomic_add_reduce(m=m, n=n, k=k, device=x.device, dtype=x.dtype)

            def call(
                i: int, x: Any = x, weights: Any = weights, scales: Any = scales, sizes: Any = (m, n, k),
                atomic: bool = atomic,
            ) -> None:  # fmt: skip
                ops.marlin_gemm(
                    x, None, weights[i], None, scales, None, None, None, None, None, space, kind, *sizes,
                    is_k_full=True, use_atomic_add=atomic, use_fp32_reduce=True,
                )  # fmt: skip

            yield {"op": "gemm", "dtype": "int4-weights", "kernel": "marlin", "m": m, "n": n, "k": k}, call, copies


def four_bit_experts(torch: Any) -> Iterator[tuple[Row, Call, int]]:
    from vllm.model_executor.layers.fused_moe.experts.marlin_moe import fused_marlin_moe
    from vllm.scalar_type import scalar_types

    for hidden, inner, experts, topk in EXPERTS:
        up, down = (
            torch.randint(0, 2**31 - 1, (experts, k // 16, n * 2), device="cuda", dtype=torch.int32)
            for n, k in ((2 * inner, hidden), (hidden, inner))
        )
        group = 32 if inner % GROUP or hidden % GROUP else GROUP
        ups, downs = (
            torch.full((experts, k // group, n), 0.01, device="cuda", dtype=torch.bfloat16)
            for n, k in ((2 * inner, hidden), (hidden, inner))
        )
        for tokens in (1, 8, 32, 128, 512, 2048, 8192):
            x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
            chosen = [torch.rand(tokens, experts, device="cuda").topk(topk).indices.int() for _ in range(4)]
            shares = torch.full((tokens, topk), 1.0 / topk, device="cuda")

            def call(i: int, t: Any = (x, up, down, None, None, ups, downs, shares), chosen: Any = chosen) -> None:
                fused_marlin_moe(*t, chosen[i], scalar_types.uint4b8.id)

            row = {
                "op": "moe",
                "dtype": "int4-weights",
                "kernel": "marlin",
                "tokens": tokens,
                "hidden": hidden,
                "inter": inner,
            }
            yield row | {"experts": experts, "topk": topk}, call, len(chosen)


PARTS = (
    latent_decode, unfolded_prefill, windows, four_bits, four_bit_experts, states_decode, deltas_decode, deltas_prefill,
    states_prefill,
)  # fmt: skip


def main(path: Path, wanted: list[str]) -> None:
    torch = torch_module()
    torch.manual_seed(0)
    with path.open("w", newline="", buffering=1) as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for part in (part for part in PARTS if not wanted or part.__name__ in wanted):
            print(f"{part.__name__}: {_measure(torch, part, writer)}", flush=True)


def _measure(torch: Any, part: Callable[[Any], Iterator[tuple[Row, Call, int]]], writer: Any) -> str:
    """How many rows were measured, and what stopped the rest."""
    count = 0
    try:
        for row, call, copies in part(torch):
            timing = time_call(torch, call, copies)
            writer.writerow(row | {"time_us": f"{timing.seconds * 1e6:.4f}", "spread": f"{timing.spread:.4f}"})
            count += 1
    except Exception as error:  # a kernel this vLLM lacks must not cost the other families
        return f"{count} rows, then {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return f"{count} rows"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
