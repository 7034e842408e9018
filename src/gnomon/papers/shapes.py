"""Networks that no catalog has, by their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnomon.load.shapes import SCHEMA, model_from_dict, shapes_to_yaml
from gnomon.spec import Model


def network(name: str, **fields: Any) -> Model:
    """A model with these fields, as a file of shapes has them."""
    return model_from_dict({"schema": SCHEMA, "name": name} | fields, name)


@contextmanager
def shapes_file(name: str, **fields: Any) -> Iterator[Path]:
    """The same as a file, for functions that take no `Model`: those of training."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(shapes_to_yaml({"schema": SCHEMA, "name": name} | fields), encoding="utf-8")
        yield path


def plain_layers(count: int, hidden: int, heads: int, inner: int) -> list[dict[str, Any]]:
    """Layers of the first Transformers: full attention, a feed-forward without a gate, biases everywhere. They look
    back only, because what looks both ways is not priced in training; the tensors are the same."""
    head_dim = hidden // heads
    mixer = {"kind": "attention", "heads": heads, "kv_heads": heads, "head_dim": head_dim, "rotary_dim": 0}
    biases = {"qkv_bias": True, "out_bias": True}
    ffn = {"kind": "dense", "inner": inner, "gated": False, "bias": True}
    return [{"count": count, "mixer": mixer | biases, "ffn": ffn}]
