"""A layer of experts on one GPU: tokens routed to slots, and ways to take them there and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gnomon.lab.bench import SEED, Bench

CHOICES = 2
"""Experts of a token."""
MULTIPLE = 8
"""Slots of an expert are a multiple of it, as GEMMs of 16-bit values want them."""
BLOCK = 2048
"""Channels of a token that a program copies at once."""


@dataclass(frozen=True, slots=True)
class TokenSlots:
    """Where tokens go: every expert has as many slots as the busiest needs, so that none is dropped."""

    experts: Any
    """[tokens, CHOICES]."""
    gates: Any
    """[tokens, CHOICES] in bf16."""
    capacity: int
    slots: Any
    """[tokens, CHOICES] int64, the row of the experts' slots."""
    tokens: Any
    """[tokens x CHOICES] int64, the tokens of all choices in order of their experts."""
    place: Any
    """[tokens, CHOICES] int64, where each choice stands in that order."""
    ends: Any
    """[experts] int32, of that order."""
    source: Any
    """[experts x capacity] int64, the token of each slot; 0 where it has none."""


def routed(bench: Bench, tokens: int, experts: int) -> TokenSlots:
    """The two highest of random logits, with softmax over them as gates."""
    torch = bench.torch
    logits = bench.normal(tokens, experts, dtype=torch.float32, generator=bench.generator(SEED + 120))
    best, chosen = logits.topk(CHOICES, 1)
    flat = chosen.flatten()
    counts = torch.bincount(flat, minlength=experts)
    capacity = MULTIPLE * -(-int(counts.max()) // MULTIPLE)
    order = flat.argsort(stable=True)
    ranks = torch.arange(len(flat), device=bench.device)
    place = torch.empty_like(order).scatter_(0, order, ranks)
    starts = counts.cumsum(0) - counts
    slots = flat * capacity + place - starts[flat]
    source = torch.zeros(experts * capacity, dtype=torch.int64, device=bench.device)
    return TokenSlots(
        experts=chosen,
        gates=best.softmax(1).to(torch.bfloat16),
        capacity=capacity,
        slots=slots.view(tokens, CHOICES),
        tokens=order // CHOICES,
        place=place.view(tokens, CHOICES),
        ends=counts.cumsum(0).to(torch.int32),
        source=source.scatter_(0, slots, ranks // CHOICES),
    )


@dataclass(frozen=True, slots=True)
class Way:
    """Tokens to their experts' rows, those through the experts, and back."""

    dispatch: Callable[[], Any]
    compute: Callable[[Any], Any]
    combine: Callable[[Any], Any]

    def __call__(self) -> Any:
        return self.combine(self.compute(self.dispatch()))

    def moved(self, rows: Any) -> Any:
        """Dispatch and combine alone; rows stand for the experts' outputs."""
        return self.dispatch(), self.combine(rows)


def weighed(rows: Any, places: Any, gates: Any) -> Any:
    """Rows [choices, width] at places [tokens, CHOICES] summed by gates [tokens, CHOICES]."""
    return (rows[places].float() * gates.float()[..., None]).sum(1).to(rows.dtype)


def compiled(bench: Bench, notes: list[str]) -> Callable[[Any, Any, Any], Any]:
    """`weighed` in one kernel by torch.compile; as it stands where there is no GPU, or where that fails."""
    if bench.device != "cuda":
        return weighed
    torch = bench.torch
    found: Callable[[Any, Any, Any], Any] = torch.compile(weighed, dynamic=False)
    try:
        rows, gates = (bench.empty(64, each, dtype=torch.bfloat16).zero_() for each in (64, CHOICES))
        found(rows, torch.zeros(64, CHOICES, dtype=torch.int64, device=bench.device), gates)
    except Exception as failure:
        notes.append(f"torch.compile fails, the weighted sum runs eagerly: {type(failure).__name__}")
        return weighed
    return found


@dataclass(frozen=True, slots=True)
class Layer:
    """Inputs [tokens, width], and experts of two matrices each, [experts, out, in]."""

    bench: Bench
    x: Any
    up: Any
    down: Any
    routed: TokenSlots
    weighed: Callable[[Any, Any, Any], Any] = weighed
    """`weighed`, or a compiled form of it."""

    def masked(self) -> Way:
        """GShard's: one-hot masks of tokens and slots, multiplied."""

        def mask(values: Any) -> Any:
            torch, (tokens, _) = self.bench.torch, self.x.shape
            found = torch.zeros(tokens, len(self.up) * self.routed.capacity, dtype=self.x.dtype, device=self.x.device)
            return found.scatter_(1, self.routed.slots, values)

        ones = self.bench.torch.ones_like(self.routed.gates)
        return Way(lambda: mask(ones).T @ self.x, self._padded, lambda rows: mask(self.routed.gates) @ rows)

    def indexed(self) -> Way:
        """PyTorch's indexing in place of masks."""
        where = self.routed
        return Way(
            lambda: self.x.index_select(0, where.source),
            self._padded,
            lambda rows: self.weighed(rows, where.slots, where.gates),
        )

    def encoded(self) -> Way:
        """Two kernels in place of masks; by PyTorch's indexing where there is no GPU."""
        if self.bench.device != "cuda":
            return self.indexed()
        return Way(self.encode, self._padded, self.decode)

    def grouped(self) -> Way:
        """Rows sorted by expert, without padding, and PyTorch's grouped GEMM."""
        torch, where = self.bench.torch, self.routed

        def compute(rows: Any) -> Any:
            wide = torch.nn.functional.gelu(torch._grouped_mm(rows, self.up.transpose(1, 2), offs=where.ends))
            return torch._grouped_mm(wide, self.down.transpose(1, 2), offs=where.ends)

        return Way(
            lambda: self.x.index_select(0, where.tokens),
            compute,
            lambda rows: self.weighed(rows, where.place, where.gates),
        )

    def encode(self) -> Any:
        """The first kernel. Slots without a token are left as they are."""
        from gnomon.lab.kernels import dispatch

        tokens, width = self.x.shape
        rows = self.bench.empty(len(self.up) * self.routed.capacity, width, dtype=self.x.dtype)
        grid = (tokens, -(-width // BLOCK))
        dispatch.encode[grid](self.x, self.routed.slots, rows, width, CHOICES=CHOICES, BLOCK=BLOCK)
        return rows

    def decode(self, rows: Any) -> Any:
        """The second."""
        from gnomon.lab.kernels import dispatch

        (tokens, width), out = self.x.shape, self.bench.torch.empty_like(self.x)
        grid = (tokens, -(-width // BLOCK))
        dispatch.decode[grid](
            rows, self.routed.slots, self.routed.gates, out, width, CHOICES=CHOICES, BLOCK=BLOCK
        )  # fmt: skip
        return out

    def definition(self) -> Any:
        """In fp64, expert by expert."""
        torch = self.bench.torch
        x, out = self.x.double(), torch.zeros_like(self.x, dtype=torch.float64)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            tokens, choice = (self.routed.experts == expert).nonzero(as_tuple=True)
            found = torch.nn.functional.gelu(x[tokens] @ up.double().T) @ down.double().T
            out.index_add_(0, tokens, found * self.routed.gates[tokens, choice].double()[:, None])
        return out

    def _padded(self, rows: Any) -> Any:
        torch = self.bench.torch
        slots = rows.view(len(self.up), self.routed.capacity, -1)
        wide = torch.nn.functional.gelu(torch.bmm(slots, self.up.transpose(1, 2)))
        return torch.bmm(wide, self.down.transpose(1, 2)).flatten(0, 1)
