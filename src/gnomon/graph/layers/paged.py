"""Mixers over what a cache holds: prompts and decodes of one step, which only they run differently."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.layers.cut import Paged
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import Attention, Gemm, IndexScores, LatentDecode
from gnomon.graph.sizes import CACHED, DECODES, PROMPT_CONTEXT, TOKENS, Rows
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import AttentionMixer, Indexer, LatentAttention


def _how(writer: Writer) -> Paged:
    assert writer.cut.paged is not None
    return writer.cut.paged


def moved(writer: Writer, name: str, values: float, reads: float, writes: float, rows: Rows = TOKENS) -> TapeNode:
    """So many times `values` numbers read and written per row."""
    return writer.elementwise(name, Stream(reads, writes, 0, 0), values, (), {}, False, rows)


def cache_write(writer: Writer, values: float, reads: float) -> TapeNode:
    return moved(writer, "attention.cache_write", values, reads, width(_how(writer).kv_dtype) / writer.value)


def softmax(writer: Writer, shape: AttentionMixer, of: Heads) -> Iterator[TapeNode]:
    if not shape.shared_kv:
        yield cache_write(writer, 2 * of.kv_heads * of.key_dim, 0.5 if shape.tied_values else 1.0)
    window = of.window
    for phase in ("prefill", "decode"):
        yield from bare(
            Attention(
                name=f"attention.window.{phase}" if window else f"attention.{phase}",
                phase=phase,
                heads=of.heads,
                kv_heads=of.kv_heads,
                head_dim=of.key_dim,
                kv_dtype=_how(writer).kv_dtype,
                window=window,
                capped=shape.logit_cap is not None,
            )
        )


def latent(writer: Writer, shape: LatentAttention, heads: int) -> Iterator[TapeNode]:
    """Prompts project keys and values up, decodes absorb the up-projection and attend to latents. Where tokens are
    chosen by an indexer, prompts run as decodes do."""
    yield cache_write(writer, shape.kv_rank + shape.rope_dim, 1.0)
    if shape.indexer is not None:
        yield from _index(writer, shape.indexer, shape)
        yield from _absorbed(writer, shape, heads, TOKENS)
    else:
        yield from _projected_up(writer, shape, heads)
        yield from _absorbed(writer, shape, heads, DECODES)


def _projected_up(writer: Writer, shape: LatentAttention, heads: int) -> Iterator[TapeNode]:
    """Prompts: what was cached before them is gathered, widened and projected up again."""
    key, folded = shape.nope_dim + shape.rope_dim, shape.kv_rank + shape.rope_dim
    yield moved(writer, "attention.gather", folded, width(_how(writer).kv_dtype) / writer.value, 1.0, CACHED)
    unfolded = {"kv": heads * (shape.nope_dim + shape.value_dim)}
    yield writer.linear("attention.kv_up", "kv_up", "kv.normed", unfolded, shape.kv_rank, PROMPT_CONTEXT)
    yield moved(writer, "attention.keys", heads * key, 1, 1, PROMPT_CONTEXT)
    yield from bare(
        Attention(
            name="attention.prefill",
            phase="prefill",
            heads=heads,
            kv_heads=heads,
            head_dim=key,
            value_dim=shape.value_dim,
            kv_dtype=writer.cut.dtype,
        )
    )


def _absorbed(writer: Writer, shape: LatentAttention, heads: int, rows: Rows) -> Iterator[TapeNode]:
    """The up-projection is absorbed into queries and results, in 16 bits whatever it is stored in."""
    topk, dtype = (shape.indexer.topk if shape.indexer else None), writer.cut.dtype

    def by_head(name: str, n: int, k: int) -> Gemm:
        return Gemm(name=name, m=rows, n=n, k=k, batch=heads, dtype=dtype)

    yield from bare(by_head("attention.fold", shape.kv_rank, shape.nope_dim))
    for phase in ("prefill", "decode") if topk else ("decode",):
        yield from bare(
            LatentDecode(
                name=f"attention.{phase}",
                phase=phase,
                heads=heads,
                kv_rank=shape.kv_rank,
                rope_dim=shape.rope_dim,
                kv_dtype=_how(writer).kv_dtype,
                topk=topk,
            )
        )
    yield from bare(by_head("attention.unfold", shape.value_dim, shape.kv_rank))


def _index(writer: Writer, indexer: Indexer, shape: LatentAttention) -> Iterator[TapeNode]:
    """Every rank scores with all of its heads."""
    hidden, wide = writer.model.hidden, indexer.heads * indexer.head_dim
    queries, k = ("q.normed", shape.q_rank) if shape.q_rank else ("normed", hidden)
    yield writer.linear("attention.index_q", "index_q", queries, {"index.q": wide}, k)
    # Keys and weights in one GEMM, widened to 16 bits where they are stored in fewer.
    made = {"index.k": indexer.head_dim + indexer.heads}
    yield writer.linear("attention.index_k", "", "normed", made, hidden, dtype=writer.cut.dtype)
    # Normed, turned and narrowed to eight bits.
    yield moved(writer, "attention.index_prepare", wide + indexer.head_dim, 1, 0.5)
    for phase in ("prefill", "decode"):
        yield from bare(
            IndexScores(name=f"attention.index.{phase}", phase=phase, heads=indexer.heads, head_dim=indexer.head_dim)
        )
