"""Attention as PyTorch picks it: `scaled_dot_product_attention` over whole sequences and over one new token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Lab
from gnomon.calibrate.timer import copies_for


def attention_of(lab: Lab) -> Any:
    """PyTorch's attention with the kernels it has by itself: vLLM, once imported, takes cuDNN's away from the whole
    process (on an H200 a prompt of 4 x 4,096 tokens then takes 1.67 ms in place of 0.93)."""
    lab.torch.backends.cuda.enable_cudnn_sdp(True)
    return lab.torch.nn.functional.scaled_dot_product_attention


def attention_forward(lab: Lab, batch: int, heads: int, kv_heads: int, head_dim: int, q_len: int) -> Row:
    """Causal, over sequences that begin here; heads lie next to each other in a token, as projections leave them."""
    shapes = [(batch, q_len, n, head_dim) for n in (heads, kv_heads, kv_heads)]
    q, k, v = (side.transpose(1, 2) for side in lab.random("bf16", *shapes))
    attend = attention_of(lab)
    timing = lab.time(lambda _i: attend(q, k, v, is_causal=True, enable_gqa=heads != kv_heads))
    cut = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return _row(lab, "attention_forward", timing, cut, batch=batch, new=q_len, keys=q_len)


def attention_decode(lab: Lab, batch: int, heads: int, kv_heads: int, head_dim: int, kv_len: int) -> Row:
    """One query a sequence over a cache that lies head by head, as transformers keeps it."""
    copies = copies_for(4 * batch * kv_len * kv_heads * head_dim)
    cache = (batch, kv_heads, kv_len, head_dim)
    q, *sides = lab.random("bf16", (batch, heads, 1, head_dim), *[cache] * (2 * copies))
    attend = attention_of(lab)
    timing = lab.time(lambda i: attend(q, sides[2 * i], sides[2 * i + 1], enable_gqa=heads != kv_heads), copies)
    cut = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return _row(lab, "attention_decode", timing, cut, batch=batch, new=1, keys=kv_len)


def _row(lab: Lab, op: str, timing: Any, heads: Mapping[str, Any], *, batch: int, new: int, keys: int) -> Row:
    return lab.row(op, "bf16", timing, batch=batch, **heads, q_len=new, kv_len=keys, causal=1)
