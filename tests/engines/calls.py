"""Calls as a trace would hold them, made by hand: no PyTorch needed."""

from __future__ import annotations

from itertools import count
from typing import Any

from gnomon.spec.traced import Call, Storage, TensorSpec, Traced

WIDTHS = {"fp32": 4.0, "bf16": 2.0, "int64": 8.0, "bool": 1.0}
_numbers = count()


def tensor(
    *shape: int, dtype: str = "bf16", stride: tuple[int, ...] | None = None, of: int | None = None
) -> TensorSpec:
    """In memory of its own unless `of` names another's."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return TensorSpec(
        shape=shape,
        stride=stride or tuple(reversed(steps)),
        dtype=dtype,
        item_bytes=WIDTHS[dtype],
        storage=next(_numbers),
    )


def call(op: str, results: tuple[TensorSpec, ...] = (), options: dict[str, Any] | None = None, **rest: Any) -> Call:
    """Tensors by the names of arguments; `changed`, `pointwise`, `module` and `phase` as they are."""
    fields = {key: rest.pop(key) for key in ("changed", "pointwise", "module", "phase") if key in rest}
    tensors = {name: value if isinstance(value, tuple) else (value,) for name, value in rest.items()}
    return Call(
        op=f"aten.{op}" if "." not in op else op, tensors=tensors, results=results, options=options or {}, **fields
    )


def traced(*calls: Call, storages: tuple[Storage, ...] = (), **rest: Any) -> Traced:
    fields: dict[str, Any] = {"name": "Net", "parameters": 10, "trainable": 10, "samples": 4, "dtype": "bf16"}
    return Traced(calls=calls, storages=storages, **fields | rest)


def last(*shape: int, dtype: str = "bf16") -> TensorSpec:
    """An image with its channels last in memory."""
    n, c, h, w = shape
    return tensor(n, c, h, w, dtype=dtype, stride=(c * h * w, 1, c * w, c))
