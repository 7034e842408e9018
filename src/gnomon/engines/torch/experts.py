"""Mixtures of experts: each token goes to the experts that its router chose, wherever they are, and comes back.

Experts are separate modules, run one after the other, each with one GEMM per matrix. No token is dropped. With expert
parallelism a rank has the experts of its number in `ep`, and rows travel there and back in an all-to-all of as many
rows as each expert got.
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


class LocalExperts(nn.Module):  # type: ignore[misc]
    """The experts of this rank, named by their numbers in the network."""

    def __init__(self, hidden: int, spec: MoeFfn) -> None:
        super().__init__()
        for number in range(spec.experts):
            self.add_module(str(number), Ffn(hidden, DenseFfn(inner=spec.inner, gated=spec.gated, bias=spec.bias)))

    def keep(self, parts: int, part: int) -> None:
        """Only one of equal parts of them."""
        each = len(self._modules) // parts
        for place, name in enumerate(list(self._modules)):
            if place // each != part:
                delattr(self, name)

    def forward(self, x: Tensor, counts: list[int]) -> Tensor:
        """Rows in the order of the experts, so many for each."""
        pieces = x.split(counts)
        return torch.cat([expert(piece) for expert, piece in zip(self.children(), pieces, strict=True)])


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
        shares, chosen = self._chosen(rows)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.spec.experts)
        sent = rows[order // self.spec.topk]
        found = self.experts(sent, counts.tolist()) if self.place is None else self._elsewhere(sent, counts, self.place)
        mine = found[order.argsort()].unflatten(0, chosen.shape)
        total = (mine * shares.unsqueeze(-1)).sum(1).view_as(x)
        return total if self.shared is None else total + self._shared(x)

    def _chosen(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.router(rows).float()
        every = scores.sigmoid() if self.spec.router == "sigmoid" else scores.softmax(-1)
        shares, chosen = every.topk(self.spec.topk, -1)
        return (shares / shares.sum(-1, keepdim=True)).to(rows.dtype), chosen

    def _shared(self, x: Tensor) -> Tensor:
        assert self.shared is not None
        found = self.shared(x)
        return found if self.shared_gate is None else self.shared_gate(x).sigmoid() * found

    def _elsewhere(self, rows: Tensor, counts: Tensor, place: Place) -> Tensor:
        """Rows through the experts of all ranks, in their order here. Rows come by rank and then by expert, and experts
        take theirs of all ranks together."""
        ep, group = place.size("ep"), place.group("ep")
        coming = exchanged(counts, None, None, group).view(ep, -1)
        there, here = counts.view(ep, -1).sum(1).tolist(), coming.sum(1).tolist()
        received = all_to_all(rows, there, here, group)
        experts = torch.arange(coming.shape[1], device=rows.device).repeat(ep)
        by_expert = experts.repeat_interleave(coming.flatten()).argsort(stable=True)
        found = self.experts(received[by_expert], coming.sum(0).tolist())
        return all_to_all(found[by_expert.argsort()], here, there, group)
