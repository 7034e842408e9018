"""A sequence's KV cache on several instances, with attention computed where its pieces lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from gnomon.engines.base import MemoryUse, ServingCase
from gnomon.graph.context import part_attention
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Attention, Collective, Op, Rows
from gnomon.graph.sizes import DECODES
from gnomon.graph.tape import TapeNode
from gnomon.spec import AttentionMixer
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values

WIDE = 4
"""Bytes of a number of a partial result, and of its maximum and its sum."""


class DistributedKvCache(Technique[ServingCase]):
    """Infinite-LLM's DistAttention, for an instance whose sequences fill the caches of others, too. In a decode step
    queries go to every instance that holds a piece, and partial results come back with their softmax's maxima and sums.
    """

    name = "distributed-kv-cache"
    work = (SERVING,)
    title = "One KV cache over several instances"
    idea = (
        "A sequence's keys and values lie in equal pieces on several instances, each of which attends to its piece: a "
        "sequence may be as long as all of them have room for, and every layer sends queries out and partial results "
        "back; what the others hold they cannot use themselves."
    )
    trials = (Trial(paper="infinite-llm", words="distributed-kv-cache"),)
    parameters = (
        Parameter(
            "instances", "that hold a sequence's cache", default=2.0, low=2.0, high=1024.0, whole=True, tried=(2.0, 8.0)
        ),
    )
    changes = frozenset({"flops", "cache bytes"})
    excludes = ("sparse-decode",)
    searched = False
    simulated = False

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        plain = all(isinstance(block.mixer, AttentionMixer) for block in case.model.blocks)
        yield not plain, "the cache of latent or recurrent layers is not priced in pieces"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        ranks = int(values["instances"])
        stride = case.strategy.ranks

        def apart(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [
                replace(node, forward=tuple(new for op in node.forward for new in _apart(op, ranks, stride)))
                for node in nodes
            ]

        return apart

    def kv_cache(self, used: MemoryUse, case: ServingCase, values: Values) -> MemoryUse:
        """What a sequence holds here: a piece of its blocks, of which the last may be partly used on each instance."""
        plain, instances = used.sequence_blocks, int(values["instances"])

        def piece(tokens: int, new: int) -> int:
            return ceil((plain(tokens, new) if plain else ceil(tokens / used.block_tokens)) / instances)

        return replace(used, sequence_blocks=piece)

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the other instances have room for their pieces, and attend to them while this one does to its own"


def _apart(op: Op, ranks: int, stride: int) -> tuple[Op, ...]:
    """Attention of decodes to a piece, with queries sent and partial results merged."""
    if not isinstance(op, Attention) or op.phase != "decode":
        return (op,)
    out = op.heads * op.head_dim * 2.0
    back = op.heads * (op.values + 2) * WIDE
    rows = Rows(DECODES.of, float(ranks - 1))
    sends = (
        Collective(
            name=f"{op.name}.{name}", op="send_recv", rows=rows, bytes_per_row=size, ranks=2, stride=stride,
            count=op.count,
        )
        for name, size in (("queries", out), ("partials", back))
    )  # fmt: skip
    return (part_attention(op, context_share=1 / ranks), *sends)


TECHNIQUES = (DistributedKvCache(),)
