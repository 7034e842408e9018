"""Stemming and synonyms of the full-text search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

_WORD = re.compile(r"[a-z0-9]+")
_SPELLING = re.compile(r"is(e|ed|es|er|ers|ing|ation|ations)$")
_ENDINGS = ("ations", "ation", "ating", "ated", "ates", "ate", "isms", "ism", "ings", "ing", "ed", "es", "s", "e")
_PHRASES = (
    (re.compile(r"mixtures?[- ]of[- ]experts?"), "moe"),
    (re.compile(r"graph (neural|convolutional) networks?|\bgcns?\b"), "gnn"),
    (re.compile(r"reinforcement learning"), "rl"),
    (re.compile(r"key[- ]value cach"), "kv cach"),
    (re.compile(r"fine[- ]tun"), "finetun"),
    (re.compile(r"pre[- ]train"), "pretrain"),
)
"""Phrases and their abbreviations."""
SHORTEST = 3
"""Shortest stem that removing an ending may leave."""
_STOP = """
    a an and are as at be by can do does for from how i in into is it its of on one or so than that the their them
    then this to up use used uses using via we what when where which while with without
"""
STOP = frozenset(_STOP.split())
_GROUPS = """
    kv cache
    host cpu offload
    optimizer optimiser adam
    moe expert mixture
    ssd nvme disk storage
    quantize int4 fp4 fp8 int8 bits precision
    disaggregate split phase
    prefill prompt
    decode generation
    serve inference request
    energy power watts carbon
    fault failure elastic recovery
    checkpoint snapshot
    rl reinforcement rollout
    communication collective allreduce nccl
    network nic rdma
    gemm matmul matrix
    sequence context
    pipeline bubble stage
    finetune lora adapter
    cost price dollar cheap cheapest
    heterogeneous mixed unlike
    gnn graph node
    nerf radiance gaussian splatting rendering
    benchmark measure microbenchmark
    predict model simulator
    scheduler scheduling
    kernel cuda triton
    sparsity sparse prune
    diffusion denoise
    edge mobile consumer phone
    congestion contention collision traffic spraying
    cap limit lock oversubscription
    amd rocm mi250x mi300x
"""


def words(text: str) -> Iterator[str]:
    """The stems of a text, without stop words."""
    text = text.lower()
    for phrase, name in _PHRASES:
        text = phrase.sub(name, text)
    return (stem(word) for word in _WORD.findall(text) if word not in STOP)


@cache
def stem(word: str) -> str:
    """The word without its ending.

    >>> [stem(word) for word in ("quantised", "quantization", "batching", "splitting", "experts", "memories")]
    ['quantiz', 'quantiz', 'batch', 'split', 'expert', 'memory']
    """
    word = _SPELLING.sub(r"iz\1", word)
    if word.endswith("ies") and len(word) > SHORTEST + 2:
        return word[:-3] + "y"
    if word.endswith("ss"):
        return word
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= SHORTEST + (ending in ("ate", "ates", "ated", "ating")):
            return rest[:-1] if ending in ("ing", "ed") and rest[-1] == rest[-2] and rest[-1] not in "ls" else rest
    return word


@cache
def synonyms() -> dict[str, frozenset[str]]:
    """Synonyms of each stem."""
    found: dict[str, frozenset[str]] = {}
    for line in _GROUPS.strip().splitlines():
        group = frozenset(map(stem, line.split()))
        for word in group:
            found[word] = found.get(word, frozenset()) | (group - {word})
    return found
