"""Muon's update: a momentum for each matrix, made orthogonal by steps of Newton and Schulz in bf16.

Constants are those of Jordan et al. (2024), and PyTorch's `torch.optim.Muon`; the update of a matrix is scaled to the
size that AdamW's has (Liu et al. 2025, Moonlight), so that both share a learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TINY = 1e-7
MOMENTUM = 0.95
WEIGHT_DECAY = 0.01
AS_ADAMW = 0.2
"""The root mean square of an update of AdamW."""
MOST_VALUES = 2**26
"""Of matrices of one shape that are multiplied together: a step is a few long launches, and needs little memory."""
Tensor = Any


def orthogonal(momenta: Tensor, dtype: Any = torch.bfloat16) -> Tensor:
    """Matrices [several, rows, columns] with about the same singular vectors, and singular values near 1."""
    a, b, c = COEFFICIENTS
    x = momenta.to(dtype)
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=TINY)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class MuonUpdate:
    """Of the weights of a rank by name. Matrices of layers are updated so, embeddings, heads and vectors by AdamW."""

    def __init__(self, masters: Mapping[str, Any], place: Any, rate: float, dtype: Any = torch.bfloat16) -> None:
        self.place, self.rate, self.dtype = place, rate, dtype
        chosen = {name: one for name, one in masters.items() if name.startswith("layers.") and one.dim() > 1}
        self.stacks = {name: one for name, one in chosen.items() if one.dim() > 2}
        self.matrices = {name: one for name, one in chosen.items() if one.dim() == 2}
        for name, stack in self.stacks.items():  # of experts, each a full matrix wherever it is
            self.matrices |= {f"{name}.{place}": one for place, one in enumerate(stack.detach())}
        self.momenta = {name: torch.zeros_like(one, requires_grad=False) for name, one in self.matrices.items()}
        rest = [one for name, one in masters.items() if name not in chosen]
        fused = all(one.device.type == "cuda" for one in rest)
        self.other = torch.optim.AdamW(rest, lr=rate, fused=fused) if rest else None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        for name, stack in self.stacks.items():
            for place, gradient in enumerate(stack.grad):
                self.matrices[f"{name}.{place}"].grad = gradient
        for together in self._batches():
            whole = self._exchanged([self._moved(name) for name in together], together)
            for name, update in zip(together, whole, strict=True):
                self._apply(self.matrices[name], update)
        if self.other is not None:
            self.other.step()

    def _moved(self, name: str) -> Tensor:
        """The momentum of a matrix with its new gradient, looked ahead (Nesterov), as it is multiplied."""
        gradient, momentum = self.matrices[name].grad, self.momenta[name]
        momentum.lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(momentum, MOMENTUM).to(self.dtype)

    def _apply(self, matrix: Tensor, update: Tensor) -> None:
        rows, columns = _full(matrix)
        matrix.mul_(1 - self.rate * WEIGHT_DECAY)
        matrix.add_(update, alpha=-self.rate * AS_ADAMW * max(rows, columns) ** 0.5)

    def _batches(self) -> Iterator[Sequence[str]]:
        """Names of matrices of one shape, so many that their values are few enough; where they are sharded, as many as
        give every rank one."""
        shapes: dict[tuple[int, ...], list[str]] = {}
        for name, matrix in self.matrices.items():
            shapes.setdefault(_full(matrix), []).append(name)
        for (rows, columns), names in shapes.items():
            each = max(1, MOST_VALUES // (rows * columns))
            count = each * self._ranks(self.matrices[names[0]])
            yield from (names[first : first + count] for first in range(0, len(names), count))

    def _ranks(self, matrix: Tensor) -> int:
        """Ranks that a matrix's rows lie on."""
        return 1 if _full(matrix) == tuple(matrix.shape) else int(self.place.size("copies"))

    def _exchanged(self, parts: list[Tensor], names: Sequence[str]) -> list[Tensor]:
        """What each matrix of this rank is updated by. Sharded ones are traded: a rank gets all rows of its share of
        the matrices, and hands out the rows of their updates."""
        first = self.matrices[names[0]]
        ranks, rows = self._ranks(first), _full(first)[0]
        if ranks == 1:
            return list(orthogonal(torch.stack(parts), self.dtype))
        each, group = -(-rows // ranks), self.place.group("copies")
        share = -(-len(parts) // ranks)
        sent = parts[0].new_zeros(ranks, share, each, parts[0].size(1))
        for place, part in enumerate(parts):
            sent[place // share, place % share, : part.size(0)] = part
        held = torch.empty_like(sent)
        dist.all_to_all_single(held, sent, group=group)
        whole = held.transpose(0, 1).flatten(1, 2)
        made = torch.zeros_like(whole)
        mine = min(share, max(0, len(parts) - share * int(self.place.at("copies"))))
        made[:mine, :rows] = orthogonal(whole[:mine, :rows], self.dtype) if mine else 0
        back = made.unflatten(1, (ranks, each)).transpose(0, 1).contiguous()
        dist.all_to_all_single(held, back, group=group)
        return [one[: part.size(0)] for one, part in zip(chain(*held), parts)]  # noqa: B905 - empty places at the end


def _full(matrix: Tensor) -> tuple[int, int]:
    """Rows and columns, of which this rank may have a part."""
    return tuple(getattr(matrix, "full_shape", matrix.shape))
