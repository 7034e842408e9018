"""Decode steps that attend to the most relevant pages of a cache that keeps all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import ServingCase
from gnomon.graph.dtypes import width
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Attention, Elementwise, Op, Rows
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import AttentionMixer
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Values

BOUNDS = 2
"""Vectors that stand for a page of keys: the smallest and the largest of each channel (Quest, arXiv:2406.10774)."""


class SparseDecode(Technique[ServingCase]):
    name = "sparse-decode"
    work = (SERVING,)
    title = "Decodes that read the most relevant pages of the cache"
    idea = (
        "Every decode step compares its query with two vectors for each page of keys and attends to the best pages "
        "alone, `tokens` in all: long contexts are read in part, none is forgotten, and answers may differ."
    )
    parameters = (
        Parameter("tokens", "that a decode attends to", default=2048.0, low=16.0, high=1e7, whole=True),
        Parameter("page", "tokens of a page", default=16.0, low=1.0, high=1024.0, whole=True),
    )
    excludes = ("windowed-cache", "distributed-kv-cache")
    searched = False
    changes = frozenset({"flops", "precision"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        plain = all(isinstance(block.mixer, AttentionMixer) for block in case.model.blocks)
        yield not plain, "caches of latent or recurrent layers are not cut into pages of keys"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        tokens, page = int(values["tokens"]), int(values["page"])

        def picked(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [
                replace(node, forward=tuple(new for op in node.forward for new in _picked(op, tokens, page)))
                for node in nodes
            ]

        return picked


def _picked(op: Op, tokens: int, page: int) -> tuple[Op, ...]:
    """Pages are chosen by one kernel over what stands for them, which keys are written into as they come."""
    if not isinstance(op, Attention) or op.phase != "decode" or (op.window and op.window.length <= tokens):
        return (op,)
    chosen = Elementwise(
        name=f"{op.name}.pages",
        rows=Rows("decode_context", 1 / page),
        read_per_row=BOUNDS * op.kv_heads * op.head_dim * width(op.kv_dtype),
        written_per_row=4.0 * op.heads,
        count=op.count,
    )
    return chosen, replace(op, window=Window(tokens))


TECHNIQUES = (SparseDecode(),)
