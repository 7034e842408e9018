"""Writes down every operator that runs, with the module it belongs to, and how long its memory stays alive.

It stands below autograd, so it sees what PyTorch really calls, backward included; it keeps no tensor alive itself.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

from gnomon.errors import InputError
from gnomon.spec.traced import Call, Phase, Role, Storage, TensorSpec

DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}
MOST_CALLS = 200_000
"""A step of more calls than this is taken for one that never ends; those of large networks have some ten thousand."""
_NOT_WORK = ("prim", "profiler")
_PLAIN = (int, float, bool, str, type(None))


class OpRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Calls in order, and the storages they made or found. `names` has the path of every module by its `id`."""

    def __init__(self, names: Mapping[int, str], owners: Mapping[int, str]) -> None:
        super().__init__()
        self.phase: Phase = "forward"
        self.calls: list[Call] = []
        self._names, self._owners = names, owners
        self._inside: list[str] = []
        self._marks: list[tuple[int, str]] = []
        self._numbers: dict[int, int] = {}
        self._sizes: list[float] = []
        self._born: list[int] = []
        self._died: dict[int, int] = {}
        self._roles: dict[int, Role] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _NOT_WORK:
            return func(*args, **kwargs)
        if _compound(func):  # under inference mode, these come here whole
            with self:
                return func.decompose(*args, **kwargs)
        if len(self.calls) >= MOST_CALLS:
            raise InputError(
                f"calls more than {MOST_CALLS:,} operators in one step",
                where="module",
                hint="Look for a loop that never ends, or trace one turn of a long one.",
            )
        place = self._place()
        before = _arguments(func, args, kwargs)
        tensors = {name: tuple(self._spec(t) for t in _tensors(value)) for name, value in before.items()}
        made = func(*args, **kwargs)
        self.calls.append(
            Call(
                op=f"{func.namespace}.{func._schema.name.partition('::')[2]}",
                tensors={name: specs for name, specs in tensors.items() if specs},
                results=tuple(self._spec(t) for t in _tensors(made)),
                options={name: value for name, value in before.items() if not tensors[name] and _plain(value)},
                changed=tuple(a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write),
                module=place,
                phase=self.phase,
                pointwise=torch.Tag.pointwise in func.tags,
            )
        )
        return made

    def know(self, tensor: Any, role: Role) -> None:
        """A tensor's memory has a part in the step beyond what its operators make of it."""
        self._roles[self._number(tensor)] = role

    def storages(self) -> tuple[Storage, ...]:
        return tuple(
            Storage(bytes=size, born=born, died=self._died.get(number), role=self._roles.get(number, "activations"))
            for number, (size, born) in enumerate(zip(self._sizes, self._born, strict=True))
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what runs, and know which module runs it."""
        before = hooks.register_module_forward_pre_hook(self._enter)
        after = hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            with self:
                yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: Any, _inputs: Any) -> None:
        outer = self._inside[-1] if self._inside else ""
        self._inside.append(self._names.get(id(module), outer))

    def _leave(self, _module: Any, _inputs: Any, _outputs: Any) -> None:
        if self._inside:
            self._inside.pop()

    def _place(self) -> str:
        """The module at work. Autograd numbers its nodes in order, so a gradient's node tells whose it is."""
        if self._inside:
            number = torch.autograd._get_sequence_nr() - 1
            if not self._marks or number > self._marks[-1][0]:
                self._marks.append((number, self._inside[-1]))
            return self._inside[-1]
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        if hasattr(node, "variable"):
            return self._owners.get(id(node.variable), "")
        found = bisect_right(self._marks, node._sequence_nr(), key=lambda mark: mark[0])
        return self._marks[found - 1][1] if found else ""

    def _number(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._sizes)
            self._sizes.append(float(storage.nbytes()))
            self._born.append(len(self.calls))
            weakref.finalize(storage, self._free, key).atexit = False
        return number

    def _free(self, key: int) -> None:
        self._died[self._numbers.pop(key)] = len(self.calls)

    def _spec(self, tensor: Any) -> TensorSpec:
        return TensorSpec(
            shape=tuple(int(n) for n in tensor.shape),
            stride=tuple(int(n) for n in tensor.stride()),
            dtype=DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")),
            item_bytes=float(tensor.element_size()),
            storage=self._number(tensor),
        )


@cache
def _compound(func: Any) -> bool:
    """Whether an operator is made of others and has no kernel of its own."""
    return func._can_decompose() and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")


def _arguments(func: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All that was handed over, by the names of the operator's schema."""
    return {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _tensors(part)]
    return []


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)
