"""Latent attention (MLA): queries, keys and values projected up from a small latent per token.

Every tensor-parallel rank projects down with unsharded matrices; up-projections are cut by heads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.layers import paged, whole
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.writer import WIDE, Writer
from gnomon.graph.ops import Gemm, IndexScores, LatentDecode
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import Indexer, LatentAttention

PLACE_BYTES = 4.0
"""Of the place of a chosen token."""


def latent(writer: Writer, shape: LatentAttention, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `attended`."""
    heads, style, hidden = shape.heads // writer.cut.tp, writer.style, writer.model.hidden
    wide, value_width = shape.nope_dim + shape.rope_dim, heads * shape.value_dim
    gathered = yield from _projections(writer, shape, read, heads * wide)
    window = Window(shape.window) if shape.window else None
    of = Heads(heads=heads, kv_heads=heads, key_dim=wide, value_dim=shape.value_dim, window=window)
    if writer.cut.paged:
        turned = (heads + 1) * shape.rope_dim
        yield writer.elementwise("attention.rope", style.rope, turned, ("q",), {"qr": heads * wide}, False)
        yield from paged.latent(writer, shape, heads)
    elif shape.indexer is not None:
        yield from _chosen(writer, shape, shape.indexer, read, gathered)
    else:
        unfolded = {"kv": heads * (shape.nope_dim + shape.value_dim)}
        yield writer.linear("attention.kv_up", "kv_up", gathered, unfolded, shape.kv_rank)
        # Turned parts and the others are put together: keys get the one turned part beside each head's own.
        joined = {"qr": heads * wide, "kr": heads * wide, "v": value_width}
        yield writer.elementwise("attention.rope", style.rope, sum(joined.values()), ("q", "kv"), joined, False)
        yield from whole.core(writer, of, ("qr", "kr", "v"))
    yield writer.linear("attention.out", "out", "mixed", {"attended": hidden}, value_width, bias=shape.bias)


def _chosen(writer: Writer, shape: LatentAttention, indexer: Indexer, read: str, latents: str) -> Iterator[TapeNode]:
    """Over whole sequences of which each token sees those that the indexer chose, with the up-projections absorbed into
    queries and results, as one latent is read by all heads (DeepSeek-V3.2)."""
    heads, style, dtype = shape.heads // writer.cut.tp, writer.style, writer.cut.dtype
    rank, turned = shape.kv_rank, shape.rope_dim
    yield from _indexed(writer, shape, indexer, read)
    yield _by_head(writer, "attention.fold", "q", {"q.latent": rank}, shape.nope_dim, heads)
    joined = {"qr": heads * (rank + turned), "kr": rank + turned}
    reads = ("q.latent", latents)
    yield writer.elementwise("attention.rope", style.rope, sum(joined.values()), reads, joined, False)
    kernel = LatentDecode(
        name="attention.core", phase="prefill", heads=heads, kv_rank=rank, rope_dim=turned, kv_dtype=dtype, dtype=dtype,
        topk=indexer.topk,
    )  # fmt: skip
    writer.sizes |= {"mixed.latent": heads * rank * writer.value, "lse": heads * whole.LSE_BYTES}
    yield TapeNode(
        name="attention.core",
        forward=(kernel,),
        reads=("qr", "kr"),
        writes=("mixed.latent", "lse"),
        keeps=("qr", "kr", "mixed.latent", "lse", "chosen"),
        cheap=not style.stop_early,
        gradient_scratch=(rank + turned) * whole.GRADIENT_BYTES,
    )
    yield _target(writer, kernel)
    yield _by_head(writer, "attention.unfold", "mixed.latent", {"mixed": shape.value_dim}, rank, heads)


def _by_head(writer: Writer, name: str, read: str, widths: dict[str, int], k: int, heads: int) -> TapeNode:
    """A part of the up-projection, which each head multiplies with its own queries or results."""
    node = writer.linear(name, "kv_up", read, widths, k, dtype=writer.cut.dtype)
    ((written, n),) = widths.items()
    writer.sizes[written] = heads * n * writer.value
    (gemm,) = node.forward
    assert isinstance(gemm, Gemm)
    return replace(node, forward=(replace(gemm, batch=heads),), parameters=float(heads * n * k))


