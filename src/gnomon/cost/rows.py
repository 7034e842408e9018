"""From the columns of an operator table to the sizes a kernel model takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

import numpy as np

from gnomon.cost import host_rows, passes
from gnomon.cost.experts import BLOCKS, COMBINE, DISPATCH
from gnomon.graph.mixer_ops import MIXINGS
from gnomon.graph.ops import Shape
from gnomon.spec.workload import Floats

_HEADS = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
_GROUP = ("bytes", "ranks")
_SENT = ("tokens", "hidden", "experts", "topk", "ranks")
_SCAN = ("sequences", "tokens", "heads", "head_dim", "state_dim", "groups", "chunk")
COLUMNS = {
    "gemm": ("m", "n", "k"),
    "gemm_unaligned": ("m", "n", "k", "aligned"),
    "conv": ("m", "n", "k", "batch", "bytes"),
    "conv_few": ("m", "n", "k", "batch", "bytes"),
    "conv_depthwise": ("m", "n", "k", "batch", "bytes"),
    "moe": ("tokens", "hidden", "inter", "experts", "topk"),
    "attention_decode": ("batch", "heads", "kv_heads", "kv_len", "head_dim"),
    "attention_prefill": _HEADS,
    "attention_forward": _HEADS,
    "attention_backward": _HEADS,
    "mla_decode": ("batch", "heads", "kv_len", "kv_rank", "rope_dim"),
    "mla_backward": ("batch", "heads", "kv_len", "kv_rank", "rope_dim"),
    "index_scores": ("batch", "heads", "q_len", "kv_len", "head_dim"),
    **{f"scan_{phase}_{mixer}": _SCAN for phase in ("prefill", "decode", "backward") for mixer in MIXINGS},
    "elementwise": ("bytes_read", "bytes_written"),
    "algebra": ("flops", "bytes", "steps"),
    "all_reduce": _GROUP,
    "all_gather": _GROUP,
    "reduce_scatter": _GROUP,
    "all_to_all": _GROUP,
    "broadcast": _GROUP,
    "send_recv": _GROUP,
    DISPATCH: _SENT,
    COMBINE: _SENT,
    **passes.COLUMNS,
    **host_rows.COLUMNS,
}
"""The columns each operator needs."""
_MASK = {"causal": 1.0, "window": 0.0}
OPTIONAL: Mapping[str, Mapping[str, float]] = {
    "gemm": {"batch": 1.0},
    "gemm_unaligned": {"batch": 1.0},
    "elementwise": {"rows": 0.0},
    "attention_decode": {"q_len": 1.0} | _MASK,
    "attention_prefill": _MASK,
    "attention_forward": _MASK,
    "attention_backward": _MASK,
    **{kind: {"blocks": BLOCKS} for kind, columns in COLUMNS.items() if columns is _SENT},
    **{kind: {"nodes": 0.0} for kind, columns in COLUMNS.items() if columns is _GROUP},
    **{kind: {"state_bytes": 2.0} for kind, columns in COLUMNS.items() if columns is _SCAN},
    **passes.OPTIONAL,
    **host_rows.OPTIONAL,
}
"""The columns each operator may have, and what stands for them where they are empty: no window, as few nodes as hold
the ranks, states in 16 bits, no rows that a thread block takes whole, as many thread
blocks as DeepEP takes."""

_TURNED = {"turned": 0.0, "turned_weights": 0.0, "by_input": 0.0, "by_weight": 0.0}
BESIDE: Mapping[str, Mapping[str, float]] = {
    "gemm": {"across": 0.0, "quantised": 0.0},
    "gemm_unaligned": {"across": 0.0, "out_aligned": nan},
    "conv": _TURNED,
    "conv_few": _TURNED,
    "conv_depthwise": {name: usual for name, usual in _TURNED.items() if name != "turned_weights"},
    "moe": {"skew": nan, "visited": nan, "absent": 0.0, "matrices": 3.0},
}
"""Further columns, and their value in rows that leave them empty where others do not; `nan` is no value. Bytes of a
convolution that lie channels first, which gradient it is; of a GEMM, how its rows are aligned, how many
operands do not lie along k, and whether its time holds the narrowing of activations; of experts, how unevenly they are
chosen, how many are visited, rows of non-local experts, and matrices of one."""
SAID = tuple(dict.fromkeys(name for names in BESIDE.values() for name in names))


def kind_of(row: Mapping[str, str]) -> str:
    """The operator of a row: scans are named by an additional column."""
    op = row.get("op") or ""
    return f"{op}_{row.get('mixer')}" if op in ("scan_prefill", "scan_decode", "scan_backward") else op


def shape_of(kind: str, columns: Mapping[str, Floats]) -> Shape:
    """Rows of one kind as arrays of sizes; attention becomes sums over its equal sequences."""
    one = next(iter(columns.values()))
    given = {name: np.full(one.shape, value) for name, value in OPTIONAL.get(kind, {}).items()} | dict(columns)
    if kind.startswith("attention"):
        return _decode(given) if kind == "attention_decode" else _whole(given)
    if kind.startswith("mla"):
        sizes = {name: given[name] for name in ("heads", "kv_rank", "rope_dim")}
        return {"sequences": given["batch"], "context": given["batch"] * given["kv_len"]} | sizes
    if kind == "index_scores":
        new, keys = given["q_len"], given["kv_len"]
        sums = {"tokens": new, "pairs": new * (keys - new) + new * (new + 1) / 2, "context": keys}
        heads = {name: given[name] for name in ("heads", "head_dim")}
        return {name: given["batch"] * each for name, each in sums.items()} | heads
    if kind == "elementwise":
        rows, moved = given["rows"], given["bytes_read"] + given["bytes_written"]
        each = {"row_bytes": np.where(rows > 0, moved / np.maximum(rows, 1.0), 0.0)}
        return {name: given[name] for name in COLUMNS[kind]} | each
    return {
        name: given[name] for name in (*COLUMNS[kind], *OPTIONAL.get(kind, ()), *BESIDE.get(kind, ())) if name in given
    }


def _decode(given: Mapping[str, Floats]) -> Shape:
    """Several new tokens of a sequence meet the cache together, as so many more heads of one would."""
    batch, new, read = given["batch"], given["q_len"], _read(given)
    shape = {"sequences": batch, "context": batch * read, "heads": given["heads"] * new}
    if np.any(given["window"] > 0):
        shape["beyond"] = batch * (given["kv_len"] - read)
    return shape | {name: given[name] for name in ("kv_heads", "head_dim", "value_dim") if name in given}


def _whole(given: Mapping[str, Floats]) -> Shape:
    batch, window = given["batch"], given["window"]
    sums = {"tokens": given["q_len"], "pairs": pairs(given), "context": _read(given)}
    shape = {"sequences": batch} | {name: batch * each for name, each in sums.items()}
    shape |= {name: given[name] for name in ("heads", "kv_heads", "head_dim", "value_dim") if name in given}
    if np.any(window > 0):
        unmasked = dict(given) | {"window": np.zeros_like(window)}
        shape |= {"window": np.where(window > 0, window, np.inf), "beyond": batch * pairs(unmasked) - shape["pairs"]}
    return shape


def pairs(given: Mapping[str, Floats]) -> Floats:
    """Of queries and keys of one sequence, whose queries are its last tokens. A window of W leaves a query W keys:
    itself and those before it, or without `causal` as many on either side, where there are any."""
    new, keys = given["q_len"], given["kv_len"]
    before, after = _reach(given)
    first = keys - new
    return new + _clipped(first, keys - 1, before) + _clipped(np.zeros_like(keys), new - 1, after)


def _reach(given: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """How many keys before its own and after it a query sees at most."""
    causal, window, keys = given["causal"] > 0, given["window"], given["kv_len"]
    behind = np.where(causal, window - 1, np.floor(window / 2))
    ahead = np.where(causal, 0.0, keys)
    return np.where(window > 0, behind, keys), np.where((window > 0) & ~causal, window - 1 - behind, ahead)


def _clipped(first: Floats, last: Floats, most: Floats) -> Floats:
    """The sum of all whole numbers from `first` to `last`, those above `most` counted as that."""
    turn = np.clip(most, first - 1, last)
    below = (turn - first + 1) * (first + turn) / 2
    return np.asarray(below + (last - turn) * most)


def _read(given: Mapping[str, Floats]) -> Floats:
    """Keys of a sequence that any of its queries sees."""
    before, _ = _reach(given)
    return np.asarray(np.minimum(given["kv_len"], given["q_len"] + before))
