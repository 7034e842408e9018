"""Saved activations of layers, copied to pinned memory of the host in the forward pass and back for the backward.

A layer's forward pass runs under `torch.autograd.graph.saved_tensors_hooks`: what autograd saves in it, weights and
small tensors aside, is copied on a stream of its own and held on the device until the copy has ended, for so many
layers at once. The first saved tensor that a layer's backward pass asks for brings back all of them, and begins to
bring back those of the layer before. On a CPU copies are plain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from gnomon.engines.torch.techniques.base import RunningTechnique

Tensor = Any
LEAST_BYTES = 4096
"""Smaller tensors stay: a copy of them takes longer than its bytes do."""


class _Saved:
    """One tensor on the host, and on the device again once it was asked for."""

    __slots__ = ("back", "host", "uses")

    def __init__(self, host: Tensor) -> None:
        self.host: Tensor = host
        self.back: Tensor = None
        self.uses = 0


class _Handle(NamedTuple):
    """What autograd holds of a tensor."""

    saved: _Saved
    view: tuple[Any, Any, int] | None
    """Size, strides and offset in what was copied, where that is a whole storage."""


class _LayerPass:
    """What one layer saved in one forward pass."""

    def __init__(self, before: _LayerPass | None) -> None:
        self.before = before
        self.saved: dict[Any, _Saved] = {}
        self.held: list[Tensor] = []
        """Tensors of the device that are being copied, or may be saved again."""
        self.copied: Any = None
        self.fetched = False
        self.arrived: Any = None


class ActivationsOnHost(RunningTechnique):
    """Offloads a share of the layers; the last one of the network stays, whose backward pass comes next."""

    def __init__(self, layers: int, share: float, in_flight: int, *, beside: bool) -> None:
        self.layers, self.share, self.in_flight, self.beside = layers, share, in_flight, beside
        self.out: Any = torch.cuda.Stream() if beside else None
        self.back: Any = torch.cuda.Stream() if beside else None
        self.passes: dict[tuple[int, int], _LayerPass | None] = {}
        self.current = (0, 0)
        self.leaving: deque[_LayerPass] = deque()
        self.moved = {"bytes_out": 0, "bytes_in": 0, "host_bytes": 0, "most_host_bytes": 0}

    def build(self, part: nn.Module) -> None:
        for name, layer in part.layers.items():
            if self._chosen(int(name)):
                layer.forward = partial(self._forward, layer, layer.forward)

    def _chosen(self, number: int) -> bool:
        """Evenly over the network."""
        here = int((number + 1) * self.share + 1e-9) > int(number * self.share + 1e-9)
        return here and number < self.layers - 1

    @contextmanager
    def run_pass(self, kind: str, chunk: int, micro: int) -> Iterator[None]:
        self.current = chunk, micro
        if kind == "F":
            self.passes[self.current] = None
        yield
        if kind != "F":
            self.passes.pop((chunk, micro), None)
            if self.beside:
                # The host would run ahead of copies that still read pinned memory, and take as much again for the next
                # micro-batch. What is left of this pass computes meanwhile.
                self.back.synchronize()

    def _forward(self, layer: nn.Module, forward: Any, *args: Any) -> Tensor:
        self._let_go(self.in_flight - 1)
        one = self.passes[self.current] = _LayerPass(self.passes[self.current])
        tables = [table for given in args if isinstance(given, tuple) for table in given]  # of rotary positions
        weights = {_storage(tensor) for tensor in (*layer.parameters(), *tables)}
        with torch.autograd.graph.saved_tensors_hooks(partial(self._pack, one, weights), partial(self._unpack, one)):
            result = forward(*args)
        if self.beside:
            one.copied = self.out.record_event()
            self.leaving.append(one)
        else:
            one.held.clear()
        return result

    def _pack(self, one: _LayerPass, weights: set[int], tensor: Tensor) -> Any:
        size = tensor.numel() * tensor.element_size()
        if isinstance(tensor, DTensor) or size < LEAST_BYTES or _storage(tensor) in weights:
            return tensor
        flat, view = _flat(tensor)
        key = flat.data_ptr(), flat.dtype, flat.shape, flat.stride()
        saved = one.saved.get(key)
        if saved is None:  # several operators may save the same tensor, each in a view of its own
            saved = one.saved[key] = _Saved(self._to_host(flat))
            one.held.append(flat)
            self._count("bytes_out", size, size)
        saved.uses += 1
        return _Handle(saved, view)

    def _to_host(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cuda":
            return tensor.clone(memory_format=torch.preserve_format)
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        if self.beside:
            self.out.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.out):
                return host.copy_(tensor, non_blocking=True)
        return host.copy_(tensor, non_blocking=True)

    def _let_go(self, most: int) -> None:
        """Layers whose copies have to end before what follows runs, so that at most so many are left."""
        while len(self.leaving) > most:
            one = self.leaving.popleft()
            torch.cuda.current_stream().wait_event(one.copied)
            one.held.clear()

    def _unpack(self, one: _LayerPass, handle: Any) -> Tensor:
        if not isinstance(handle, _Handle):
            return handle
        saved = handle.saved
        self._fetch(one)
        if self.in_flight > 1 and one.before is not None:
            self._fetch(one.before)
        if one.arrived is not None:
            # The copy back began after the one out, so that what was held until then may go.
            torch.cuda.current_stream().wait_event(one.arrived)
            one.arrived = None
            one.held.clear()
        found, saved.uses = saved.back, saved.uses - 1
        if saved.uses == 0:
            saved.back = saved.host = None
        if self.beside:
            found.record_stream(torch.cuda.current_stream())
        return found if handle.view is None else found.as_strided(*handle.view)

    def _fetch(self, one: _LayerPass) -> None:
        """All that a layer saved begins to come back, once."""
        if one.fetched:
            return
        one.fetched = True
        if self.beside:
            # Copies back wait for those out, and room is not taken before the backward pass has come this far.
            self.back.wait_event(one.copied)
            self.back.wait_stream(torch.cuda.current_stream())
        for saved in one.saved.values():
            saved.back = self._to_device(saved.host)
            size = saved.host.numel() * saved.host.element_size()
            self._count("bytes_in", size, -size)
        if self.beside:
            one.arrived = self.back.record_event()

    def _to_device(self, host: Tensor) -> Tensor:
        if not host.is_pinned():
            return host
        if not self.beside:
            return host.to(device="cuda", non_blocking=True)
        with torch.cuda.stream(self.back):
            return host.to(device="cuda", non_blocking=True)

    def _count(self, what: str, size: int, kept: int) -> None:
        self.moved[what] += size
        self.moved["host_bytes"] += kept
        self.moved["most_host_bytes"] = max(self.moved["most_host_bytes"], self.moved["host_bytes"])

    def result(self) -> Mapping[str, Any]:
        return dict(self.moved)


def _storage(tensor: Tensor) -> int:
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return int(local.untyped_storage().data_ptr())


def _flat(tensor: Tensor) -> tuple[Tensor, tuple[Any, Any, int] | None]:
    """All of a tensor's storage in one dimension, and where the tensor lies in it; the tensor itself where its storage
    has more."""
    tensor = tensor.detach()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        return tensor, None
    return tensor.as_strided((tensor.numel(),), (1,), 0), (tensor.size(), tensor.stride(), tensor.storage_offset())
