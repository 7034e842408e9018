"""Networks of papers that are not in the catalog."""

from __future__ import annotations

from typing import Any

from gnomon.load.shapes import SCHEMA, model_from_dict
from gnomon.spec import Model


def network(name: str, **fields: Any) -> Model:
    """A model with these fields, as in a shapes file."""
    return model_from_dict({"schema": SCHEMA, "name": name} | fields, name)


def plain_layers(count: int, hidden: int, heads: int, inner: int) -> list[dict[str, Any]]:
    """Layers of the first Transformers: full attention, a feed-forward without a gate, biases everywhere.
    Attention is causal, because bidirectional attention is not priced in training; the tensors are the same."""
    head_dim = hidden // heads
    mixer = {"kind": "attention", "heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary_dim": 0}
    biases = {"qkv_bias": True, "out_bias": True}
    ffn = {"kind": "dense", "inner": inner, "gated": False, "bias": True}
    return [{"count": count, "mixer": mixer | biases, "ffn": ffn}]
