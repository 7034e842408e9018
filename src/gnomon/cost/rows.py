"""From the columns of an operator table to the sizes a kernel model takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec.workload import Floats

COLUMNS = {
    "gemm": ("m", "n", "k"),
    "gemm_unaligned": ("m", "n", "k", "aligned"),
    "conv": ("m", "n", "k", "batch", "bytes"),
    "conv_few": ("m", "n", "k", "batch", "bytes"),
    "conv_depthwise": ("m", "n", "k", "batch", "bytes"),
    "moe": ("tokens", "hidden", "inter", "experts", "topk"),
    "attention_decode": ("batch", "heads", "kv_heads", "kv_len", "head_dim"),
    "attention_prefill": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "attention_forward": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "attention_backward": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "elementwise": ("bytes_read", "bytes_written"),
    "all_reduce": ("bytes", "ranks"),
    "all_gather": ("bytes", "ranks"),
    "reduce_scatter": ("bytes", "ranks"),
    "all_to_all": ("bytes", "ranks"),
    "send_recv": ("bytes", "ranks"),
}
"""The columns each operator needs."""
BESIDE = ("turned", "turned_weights", "by_input", "by_weight", "out_aligned", "across")
"""What may be said beside: bytes of a convolution that lie channels first, which gradient it is; of a product, how its
rows are aligned and how many operands do not lie along k."""


def shape_of(kind: str, columns: Mapping[str, Floats]) -> Shape:
    """Rows of one kind as arrays of sizes; attention becomes sums over its equal sequences."""
    if not kind.startswith("attention"):
        sizes = {name: columns[name] for name in (*COLUMNS[kind], *BESIDE) if name in columns}
        return sizes | ({"batch": columns.get("batch", np.ones(1))} if kind == "gemm" else {})
    heads = {name: columns[name] for name in ("heads", "kv_heads", "head_dim")}
    batch, keys = columns["batch"], columns["kv_len"]
    if kind == "attention_decode":
        return {"sequences": batch, "context": batch * keys} | heads
    new = columns["q_len"]
    pairs = new * (keys - new) + new * (new + 1) / 2
    return {"sequences": batch, "tokens": batch * new, "pairs": batch * pairs, "context": batch * keys} | heads