def _indexed(writer: Writer, shape: LatentAttention, indexer: Indexer, read: str) -> Iterator[TapeNode]:
    """Scores of all tokens by the indexer's own heads, unsharded on every rank, and the choice of the best. It learns
    from the attention of the large heads alone: nothing it reads gets a gradient."""
    wide, each, cut = indexer.heads * indexer.head_dim, indexer.head_dim, writer.cut
    queries, k = ("q.normed", shape.q_rank) if shape.q_rank else (read, writer.model.hidden)
    found = writer.linear("attention.index_q", "index_q", writer.gathered(queries), {"index.q": wide}, k)
    yield replace(found, detached=True)
    made = {"index.k": each, "index.weights": indexer.heads}
    found = writer.linear("attention.index_k", "", read, made, writer.model.hidden, cut.rows, dtype=cut.dtype)
    yield replace(found, detached=True)
    keys, weights = made
    if cut.sequence_parallel:
        reads, (keys, weights) = tuple(made), (f"{name}.whole" for name in made)
        writer.sizes |= {keys: each * writer.value, weights: indexer.heads * writer.value}
        yield writer.collective("attention.index_k.enter", "all_gather", reads, (keys, weights), sum(made.values()))
    ready = {"index.qr": wide, "index.kr": each}
    norm = writer.style.lone_norm or writer.style.norm
    found = writer.elementwise("attention.index_prepare", norm, wide + each, ("index.q", keys), ready, True)
    yield replace(found, parameters=2.0 * each)
    yield _scored(writer, indexer, ("index.qr", "index.kr", weights))


def _scored(writer: Writer, indexer: Indexer, reads: tuple[str, ...]) -> TapeNode:
    """Scores of some queries at a time, of which those of the chosen tokens are saved."""
    scores = IndexScores(
        name="attention.index", phase="prefill", heads=indexer.heads, head_dim=indexer.head_dim,
        dtype=writer.cut.dtype, topk=indexer.topk,
    )  # fmt: skip
    made = {"index.scores": indexer.topk * WIDE, "chosen": indexer.topk * PLACE_BYTES}
    writer.sizes |= made
    return TapeNode(
        name="attention.index", forward=(scores,), reads=reads, writes=tuple(made), keeps=(*reads, "index.scores")
    )


def _target(writer: Writer, core: LatentDecode) -> TapeNode:
    """What the indexer learns from: shares of the chosen tokens, of all heads together, which takes their scores once
    more (DeepSeek-V3.2, sparse training)."""
    scores = replace(core, name="attention.index_target", kv_rank=0, rope_dim=core.kv_rank + core.rope_dim)
    reads = ("qr", "kr", "lse", "index.scores")
    return TapeNode(name="attention.index_target", forward=(scores,), reads=reads, detached=True)


def _projections(writer: Writer, shape: LatentAttention, read: str, queries: int) -> Generator[TapeNode, None, str]:
    """Queries, and the latents of keys and values. Both are projected down in one GEMM where an engine joins them."""
    hidden, rows, bias, folded = writer.model.hidden, writer.cut.rows, shape.bias, shape.kv_rank + shape.rope_dim
    if shape.q_rank is None:
        whole = yield from writer.enter("attention.q", read)
        yield writer.linear("attention.q", "q", whole, {"q": queries}, hidden)
    elif writer.style.joined_down:
        down = {"q.folded": shape.q_rank, "kv.folded": folded}
        yield writer.linear("attention.down", "q_down", read, down, hidden, rows, bias)
    else:
        yield writer.linear("attention.q_down", "q_down", read, {"q.folded": shape.q_rank}, hidden, rows, bias)
    if shape.q_rank is not None:
        gathered = yield from _normed(writer, "q", shape.q_rank, shape.q_rank)
        yield writer.linear("attention.q_up", "q_up", gathered, {"q": queries}, shape.q_rank)
    if shape.q_rank is None or not writer.style.joined_down:
        yield writer.linear("attention.kv_down", "kv_down", read, {"kv.folded": folded}, hidden, rows, bias)
    return (yield from _normed(writer, "kv", shape.kv_rank, folded))


def _normed(writer: Writer, name: str, rank: int, values: int) -> Generator[TapeNode, None, str]:
    """A latent per token, normed, and gathered from the ranks that share the tokens out, with what is beside it."""
    folded, normed, norm = f"{name}.folded", f"{name}.normed", writer.style.lone_norm or writer.style.norm
    sizes = {normed: rank * writer.cut.share}
    node = writer.elementwise(f"attention.{name}_norm", norm, rank, (folded,), sizes, True, writer.cut.rows)
    yield replace(node, parameters=float(rank))
    return (yield from writer.enter(f"attention.{name}", normed, values))
