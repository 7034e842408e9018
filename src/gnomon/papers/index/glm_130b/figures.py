"""GLM-130B (Zeng et al. 2022): which machines hold it in which format, and what weights that are written out cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster
from gnomon.papers.shapes import network
from gnomon.spec import Model, Pool

MIXER = {"kind": "attention", "heads": 96, "kv_heads": 96, "head_dim": 128, "qkv_bias": True, "out_bias": True}
FFN = {"kind": "dense", "inner": 32768, "gated": True, "bias": True}
SHAPES = {
    "hidden": 12288,
    "vocab": 150528,
    "max_context": 2048,
    "dtype": "fp16",
    "tied_embeddings": True,
    "blocks": [{"count": 70, "mixer": MIXER, "ffn": FFN}],
}
INT4, INT8 = ("dequantize-on-the-fly",), ("dequantize-on-the-fly:bits=8",)
FAST: dict[str, Any] = {"engine": "fastertransformer", "techniques": ("int4-weights:group=0",)}
"""The repository's benchmark: FasterTransformer with the authors' kernel for weights in four bits."""
LENGTHS = (128, 512, 1024, 2048)
GIGA, MILLI = 1e9, 1e-3


class Row(NamedTuple):
    """A machine of the repository's benchmark in four bits, and the lengths whose times are printed."""

    chip: str
    cards: int
    encoded: int = len(LENGTHS)
    decoded: int = len(LENGTHS)
    """How many of `LENGTHS`, from the shortest; memory ran out with the others."""

    @property
    def name(self) -> str:
        return f"{self.cards} x {self.chip}"


ROWS = (
    Row("A100-SXM-40GB", 8),
    Row("A100-SXM-80GB", 4),
    Row("V100-SXM2-32GB", 8),
    Row("V100-SXM2-32GB", 4),
    Row("RTX-3090", 8),
    Row("RTX-3090", 4, encoded=2),
    Row("RTX-2080Ti", 8, encoded=2, decoded=3),
)
HOLDS = (
    ("RTX-3090", 4, "four bits", INT4),
    ("RTX-2080Ti", 8, "four bits", INT4),
    ("A100-SXM-40GB", 8, "16 bits", ()),
    ("V100-SXM2-32GB", 8, "16 bits", ()),
    ("V100-SXM2-32GB", 8, "eight bits", INT8),
    ("RTX-3090", 8, "eight bits", INT8),
)
SHORT = 512
"""Tokens of the sequence that a machine must have room for."""
LIBRARY = (("V100-SXM2-32GB", 8, INT8), ("RTX-3090", 4, INT4), ("RTX-2080Ti", 8, INT4))
"""Machines of the authors' own library, which writes every matrix out."""


@cache
def _model() -> Model:
    return network("glm-130b", **SHAPES)


def _room(on: Pool, techniques: Sequence[str], context: int, at_once: int) -> float:
    """1 where a plain program has room for a sequence of `context` tokens of which `at_once` go through together."""
    plain = {"gpu_memory_utilization": 1.0, "max_num_seqs": 1, "enforce_eager": True, "max_num_batched_tokens": at_once}
    return float(gnomon.fit(_model(), on=on, context=context, settings=plain, techniques=techniques).fits)


def _decoded_s(on: Pool, tokens: int, **how: Any) -> float:
    """So many steps at the mean context."""
    step = gnomon.predict(_model(), on=on, phase="decode", context=tokens // 2, **how)
    return tokens * float(step.time_s.value)


def _holds() -> Iterator[Ours]:
    for chip, count, words, techniques in HOLDS:
        held = _room(cluster(chip, count, count), techniques, SHORT, SHORT)
        yield f"{count} x {chip} hold it in {words} (1 for yes)", held
    weights = 8 * gnomon.fit(_model(), on=cluster("A100-SXM-40GB", 8, 8), techniques=INT4).parts["weights"]
    yield "weights in four bits", weights / GIGA


def _row(row: Row) -> Iterator[Ours]:
    """Times, and room where memory ran out: where it did not there is a time, and a machine that holds the network."""
    on = cluster(row.chip, row.cards, row.cards)
    for tokens in LENGTHS[: row.decoded]:
        yield f"{row.name}: decoding {tokens} tokens", _decoded_s(on, tokens, **FAST)
    for tokens in LENGTHS[: row.encoded]:
        found = gnomon.predict(_model(), on=on, phase="prefill", tokens=tokens, **FAST).time_s.value
        yield f"{row.name}: encoding {tokens} tokens", found / MILLI
    for tokens in LENGTHS[row.decoded :]:
        yield f"{row.name}: room for decoding {tokens} tokens (1 for yes)", _room(on, INT4, tokens, LENGTHS[0])
    for tokens in LENGTHS[row.encoded :]:
        yield f"{row.name}: room for encoding {tokens} tokens (1 for yes)", _room(on, INT4, tokens, tokens)


def _longer(chip: str, count: int, words: str, techniques: Sequence[str]) -> Iterator[Ours]:
    on = cluster(chip, count, count)
    for tokens in LENGTHS[1:]:
        yield f"{count} x {chip}, {words}: decoding {tokens} tokens", _decoded_s(on, tokens, techniques=techniques)


def figures() -> Iterator[Ours]:
    yield from _holds()
    for row in ROWS:
        yield from _row(row)
    for chip, count, techniques in LIBRARY:
        yield from _longer(chip, count, "the authors' library", techniques)
    on = cluster("A100-SXM-40GB", 8, 8)
    for tokens in LENGTHS[1:]:
        yield f"8 x A100-SXM-40GB, 16 bits: decoding {tokens} tokens", _decoded_s(on, tokens, engine=FAST["engine"])
