"""Mixtures of experts: each token goes to the experts that its router chose, wherever they are, and comes back.

The matrices of a rank's experts are stacked, and one grouped GEMM multiplies the rows of all of them; experts with
biases run one after the other. No token is dropped, and the host waits for no count of rows. With expert parallelism a
rank has the experts of its number in `ep`, and rows travel there and back in an all-to-all of as many rows as each
expert got.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gnomon.engines.torch.exchange import all_to_all, exchanged
from gnomon.engines.torch.ranks import Place
from gnomon.spec import DenseFfn, MoeFfn

Tensor = Any
GROUPED_GEMM = getattr(F, "grouped_mm", None) or torch._grouped_mm


class Ffn(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, spec: DenseFfn) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, spec.inner, bias=spec.bias) if spec.gated else None
        self.up = nn.Linear(hidden, spec.inner, bias=spec.bias)
        self.down = nn.Linear(spec.inner, hidden, bias=spec.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        return self.down(F.silu(self.gate(x)) * self.up(x))


def grouped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """The rows of each expert, which end where it is said, times its own matrix."""
    return GROUPED_GEMM(x, weight.transpose(-2, -1), offs=ends)


class LocalExperts(nn.Module):  # type: ignore[misc]
    """The experts of this rank, each matrix of all of them in one tensor."""

    def __init__(self, hidden: int, spec: MoeFfn) -> None:
        super().__init__()
        self.gate: Tensor = None
        self.gate_bias: Tensor = None
        if spec.gated:
            self.gate, self.gate_bias = _stacked(spec, spec.inner, hidden)
        self.up, self.up_bias = _stacked(spec, spec.inner, hidden)
        self.down, self.down_bias = _stacked(spec, hidden, spec.inner)
        self.grouped = grouped

    def keep(self, parts: int, part: int) -> None:
        """Only one of equal parts of them."""
        for name, weight in list(self.named_parameters()):
            each = weight.shape[0] // parts
            kept = nn.Parameter(weight[part * each : (part + 1) * each], requires_grad=weight.requires_grad)
            kept.first_of_stack = part * each
            setattr(self, name, kept)

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        """Rows in the order of the experts; those of each end where it is said."""
        up = self._multiplied(x, self.up, self.up_bias, ends)
        if self.gate is None:
            active = F.gelu(up, approximate="tanh")
        else:
            active = F.silu(self._multiplied(x, self.gate, self.gate_bias, ends)) * up
        return self._multiplied(active, self.down, self.down_bias, ends)

    def _multiplied(self, x: Tensor, weight: Tensor, bias: Tensor | None, ends: Tensor) -> Tensor:
        if bias is None:
            return self.grouped(x, weight, ends)
        counts = ends.diff(prepend=ends.new_zeros(1)).tolist()
        pieces = zip(x.split(counts), weight, bias, strict=True)
        return torch.cat([F.linear(*piece) for piece in pieces])


def _stacked(spec: MoeFfn, rows: int, columns: int) -> tuple[nn.Parameter, nn.Parameter | None]:
    """A matrix of every expert, drawn each by its own number."""
    weight = nn.Parameter(torch.empty(spec.experts, rows, columns))
    weight.first_of_stack = 0
    if not spec.bias:
        return weight, None
    bias = nn.Parameter(torch.zeros(spec.experts, rows))
    bias.first_of_stack = 0
    return weight, bias


class _Permute(torch.autograd.Function):  # type: ignore[misc]
    """A row for each token and expert that it visits, in the order of experts. Gradients of a token's rows are summed
    in the order of its choices, which PyTorch's own gradient of an index would sort for."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor, topk: int) -> Tensor:
        ctx.topk = topk
        ctx.save_for_backward(back)
        return rows[order // topk]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        return gradient[back].unflatten(0, (-1, ctx.topk)).sum(1), None, None, None


class _Unpermute(torch.autograd.Function):  # type: ignore[misc]
    """Rows in the order of tokens again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows[back]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return gradient[order], None, None


class MixtureOfExperts(nn.Module):  # type: ignore[misc]
    """A router, its experts, and those that every token visits. Shares of the chosen experts sum to 1."""

    def __init__(self, hidden: int, spec: MoeFfn) -> None:
        super().__init__()
        self.spec = spec
        self.router = nn.Linear(hidden, spec.experts, bias=spec.router_bias)
        self.experts = LocalExperts(hidden, spec)
        shared = DenseFfn(inner=spec.shared_inner, gated=spec.gated, bias=spec.bias)
        self.shared = Ffn(hidden, shared) if spec.shared_inner else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if spec.shared_gate else None
        self.place: Place | None = None
        """Where the experts are shared out."""

    def share(self, place: Place) -> None:
        """Leave this rank its own experts."""
        self.place = place
        self.experts.keep(place.size("ep"), place.at("ep"))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        shares, chosen = self.shares_of(self.router(rows))
        order, back, ends = self.ordered(chosen)
        sent = self.permuted(rows, order, back)
        found = self.experts(sent, ends) if self.place is None else self._on_other_ranks(sent, ends, self.place)
        total = self.summed(found, order, back, shares).view_as(x)
        return total if self.shared is None else total + self._shared(x)

    def shares_of(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Of the experts that each token visits, and their numbers."""
        wide = scores.float()
        every = wide.sigmoid() if self.spec.router == "sigmoid" else wide.softmax(-1)
        shares, chosen = every.topk(self.spec.topk, -1)
        return (shares / shares.sum(-1, keepdim=True)).to(scores.dtype), chosen

    def ordered(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choices in the order of experts, the way back, and where the rows of each expert end."""
        experts, order = chosen.flatten().sort(stable=True)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        numbers = torch.arange(self.spec.experts, device=order.device)
        return order, back, torch.searchsorted(experts, numbers, right=True, out_int32=True)

    def permuted(self, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        return _Permute.apply(rows, order, back, self.spec.topk)

    def summed(self, found: Tensor, order: Tensor, back: Tensor, shares: Tensor) -> Tensor:
        mine = _Unpermute.apply(found, order, back).unflatten(0, shares.shape)
        return (mine * shares.unsqueeze(-1)).sum(1)

    def _shared(self, x: Tensor) -> Tensor:
        assert self.shared is not None
        found = self.shared(x)
        return found if self.shared_gate is None else self.shared_gate(x).sigmoid() * found

    def _on_other_ranks(self, rows: Tensor, ends: Tensor, place: Place) -> Tensor:
        """Rows through the experts of all ranks, in their order here. Rows come by rank and then by expert, and experts
        take theirs of all ranks together."""
        ep, group = place.size("ep"), place.group("ep")
        counts = ends.long().diff(prepend=ends.new_zeros(1, dtype=torch.int64))
        coming = exchanged(counts, None, None, group).view(ep, -1)
        there, here = counts.view(ep, -1).sum(1).tolist(), coming.sum(1).tolist()
        received = all_to_all(rows, there, here, group)
        experts = torch.arange(coming.shape[1], device=rows.device).repeat(ep)
        by_expert = experts.repeat_interleave(coming.flatten()).argsort(stable=True)
        found = self.experts(received[by_expert], coming.sum(0).cumsum(0).to(torch.int32))
        return all_to_all(found[by_expert.argsort()], here, there, group)
