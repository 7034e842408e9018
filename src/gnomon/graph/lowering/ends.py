"""What comes before the layers and after them."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.formats import gemm_dtype
from gnomon.graph.lowering.site import STATE, stream
from gnomon.graph.ops import LOGITS, TOKENS, Collective, Elementwise, Gemm, Op
from gnomon.spec import Model


def embedding(model: Model, tp: int) -> Iterator[Op]:
    """Ranks hold rows of the table; each fills in what it has, and the sum makes it whole."""
    channels = model.embedding_width or model.hidden
    yield stream("embedding", channels, 1, 1)
    if tp > 1:
        yield Collective(
            name="embedding.all_reduce", op="all_reduce", rows=TOKENS, bytes_per_row=channels * width(STATE), ranks=tp
        )


def head(model: Model, tp: int) -> Iterator[Op]:
    yield stream("head.norm", model.hidden, 2, 1)
    vocab = -(-model.vocab // tp)
    dtype = gemm_dtype(model.head_format) if model.head_format else STATE
    yield Gemm(name="head.logits", m=LOGITS, n=vocab, k=model.embedding_width or model.hidden, dtype=dtype)
    if tp > 1:
        yield Collective(
            name="head.all_gather", op="all_gather", rows=LOGITS, bytes_per_row=model.vocab * width(STATE), ranks=tp
        )
    # In fp32: written once, then read to find the largest, to sum, and to draw.
    yield Elementwise(
        name="head.sample", rows=LOGITS, read_per_row=3 * model.vocab * 4.0, written_per_row=model.vocab * 4.0
    )
