"""Attention over a sequence that context-parallel ranks share: each has two pieces of it, an early and a late one, so
that causal work is even.

How ranks meet each other's keys is `cp_comm` of a plan, by name in `COMMS`: keys and values travel around a ring
(p2p), tokens are traded for heads (a2a, Ulysses), or every rank gathers all keys and values (allgather); in two levels
(a2a+p2p) neighbours trade and a ring joins them. Tensors are [sequences, heads, tokens, head size]; keys and values may
have fewer heads than queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from gnomon.engines.torch.exchange import all_to_all
from gnomon.engines.torch.ranks import RING, TRADERS, Place
from gnomon.spec.training import TWO_LEVELS

Tensor = Any


class ContextRanks(NamedTuple):
    """Ranks that share sequences, and which of them this is."""

    group: Any
    size: int
    own: int

    @classmethod
    def of(cls, place: Place, axis: str) -> ContextRanks:
        return cls(place.group(axis), place.size(axis), place.at(axis))


Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention of this rank's queries, keys and values."""


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of whole sequences."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def attention(comm: str, place: Place) -> Attention:
    """The attention of a rank."""
    if place.size("cp") == 1:
        return plain
    if comm == TWO_LEVELS:
        return traded(ContextRanks.of(place, TRADERS), ring(ContextRanks.of(place, RING)))
    return COMMS[comm](ContextRanks.of(place, "cp"))


def positions(seq: int, place: Place) -> Tensor:
    """Of the tokens of this rank, in the order in which it holds them."""
    every = torch.arange(seq, device=place.device)
    if place.size("cp") == 1:
        return every
    pieces = every.chunk(2 * place.size("cp"))
    return torch.cat([pieces[number] for number in _pieces(ContextRanks.of(place, "cp"))])


def _pieces(line: ContextRanks, rank: int | None = None) -> tuple[int, int]:
    """Numbers of a rank's pieces: one from the start of the sequence, one from its end."""
    own = line.own if rank is None else rank
    return own, 2 * line.size - 1 - own


def _natural(line: ContextRanks) -> list[int]:
    """Where each piece of a sequence stands after those of all ranks have been put one after the other."""
    held = [piece for rank in range(line.size) for piece in _pieces(line, rank)]
    return [held.index(number) for number in range(len(held))]


def _in_order(x: Tensor, line: ContextRanks) -> Tensor:
    """Tokens of all ranks, as they come from them, in the order of the sequence."""
    pieces = x.chunk(2 * line.size, 2)
    return torch.cat([pieces[where] for where in _natural(line)], 2)


def _as_held(x: Tensor, line: ContextRanks) -> Tensor:
    """The reverse of `_in_order`."""
    pieces = x.chunk(2 * line.size, 2)
    return torch.cat([pieces[piece] for rank in range(line.size) for piece in _pieces(line, rank)], 2)


def traded(line: ContextRanks, inner: Attention = plain) -> Attention:
    """Tokens for heads and back: every rank attends over whole sequences with a part of the heads; with a ring as
    `inner`, over the sequences of these ranks. Neighbours have neighbouring pieces, so together two long ones."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        whole = [_in_order(_to_heads(x, line), line) for x in (q, k, v)]
        return _to_tokens(_as_held(inner(*whole), line), line)

    return attend


def _to_heads(x: Tensor, line: ContextRanks) -> Tensor:
    """[b, h, t, d] of local tokens to [b, h / cp, cp t, d]."""
    cp, (b, h, t, d) = line.size, x.shape
    sent = x.reshape(b, cp, h // cp, t, d).transpose(0, 1).contiguous()
    found = all_to_all(sent, None, None, line.group)
    return found.permute(1, 2, 0, 3, 4).reshape(b, h // cp, cp * t, d)


def _to_tokens(x: Tensor, line: ContextRanks) -> Tensor:
    cp, (b, h, t, d) = line.size, x.shape
    sent = x.reshape(b, h, cp, t // cp, d).permute(2, 0, 1, 3, 4).contiguous()
    found = all_to_all(sent, None, None, line.group)
    return found.transpose(0, 1).reshape(b, cp * h, t // cp, d)


def gathered(line: ContextRanks) -> Attention:
    """All keys and values on every rank, of which each piece of its queries reads those up to its own end."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (_in_order(_gather(x, line), line) for x in (k, v))
        length, found = q.shape[2] // 2, []
        for number, piece in zip(_pieces(line), q.chunk(2, 2), strict=True):
            end = (number + 1) * length
            bias, grouped = causal_lower_right(length, end), q.shape[1] != k.shape[1]
            keys, values = k[:, :, :end], v[:, :, :end]
            found.append(F.scaled_dot_product_attention(piece, keys, values, attn_mask=bias, enable_gqa=grouped))
        return torch.cat(found, 2)

    return attend


def _gather(x: Tensor, line: ContextRanks) -> Tensor:
    """The tokens of all ranks, one rank after the other. As an all-to-all of copies, whose gradients are summed."""
    cp = line.size
    found = all_to_all(x.unsqueeze(0).expand(cp, *x.shape).contiguous(), None, None, line.group)
    return torch.cat(found.unbind(0), 2)


