"""A module and its inputs without values: shapes and formats only, so that nothing is computed and nothing stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from gnomon.errors import InputError, unknown_name

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Tensor = Any


def torch_dtype(name: str, where: str) -> Any:
    if name not in FORMATS:
        raise unknown_name("number format", name, FORMATS, where=where)
    return FORMATS[name]


def blank(tensor: Tensor, dtype: Any = None) -> Tensor:
    """A tensor like this one without values; `dtype` takes the place of any other floating format."""
    if torch.nn.parameter.is_lazy(tensor):
        raise InputError(
            "has lazy layers, whose sizes nobody knows yet", where="module", hint="Call it once before tracing."
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InputError(
            f"a tensor has the layout {str(tensor.layout).removeprefix('torch.')}, and only dense ones can be traced",
            where="inputs",
            hint="Give the indices and values of sparse tensors as tensors of their own.",
        )
    wanted = dtype if dtype is not None and tensor.dtype.is_floating_point else tensor.dtype
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    made = torch.empty_strided(sizes, strides, dtype=wanted, device="cpu")
    return made.requires_grad_(tensor.requires_grad) if made.dtype.is_floating_point or made.is_complex() else made


def blank_state(module: Any, dtype: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers by name; what the module ties together stays one tensor."""
    known: dict[int, Tensor] = {}

    def once(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = blank(tensor, dtype)
        return known[id(tensor)]

    parameters = {name: once(p) for name, p in module.named_parameters(remove_duplicate=False)}
    buffers = {name: once(b) for name, b in module.named_buffers(remove_duplicate=False)}
    return parameters, buffers


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a module is called with: a mapping gives its arguments by name, a tuple or a list one after the other."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    return (inputs,), {}


def resized(inputs: Any, batch: int | None) -> tuple[Any, int]:
    """The inputs with their first dimension set to `batch`, and that dimension; tensors whose first dimension is
    another than the first tensor's keep it."""
    tensors = [leaf for leaf in tree_flatten(inputs)[0] if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise InputError(
            "no tensor is among them", where="inputs", hint="Give tensors such as torch.empty(8, 3, 224, 224)."
        )
    before = next((int(t.size(0)) for t in tensors if t.dim()), 1)
    if batch is None:
        return inputs, before

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.size(0) != before:
            return leaf
        return leaf.new_empty((batch, *leaf.shape[1:]), device="meta").requires_grad_(leaf.requires_grad)

    return tree_map(change, inputs), batch


def filled(tree: Any, dtype: Any, tell: Callable[[Tensor], None]) -> Any:
    """Every tensor of the inputs without its values."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = blank(leaf, dtype)
        tell(made)
        return made

    return tree_map(one, tree)


class OneDevice(TorchFunctionMode):  # type: ignore[misc]
    """Whatever device code asks for, its tensors are made where all the others are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") == "cuda" and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        if getattr(func, "__name__", "") == "to":
            args = tuple(_here(arg) for arg in args)
        return func(*args, **kwargs)


def _here(argument: Any) -> Any:
    named = isinstance(argument, torch.device) or (isinstance(argument, str) and argument.partition(":")[0] != "cpu")
    return "cpu" if named else argument
