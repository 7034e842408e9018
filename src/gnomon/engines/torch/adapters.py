"""The modules of low-rank adapters: frozen matrices, packed or not, and two thin ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn import functional as F

from gnomon.engines.torch import nf4
from gnomon.engines.torch.parallel import DTYPES
from gnomon.engines.torch.techniques.base import RunningTechnique

Tensor = Any
SCALE = 2.0
"""Alpha over the rank, as most recipes have it; no time depends on it."""
ATTENTION, REST = ("q", "k", "v", "out"), ("gate", "up", "down")
TARGETS = {"all-linear": (*ATTENTION, *REST), "attention": ATTENTION, "qkv": ("q", "k", "v"), "qv": ("q", "v")}
"""Names of the modules that have adapters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterShape:
    rank: int
    targets: str = "all-linear"
    dropout: float = 0.0
    packed: bool = False
    """Frozen matrices are in nf4."""
    double: bool = False
    """And their scales in eight bits."""
    magnitudes: bool = False


class Unpacked(torch.autograd.Function):  # type: ignore[misc]
    """A matrix that is dequantised for each of its GEMMs; nothing is saved but its packed form."""

    @staticmethod
    def forward(context: Any, x: Tensor, packed: nf4.Nf4Matrix, bias: Tensor | None) -> Tensor:
        context.packed = packed
        return F.linear(x, packed.unpack(), bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient @ context.packed.unpack(), None, None


class FrozenLinear(nn.Linear):  # type: ignore[misc]
    """A matrix that is not trained. Any nn.Linear becomes one in place, so that its weight keeps its name."""

    packed: nf4.Nf4Matrix | None = None
    ready = False
    """Whether its weight has been drawn, and packed where it is."""

    def pack(self, double: bool) -> None:
        self.packed = nf4.pack(self.weight.data, double)
        del self.weight
        self.register_parameter("weight", None)

    def whole(self) -> Tensor:
        return self.weight if self.packed is None else self.packed.unpack()

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is not None:
            return Unpacked.apply(x, self.packed, self.bias)
        return F.linear(x, self.weight, self.bias)


class AdaptedLinear(FrozenLinear):
    """One with an adapter beside it."""

    shape: AdapterShape

    def adapt(self, shape: AdapterShape) -> None:
        """Thin matrices, sharded as the frozen one is: the second by its result, or the first by its input."""
        self.shape = shape
        rank, kept = shape.rank, {"device": self.weight.device, "dtype": self.weight.dtype}
        down, up = torch.empty(rank, self.in_features, **kept), torch.empty(self.out_features, rank, **kept)
        if isinstance(self.weight, DTensor):
            (cut,), mesh = self.weight.placements, self.weight.device_mesh
            down = distribute_tensor(down, mesh, [Shard(1) if cut.is_shard(1) else Replicate()])
            up = distribute_tensor(up, mesh, [Shard(0) if cut.is_shard(0) else Replicate()])
        self.lora_a, self.lora_b = nn.Parameter(down), nn.Parameter(up)
        self.lora_b.start_at = 0.0
        self.magnitude = nn.Parameter(torch.empty(self.out_features, **kept)) if shape.magnitudes else None

    def forward(self, x: Tensor) -> Tensor:
        found = super().forward(x)
        if self.shape.dropout:
            x = torch.native_dropout(x, self.shape.dropout, True)[0]
        low = F.linear(x, self.lora_a) * SCALE
        if isinstance(low, DTensor) and low.placements[0].is_partial():
            return self._partial(found, low)
        both = found + F.linear(low, self.lora_b)
        return both if self.magnitude is None else both * (self.magnitude / self.norm())

    def _partial(self, found: Any, low: Any) -> Tensor:
        """A part of the sum of the frozen matrix and of the adapter, which one collective reduces together."""
        whole = {"grad_placements": [Replicate()]}
        own = self.lora_b.to_local(grad_placements=[Partial()])
        both = found.to_local(**whole) + F.linear(low.to_local(**whole), own)
        return DTensor.from_local(both, found.device_mesh, [Partial()], run_check=False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def norm(self) -> Tensor:
        """Of each row of the sum of all matrices, which has no gradient (DoRA, section 4.3)."""
        return (self.whole() + SCALE * (self.lora_b @ self.lora_a)).norm(dim=1)


class Adapting(RunningTechnique):
    """A run that trains adapters alone, in the format that the plan's optimizer keeps weights in."""

    def __init__(self, shape: AdapterShape, dtype: str) -> None:
        self.shape, self.working = shape, DTYPES[dtype]
        self.kernel, self.trained, self.packed = "", 0, 0

    def build(self, part: Any) -> None:
        """Every weight of the network is frozen; matrices of layers get their adapters."""
        part.requires_grad_(False)
        for layer in part.layers.values():
            for parent in (layer.attn, layer.ffn):
                for name, linear in parent.named_children():
                    if isinstance(linear, nn.Linear):
                        self._freeze(linear, name in TARGETS[self.shape.targets])
        if part.embed is not None:  # as with gradient checkpointing, which needs inputs with gradients
            part.embed.register_forward_hook(lambda module, given, made: made.requires_grad_(True))
        self.trained += sum(weight.numel() for weight in part.parameters() if weight.requires_grad)

    def _freeze(self, linear: Any, adapted: bool) -> None:
        linear.__class__ = AdaptedLinear if adapted else FrozenLinear
        if adapted:
            linear.adapt(self.shape)

    def drawn(self, module: Any) -> None:
        """Frozen weights are in the working format wherever fp32 ones are trained; packed ones and magnitudes are made
        of them."""
        for child in module.modules():
            for name, weight in list(child.named_parameters(recurse=False)):
                if not weight.requires_grad and not weight.is_meta and weight.dtype != self.working:
                    setattr(child, name, nn.Parameter(weight.to(self.working), requires_grad=False))
        for child in module.modules():
            if not isinstance(child, FrozenLinear) or child.ready or child.weight.is_meta:
                continue
            child.ready = True
            if getattr(child, "magnitude", None) is not None:
                child.magnitude.data.copy_(child.weight.norm(dim=1))
            if self.shape.packed:
                child.pack(self.shape.double)
                assert child.packed is not None
                self.kernel, self.packed = child.packed.kernel, self.packed + child.in_features * child.out_features

    def result(self) -> Mapping[str, Any]:
        told = {"trained_parameters": self.trained}
        return told | ({"nf4_kernel": self.kernel, "packed_parameters": self.packed} if self.shape.packed else {})
