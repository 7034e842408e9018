"""From the columns of an operator table to the sizes a kernel model takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.mixer_ops import MIXINGS
from gnomon.graph.ops import Shape
from gnomon.spec.workload import Floats

_SCAN = ("sequences", "tokens", "heads", "head_dim", "state_dim", "groups", "chunk")
COLUMNS = {
    "gemm": ("m", "n", "k"),
    "conv": ("m", "n", "k", "batch", "bytes"),
    "moe": ("tokens", "hidden", "inter", "experts", "topk"),
    "attention_decode": ("batch", "heads", "kv_heads", "kv_len", "head_dim"),
    "attention_prefill": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "attention_forward": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "attention_backward": ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"),
    "mla_decode": ("batch", "heads", "kv_len", "kv_rank", "rope_dim"),
    "index_scores": ("batch", "heads", "q_len", "kv_len", "head_dim"),
    **{f"scan_{phase}_{mixer}": _SCAN for phase in ("prefill", "decode") for mixer in MIXINGS},
    "elementwise": ("bytes_read", "bytes_written"),
    "all_reduce": ("bytes", "ranks"),
    "all_gather": ("bytes", "ranks"),
    "reduce_scatter": ("bytes", "ranks"),
    "all_to_all": ("bytes", "ranks"),
    "send_recv": ("bytes", "ranks"),
}
"""The columns each operator needs."""
SCAN_STATE_BYTES = 2.0
"""Of a number of a state in a table of operators; a column `state_bytes` says otherwise."""


def kind_of(row: Mapping[str, str]) -> str:
    """The operator of a row: scans say in a column of their own which they are."""
    op = row.get("op") or ""
    return f"{op}_{row.get('mixer')}" if op in ("scan_prefill", "scan_decode") else op


def shape_of(kind: str, columns: Mapping[str, Floats]) -> Shape:
    """Rows of one kind as arrays of sizes; attention becomes sums over its equal sequences."""
    if kind == "gemm":
        return {name: columns[name] for name in ("m", "n", "k")} | {"batch": columns.get("batch", np.ones(1))}
    if kind.startswith("scan"):
        kept = columns.get("state_bytes", np.full(columns["tokens"].shape, SCAN_STATE_BYTES))
        return {name: columns[name] for name in _SCAN} | {"state_bytes": kept}
    if kind == "mla_decode":
        sizes = {name: columns[name] for name in ("heads", "kv_rank", "rope_dim")}
        return {"sequences": columns["batch"], "context": columns["batch"] * columns["kv_len"]} | sizes
    if kind == "index_scores":
        return _sums(columns) | {name: columns[name] for name in ("heads", "head_dim")}
    if not kind.startswith("attention"):
        return {name: columns[name] for name in COLUMNS[kind]}
    heads = {name: columns[name] for name in ("heads", "kv_heads", "head_dim", "value_dim") if name in columns}
    if kind == "attention_decode":
        return {"sequences": columns["batch"], "context": columns["batch"] * columns["kv_len"]} | heads
    return {"sequences": columns["batch"]} | _sums(columns) | heads


def _sums(columns: Mapping[str, Floats]) -> Shape:
    """Over sequences whose new tokens are the last of those they look at."""
    batch, new, keys = columns["batch"], columns["q_len"], columns["kv_len"]
    pairs = new * (keys - new) + new * (new + 1) / 2
    return {"tokens": batch * new, "pairs": batch * pairs, "context": batch * keys}
