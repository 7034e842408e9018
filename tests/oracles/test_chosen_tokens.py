"""FLOPs of attention over chosen tokens in training, beside a plain implementation that PyTorch counts.

Queries and results are folded, one latent serves all heads, and the indexer learns from the shares of the chosen
tokens. The plain code gives every token as many of them as the last has, so that what lies ahead of a token is added.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.engines.megatron.style import fused  # noqa: E402
from gnomon.graph.layers import Cut, layer  # noqa: E402
from gnomon.graph.ops import IndexScores, LatentDecode, Op  # noqa: E402
from gnomon.graph.tape import Tape  # noqa: E402
from gnomon.graph.windows import Window  # noqa: E402
from gnomon.spec import Batch, Block, DenseFfn, Indexer, LatentAttention, Model  # noqa: E402

pytestmark = pytest.mark.oracle

SEQUENCES, TOKENS, HIDDEN, INNER = 2, 48, 64, 96
INDEXER = Indexer(heads=2, head_dim=16, topk=16)
SHAPE = LatentAttention(heads=4, kv_rank=32, nope_dim=12, rope_dim=8, value_dim=20, q_rank=24, indexer=INDEXER)
BATCH = Batch.prefill([SEQUENCES], TOKENS)


def tape() -> Tape:
    block = Block(mixer=SHAPE, ffn=DenseFfn(inner=INNER), count=1)
    model = Model(name="small", family="", hidden=HIDDEN, vocab=90, blocks=(block,), max_context=TOKENS)
    return layer(model, block, Cut(seq=TOKENS), fused())


def weights() -> dict[str, Any]:
    s, i = SHAPE, INDEXER
    sizes = {
        "q_down": (HIDDEN, s.q_rank),
        "q_up": (s.q_rank, s.heads * (s.nope_dim + s.rope_dim)),
        "kv_down": (HIDDEN, s.kv_rank + s.rope_dim),
        "fold": (s.heads, s.nope_dim, s.kv_rank),
        "unfold": (s.heads, s.kv_rank, s.value_dim),
        "out": (s.heads * s.value_dim, HIDDEN),
        "index_q": (s.q_rank, i.heads * i.head_dim),
        "index_k": (HIDDEN, i.head_dim + i.heads),
        "gate": (HIDDEN, INNER),
        "up": (HIDDEN, INNER),
        "down": (INNER, HIDDEN),
    }
    return {name: torch.randn(*size, requires_grad=True) for name, size in sizes.items()}


def attended(x: Any, w: dict[str, Any]) -> tuple[Any, Any]:
    """What the layer's attention gives, and the loss of its indexer."""
    s = SHAPE
    folded, latents = x @ w["q_down"], x @ w["kv_down"]
    queries = (folded @ w["q_up"]).unflatten(-1, (s.heads, -1))
    wide = torch.einsum("bthn,hnr->bthr", queries[..., : s.nope_dim], w["fold"])
    wide = torch.cat((wide, queries[..., s.nope_dim :]), -1)
    scores, chosen = indexed(x.detach(), folded.detach(), w)
    every = torch.arange(SEQUENCES)[:, None, None]
    keys = latents[every, chosen]  # sequence, token, chosen one, channel
    shares = (wide @ keys.transpose(-1, -2)).softmax(-1)
    mixed = torch.einsum("bthr,hrv->bthv", shares @ keys[..., : s.kv_rank], w["unfold"])
    with torch.no_grad():
        target = (wide @ keys.transpose(-1, -2)).softmax(-1).sum(2)
    return mixed.flatten(2) @ w["out"], -(target * scores.log_softmax(-1)).sum()


def indexed(x: Any, folded: Any, w: dict[str, Any]) -> tuple[Any, Any]:
    """Scores of the chosen tokens, and which they are. Every token is scored, and the chosen once more for their
    gradient."""
    i = INDEXER
    queries = (folded @ w["index_q"]).unflatten(-1, (i.heads, -1))
    keys, weights = (x @ w["index_k"]).split((i.head_dim, i.heads), -1)
    with torch.no_grad():
        scored = torch.einsum("bthd,bsd->bths", queries, keys).relu() * weights[..., None]
        chosen = scored.sum(2).topk(i.topk, -1).indices
    few = keys[torch.arange(SEQUENCES)[:, None, None], chosen]
    again = (queries @ few.transpose(-1, -2)).relu() * weights[..., None]
    return again.sum(2), chosen


def theirs() -> tuple[float, float]:
    w, x = weights(), torch.randn(SEQUENCES, TOKENS, HIDDEN, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        mixed, loss = attended(x, w)
        y = x + mixed
        y = y + ((y @ w["gate"]).sigmoid() * (y @ w["up"])) @ w["down"]
        there = counter.get_total_flops()
        (y.sum() + loss).backward()
        back = counter.get_total_flops() - there
    return float(there), float(back)


def ours(ops: tuple[Op, ...], *, backward: bool) -> float:
    return sum(op.count * (float(op.flops(BATCH)[0]) + _ahead(op, backward)) for op in ops)


def _ahead(op: Op, backward: bool) -> float:
    """What the plain code multiplies beyond what a token sees, less what it does not compute again."""
    if not isinstance(op, LatentDecode | IndexScores):
        return 0.0
    square = SEQUENCES * TOKENS * INDEXER.topk - float(Window(INDEXER.topk).prefill_pairs(BATCH)[0])
    if isinstance(op, LatentDecode):
        channels = (4 * op.kv_rank + 2 * op.rope_dim) if backward else (2 * op.kv_rank + op.rope_dim)
        again = float(op.recomputed_flops(BATCH)[0]) if backward else 0.0
        return 2.0 * square * op.heads * channels - again
    if backward:
        return 2.0 * op.heads * op.head_dim * 2 * square - float(op.recomputed_flops(BATCH)[0])
    whole = SEQUENCES * TOKENS**2 - float(BATCH.prefill_pairs[0])
    return 2.0 * op.heads * op.head_dim * whole


def test_flops_of_chosen_tokens() -> None:
    """The plain code scores the chosen tokens again where the kernel of the gradient does."""
    found, (there, back) = tape(), theirs()
    again = 2.0 * SEQUENCES * TOKENS * INDEXER.topk * INDEXER.heads * INDEXER.head_dim
    assert ours(found.forward_ops(), backward=False) + again == pytest.approx(there, rel=1e-12)
    assert ours(found.backward_ops("none"), backward=True) == pytest.approx(back, rel=1e-12)
