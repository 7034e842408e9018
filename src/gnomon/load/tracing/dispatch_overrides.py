"""The kernels a GPU would be given, where PyTorch without one would take another way: attention and recurrent nets.

Tensors here have no values, so a stand-in only has to be recorded and to give back the right shapes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import sqrt
from typing import Any

import torch
from torch.library import _scoped_library

from gnomon.load.tracing import casts

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
PACKED = "find_packed_sequence_indices"
MOST_HEAD_DIM = 256
"""The widest head that FlashAttention takes."""

Tensor = Any
_ATEN = torch.ops.aten


@contextmanager
def dispatch_overrides() -> Iterator[None]:
    """Within, PyTorch's compound operators are carried out as on a GPU. For one thread at a time."""
    _recurrent()
    with _scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in _COMPOUND.items():
            library.impl(name, function, "CompositeImplicitAutograd", allow_override=True)
        casts.register(library)
        yield


@contextmanager
def whole_sequences(captured: bool) -> Iterator[None]:
    """Within, transformers takes sequences as whole ones, which it finds out by their values: launched one by one,
    attention then goes without a mask. While a graph is captured it cannot look, and makes one."""
    masks = None if captured else sys.modules.get("transformers.masking_utils")
    found = getattr(masks, PACKED, None)
    if masks is None or found is None:
        yield
        return
    setattr(masks, PACKED, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(masks, PACKED, found)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """As PyTorch chooses: FlashAttention for 16-bit values without a mask, else a kernel that takes less memory than
    the scores, else GEMMs and a softmax."""
    dropped: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    batched = query.dim() == key.dim() == value.dim() == 4 and query.size(0) == key.size(0)
    same_width = query.size(-1) == value.size(-1)
    halves = query.dtype in (torch.bfloat16, torch.float16)
    if batched and same_width and halves and attn_mask is None and query.size(-1) <= MOST_HEAD_DIM:
        width = -query.size(-1) % 8
        padded = [torch.nn.functional.pad(t, (0, width)) if width else t for t in (query, key, value)]
        dropped["scale"] = scale if scale is not None else 1 / sqrt(query.size(-1))
        out = _ATEN._scaled_dot_product_flash_attention(*padded, **dropped)[0]
        return out[..., : query.size(-1)] if width else out
    if batched and query.size(1) == key.size(1) and query.dtype is not torch.float64:
        keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        bias = _bias(attn_mask, query)
        return _ATEN._scaled_dot_product_efficient_attention(query, key, value, bias, keeps, **dropped)[0]
    out = _ATEN._scaled_dot_product_attention_math(query, key, value, attn_mask, **dropped, enable_gqa=enable_gqa)
    return out[0]


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """A boolean mask becomes one of numbers to add, and takes the shape of the scores."""
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask if mask is None else mask.expand(query.size(0), query.size(1), query.size(2), mask.size(-1))


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """One kernel, which leaves a boolean mask."""
    if not train or p == 0:
        return input
    return torch.native_dropout(input, p, True)[0]


def _lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Two GEMMs, and one kernel for all that follows."""
    gates = torch.mm(input, w_ih.t()), torch.mm(hx[0], w_hh.t())
    made = _ATEN._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return made[0], made[1]


def _layers(cell: str) -> Any:
    """`torch.lstm` and its siblings on whole sequences, padded to one length."""

    def run(
        input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        x = input.transpose(0, 1) if batch_first else input
        out, *state = _whole(cell, x.reshape(-1, x.size(-1)), x.size(0), hx, params, num_layers, bidirectional)
        shaped = out.view(x.size(0), x.size(1), -1)
        return (shaped.transpose(0, 1) if batch_first else shaped, *state)

    return run


def _packed_layers(cell: str) -> Any:
    """Recurrent layers on sequences of several lengths, packed one time step after the other."""

    def run(
        data: Tensor, batch_sizes: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return _whole(cell, data, batch_sizes.size(0), hx, params, num_layers, bidirectional)

    return run


def _whole(
    cell: str, rows: Tensor, steps: int, hx: Any, params: Sequence[Tensor], layers: int, both: bool
) -> tuple[Tensor, ...]:
    state = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    kind = cell.partition("_")[0]
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *params))
    made = torch.ops.gnomon.rnn(rows, state, list(params), kind, layers, both, steps, keeps)
    return (made[0], *made[1 : 1 + len(state)])


@cache
def _recurrent() -> None:
    """Tell PyTorch of `gnomon::rnn`: all layers and time steps of a recurrent net in one call, as cuDNN takes them."""

    @torch.library.custom_op("gnomon::rnn", mutates_args=())  # type: ignore[untyped-decorator]
    def rnn(
        rows: torch.Tensor, state: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], cell: str, layers: int,
        both: bool, steps: int, keeps: bool,
    ) -> list[torch.Tensor]:  # fmt: skip
        raise NotImplementedError("tensors have no values here")

    @rnn.register_fake  # type: ignore[untyped-decorator]
    def _(
        rows: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], cell: str, layers: int, both: bool,
        steps: int, keeps: bool,
    ) -> list[Tensor]:  # fmt: skip
        sides, hidden = 1 + both, weights[1].size(0) // GATES[cell]
        out = rows.new_empty(rows.size(0), sides * state[0].size(-1))
        # What cuDNN keeps for the gradient: the gates and states of every step.
        kept = rows.size(0) * layers * sides * hidden * (GATES[cell] + 2) if keeps else 0
        return [out, *(torch.empty_like(s) for s in state), rows.new_empty(kept)]

    @torch.library.custom_op("gnomon::rnn_backward", mutates_args=())  # type: ignore[untyped-decorator]
    def rnn_backward(
        gradient: torch.Tensor, rows: torch.Tensor, state: Sequence[torch.Tensor], weights: Sequence[torch.Tensor],
        kept: torch.Tensor, cell: str, layers: int, both: bool, steps: int, by_input: bool, by_state: bool,
    ) -> list[torch.Tensor]:  # fmt: skip
        raise NotImplementedError("tensors have no values here")

    @rnn_backward.register_fake  # type: ignore[untyped-decorator]
    def _(
        gradient: Tensor, rows: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], kept: Tensor, cell: str,
        layers: int, both: bool, steps: int, by_input: bool, by_state: bool,
    ) -> list[Tensor]:  # fmt: skip
        return [torch.empty_like(t) for t in (rows, *state, *weights)]

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        rows, state, weights, *ctx.sizes, _keeps = inputs
        ctx.counts = len(state), len(weights)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, *state, *weights, output[-1])

    def backward(ctx: Any, gradients: Any) -> Any:
        rows, *rest, kept = ctx.saved_tensors
        states, weights = rest[: ctx.counts[0]], rest[ctx.counts[0] :]
        by_input, by_state = ctx.needs_input_grad[0], any(_flat(ctx.needs_input_grad[1]))
        gradient = next(g for g in gradients if g is not None)
        made = torch.ops.gnomon.rnn_backward(gradient, rows, states, weights, kept, *ctx.sizes, by_input, by_state)
        split = 1 + len(states)
        none = [None] * 5
        return (made[0] if by_input else None, made[1:split] if by_state else [None] * len(states), made[split:], *none)

    rnn.register_autograd(backward, setup_context=remember)


def _flat(needs: Any) -> list[bool]:
    return list(needs) if isinstance(needs, (list, tuple)) else [bool(needs)]


_COMPOUND = {
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "lstm_cell": _lstm_cell,
    **{f"{cell}.input": _layers(cell) for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{cell}.data": _packed_layers(cell) for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}