def ring(line: ContextRanks) -> Attention:
    """Keys and values travel around the ranks; each attends to those it has while the next ones come."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _Ring.apply(q, k, v, line)

    return attend


COMMS: dict[str, Callable[[ContextRanks], Attention]] = {"p2p": ring, "a2a": traded, "allgather": gathered}


class _Ring(torch.autograd.Function):  # type: ignore[misc]
    """Attention to one rank's keys after another, put together by the log of their sums (lse). Its backward pass needs
    the lse and the output of all keys, so it is written here and not left to autograd."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: ContextRanks) -> Tensor:
        out, lse, pair = torch.empty(0), torch.empty(0), torch.stack((k, v))
        for turn in range(line.size):
            coming = _Shift(pair, line) if turn + 1 < line.size else None
            rows, keys, causal = _seen(line, turn, q.shape[2])
            found, logs = _attend(q[:, :, rows], *_wide(pair[:, :, :, keys], q.shape[1]), causal)
            if turn == 0:
                out, lse = found.to(torch.float32, copy=True), logs.clone()
            else:
                _merge(out[:, :, rows], lse[:, :, rows], found, logs)
            pair = coming.wait() if coming is not None else pair
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.line = line
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        line, pair, heads = ctx.line, torch.stack((k, v)), q.shape[1]
        by_q, by_pair = torch.zeros_like(q, dtype=torch.float32), torch.zeros_like(pair, dtype=torch.float32)
        for turn in range(line.size):
            coming = _Shift(pair, line) if turn + 1 < line.size else None
            rows, keys, causal = _seen(line, turn, q.shape[2])
            read = Read(*(x[:, :, rows].contiguous() for x in (grad, q, out, lse)))
            dq, dk, dv = _attend_backward(read, *_wide(pair[:, :, :, keys], heads), causal)
            by_q[:, :, rows] += dq
            by_pair[:, :, :, keys] += _narrow(torch.stack((dk, dv)), pair.shape[2])
            pair = coming.wait() if coming is not None else pair
            by_pair = _Shift(by_pair, line).wait()  # a sum stays with its keys, and is at home after the last turn
        return by_q.to(q.dtype), by_pair[0].to(k.dtype), by_pair[1].to(v.dtype), None


class _Shift:
    """A tensor on its way to the next rank of the ring, and another coming from the one before."""

    def __init__(self, x: Tensor, line: ContextRanks) -> None:
        group, cp, own = line
        self.sent, self.found = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        send = dist.P2POp(dist.isend, self.sent, group=group, group_peer=(own + 1) % cp)
        receive = dist.P2POp(dist.irecv, self.found, group=group, group_peer=(own - 1) % cp)
        self.works = dist.batch_isend_irecv([send, receive])

    def wait(self) -> Tensor:
        for work in self.works:
            work.wait()
        return self.found


def _seen(line: ContextRanks, turn: int, tokens: int) -> tuple[slice, slice, bool]:
    """Queries and keys that meet when those of the rank `turn` places before are here, and whether causally.

    Its own a rank reads causally. Of ranks before it all its queries see the early piece, and the late one is after
    them; of ranks behind it, whose early piece is after its own, the late queries alone see both."""
    own, every = line.own, slice(0, tokens)
    if turn == 0:
        return every, every, True
    if turn <= own:
        return every, slice(0, tokens // 2), False
    return slice(tokens // 2, tokens), every, False


def _wide(pair: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values with as many heads as queries."""
    k, v = pair.repeat_interleave(heads // pair.shape[2], 2).unbind(0)
    return k, v


def _narrow(pair: Tensor, heads: int) -> Tensor:
    return pair.float().unflatten(2, (heads, -1)).sum(3)


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """The output, and the log of the sum that it was divided by: FlashAttention's, or of GEMMs in fp32."""
    if _is_flash(q):
        found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        return found[0], found[1]
    scores = _scores(q, k, causal)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp() @ v.float(), lse


class Read(NamedTuple):
    """Queries, what came of them over all keys, and its gradient."""

    grad: Tensor
    q: Tensor
    out: Tensor
    lse: Tensor


def _attend_backward(read: Read, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries and of some of the keys and values."""
    grad, q, out, lse = read
    if _is_flash(q):
        seed, back = torch.zeros(2, dtype=torch.uint64, device=q.device), torch.ops.aten
        lengths = None, None, q.shape[2], k.shape[2]
        dq, dk, dv = back._scaled_dot_product_flash_attention_backward(
            grad, q, k.contiguous(), v.contiguous(), out, lse, *lengths, 0.0, causal, seed, torch.zeros_like(seed)
        )
        return dq, dk, dv
    grad, out, keys, values = grad.float(), out.float(), k.float(), v.float()
    shares = (_scores(q, k, causal) - lse.unsqueeze(-1)).exp()
    by_scores = shares * (grad @ values.mT - (grad * out).sum(-1, keepdim=True)) * _scale(q)
    return by_scores @ keys, by_scores.mT @ q.float(), shares.mT @ grad


def _is_flash(q: Tensor) -> bool:
    return q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16)


def _scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    scores = (q.float() @ k.float().mT) * _scale(q)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    return scores


def _scale(q: Tensor) -> float:
    return float(q.shape[-1] ** -0.5)


def _merge(out: Tensor, lse: Tensor, found: Tensor, logs: Tensor) -> None:
    """Add attention to further keys, in place."""
    both = torch.logaddexp(lse, logs)
    out.mul_((lse - both).exp().unsqueeze(-1)).add_(found * (logs - both).exp().unsqueeze(-1))
    lse.copy_(both)
