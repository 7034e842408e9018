"""Autocast as it is on a GPU, for tensors that are nowhere: which operators are kept in fp32.

The lists are those of PyTorch's documentation of `torch.amp`, CUDA operators that autocast to float32; without a GPU
PyTorch follows a shorter list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

WIDENED = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "softplus", "layer_norm", "native_layer_norm",
    "group_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
)  # fmt: skip
"""Operators whose operands are cast before they run."""
SUMMED = ("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList")
"""They read 16 bits and work and answer in fp32."""
_HALVES = (torch.bfloat16, torch.float16)


def register(library: Any) -> None:
    """Add the lists to a library of overrides, for as long as that lives."""
    for name in WIDENED:
        library.impl(name, _widened(_operator(name)), "AutocastCPU", allow_override=True)
    for name in SUMMED:
        library.impl(name, _summed(_operator(name)), "AutocastCPU", allow_override=True)


@contextmanager
def cuda_means_here() -> Iterator[None]:
    """`torch.autocast("cuda")` inside a module holds for the tensors there are."""
    original = torch.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda" and not args and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.get_autocast_dtype("cuda")
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.autocast.__init__ = init
    try:
        yield
    finally:
        torch.autocast.__init__ = original


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@contextmanager
def _uncast() -> Iterator[None]:
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        yield


def _widened(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _uncast():
            args, kwargs = tree_map(_wide, (args, kwargs))
            return operator(*args, **kwargs)

    return run


def _summed(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _uncast():
            if args and getattr(args[0], "dtype", None) in _HALVES and kwargs.get("dtype") is None:
                names = [argument.name for argument in operator._schema.arguments]
                if names.index("dtype") >= len(args):
                    kwargs["dtype"] = torch.float32
            return operator(*args, **kwargs)

    return run


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALVES else value
