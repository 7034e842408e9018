"""Latent attention (MLA): prompts project keys and values up, decodes absorb the up-projection and attend to latents.

Every rank has the down-projections and the full cache; up-projections are cut by heads. Where tokens are chosen by an
indexer, prompts run as decodes do.
"""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, stream
from gnomon.graph.ops import Attention, Gemm, IndexScores, LatentDecode, Op
from gnomon.graph.sizes import CACHED, DECODES, PROMPT_CONTEXT, TOKENS, Rows
from gnomon.spec import Indexer, LatentAttention


def latent(shape: LatentAttention, site: Site) -> Iterator[Op]:
    heads, folded = shape.heads // site.tp, shape.kv_rank + shape.rope_dim
    yield from _projections(shape, site, heads * (shape.nope_dim + shape.rope_dim), folded)
    yield stream("attention.rope", (heads + 1) * shape.rope_dim, 1, 1, site.count)
    yield stream("attention.cache_write", folded, 1, width(site.kv_dtype) / width(STATE), site.count)
    if shape.indexer is not None:
        yield from _index(shape.indexer, shape, site)
        yield from _folded(shape, site, heads, TOKENS)
    else:
        yield from _unfolded(shape, site, heads, folded)
        yield from _folded(shape, site, heads, DECODES)
    yield from linear("attention.out", "out", site.hidden, heads * shape.value_dim, site)


def _projections(shape: LatentAttention, site: Site, queries: int, folded: int) -> Iterator[Op]:
    """Queries and latents are projected down in one GEMM where both are."""
    if shape.q_rank is None:
        yield from linear("attention.q", "q", queries, site.hidden, site)
        yield from linear("attention.kv_down", "kv_down", folded, site.hidden, site)
    else:
        yield from linear("attention.down", "q_down", shape.q_rank + folded, site.hidden, site)
        yield stream("attention.q_norm", shape.q_rank, 1, 1, site.count)
        yield from linear("attention.q_up", "q_up", queries, shape.q_rank, site)
    yield stream("attention.kv_norm", shape.kv_rank, 1, 1, site.count)


def _unfolded(shape: LatentAttention, site: Site, heads: int, folded: int) -> Iterator[Op]:
    """Prompts: what was cached before them is gathered, widened and projected up again."""
    count, key = site.count, shape.nope_dim + shape.rope_dim
    yield stream("attention.gather", folded, width(site.kv_dtype) / width(STATE), 1, count, CACHED)
    unfolded = heads * (shape.nope_dim + shape.value_dim)
    yield from linear("attention.kv_up", "kv_up", unfolded, shape.kv_rank, site, PROMPT_CONTEXT)
    yield stream("attention.keys", heads * key, 1, 1, count, PROMPT_CONTEXT)
    yield Attention(
        name="attention.prefill",
        phase="prefill",
        heads=heads,
        kv_heads=heads,
        head_dim=key,
        value_dim=shape.value_dim,
        kv_dtype=STATE,
        count=count,
    )


def _folded(shape: LatentAttention, site: Site, heads: int, rows: Rows) -> Iterator[Op]:
    """The up-projection is absorbed into queries and results, in 16 bits whatever it is stored in."""
    topk = shape.indexer.topk if shape.indexer else None
    yield _by_head("attention.fold", heads, rows, shape.kv_rank, shape.nope_dim, site.count)
    for phase in ("prefill", "decode") if topk else ("decode",):
        yield LatentDecode(
            name=f"attention.{phase}",
            phase=phase,
            heads=heads,
            kv_rank=shape.kv_rank,
            rope_dim=shape.rope_dim,
            kv_dtype=site.kv_dtype,
            topk=topk,
            count=site.count,
        )
    yield _by_head("attention.unfold", heads, rows, shape.value_dim, shape.kv_rank, site.count)


def _by_head(name: str, heads: int, rows: Rows, n: int, k: int, count: int) -> Gemm:
    return Gemm(name=name, m=rows, n=n, k=k, batch=heads, dtype=STATE, count=count)


def _index(indexer: Indexer, shape: LatentAttention, site: Site) -> Iterator[Op]:
    """Every rank scores with all of its heads."""
    count, wide = site.count, indexer.heads * indexer.head_dim
    yield from linear("attention.index_q", "index_q", wide, shape.q_rank or site.hidden, site)
    # Keys and weights in one GEMM, widened to 16 bits where they are stored in fewer.
    n = indexer.head_dim + indexer.heads
    yield Gemm(name="attention.index_k", m=TOKENS, n=n, k=site.hidden, dtype=STATE, count=count)
    # Normed, turned and narrowed to eight bits.
    yield stream("attention.index_prepare", wide + indexer.head_dim, 1, 0.5, count)
    for phase in ("prefill", "decode"):
        yield IndexScores(
            name=f"attention.index.{phase}",
            phase=phase,
            heads=indexer.heads,
            head_dim=indexer.head_dim,
            count=count,
        )
