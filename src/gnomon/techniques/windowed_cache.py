"""Tokens that a sequence no longer needs are evicted from its KV cache: all but the first few and the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import MemoryUse, ServingCase
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Attention, Op
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import AttentionMixer
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Values


class WindowedCache(Technique[ServingCase]):
    """StreamingLLM (arXiv:2309.17453). Prompts attend to all of their tokens; then the cache of a sequence is cut."""

    name = "windowed-cache"
    work = (SERVING,)
    title = "KV caches of the first and the last tokens alone"
    idea = (
        "A sequence keeps the keys and values of its first few tokens and of its last `window`: decode steps of long "
        "contexts read less and the cache holds more sequences, and what stood in between is forgotten."
    )
    parameters = (
        Parameter(
            "window", "last tokens that are kept", default=4096.0, low=16.0, high=1e7, whole=True, tried=(4096.0,)
        ),
        Parameter("sinks", "first tokens that are kept", default=4.0, high=4096.0, whole=True),
    )
    changes = frozenset({"flops", "cache bytes", "precision"})
    excludes = ("sparse-decode",)
    searched = False
    simulated = False

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        mixers = [block.mixer for block in case.model.blocks]
        plain = all(isinstance(mixer, AttentionMixer) for mixer in mixers)
        yield not plain, "caches of latent or recurrent layers have no tokens that could be left out"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        kept = _kept(values)

        def cut(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [replace(node, forward=tuple(_cut(op, kept) for op in node.forward)) for node in nodes]

        return cut

    def kv_cache(self, used: MemoryUse, case: ServingCase, values: Values) -> MemoryUse:
        """Beside what is kept, the tokens of a step: a prompt is cut when it is through."""
        kept, plain = _kept(values), used.sequence_blocks

        def blocks(tokens: int, new: int) -> int:
            held = min(tokens, kept + new)
            return plain(held, new) if plain else -(-held // used.block_tokens)

        return replace(used, sequence_blocks=blocks)


def _kept(values: Values) -> int:
    return int(values["window"]) + int(values["sinks"])


def _cut(op: Op, kept: int) -> Op:
    """Attention of decodes over what is kept; layers with a shorter window have that already."""
    if not isinstance(op, Attention) or op.phase != "decode" or (op.window and op.window.length <= kept):
        return op
    return replace(op, window=Window(kept))


TECHNIQUES = (WindowedCache(),)
