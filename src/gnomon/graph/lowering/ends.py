"""What stands before the layers and behind them."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.formats import product_of
from gnomon.graph.lowering.site import STATE, stream
from gnomon.graph.ops import LOGITS, Collective, Elementwise, Gemm, Op
from gnomon.spec import Model


def embedding(model: Model) -> Iterator[Op]:
    yield stream("embedding", model.embedding_width or model.hidden, 1, 1)


def head(model: Model, tp: int) -> Iterator[Op]:
    yield stream("head.norm", model.hidden, 2, 1)
    vocab = -(-model.vocab // tp)
    dtype = product_of(model.head_format) if model.head_format else STATE
    yield Gemm(name="head.logits", m=LOGITS, n=vocab, k=model.embedding_width or model.hidden, dtype=dtype)
    if tp > 1:
        yield Collective(
            name="head.all_gather", op="all_gather", rows=LOGITS, bytes_per_row=model.vocab * width(STATE), ranks=tp
        )
    # In fp32: written once, then read to find the largest, to sum, and to draw.
    yield Elementwise(
        name="head.sample", rows=LOGITS, read_per_row=3 * model.vocab * 4.0, written_per_row=model.vocab * 4.0
    )
