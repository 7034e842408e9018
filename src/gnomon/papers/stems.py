"""Stemming, phrases and synonyms of the full-text search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

_WORD = re.compile(r"[a-z0-9]+")
_SPELLING = re.compile(r"is(e|ed|es|er|ers|ing|ation|ations)$")
_ENDINGS = ("ations", "ation", "ating", "ated", "ates", "ate", "isms", "ism", "ings", "ing", "ed", "es", "s", "e")
_PHRASES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"mixtures?[- ]of[- ]experts?", "moe"),
        (r"graph (?:neural|convolutional) networks?|\bgcns?\b|\bgnns\b", "gnn"),
        (r"reinforcement learning", "rl"),
        (r"key[- ]value cach", "kv cach"),
        (r"fine[- ]tun", "finetun"),
        (r"pre[- ]train", "pretrain"),
        (r"activation checkpoint\w*|gradient checkpoint\w*", "recomputation"),
        (r"all[- ]to[- ]all", "alltoall"),
        (r"all[- ]reduce", "allreduce"),
        (r"\b(?:int|u)?([1-8])[- ]?bits?\b|\bint([48])\b", r"\1\2bit"),
        (r"\b(?:mx|nv)?fp4\b", "fp4"),
        (r"\b(one|two|three|four|eight|sixteen)[- ]bits?\b", r"\1bit"),
        (r"\b(\d+) ?gi?b\b", r"\1gb"),
        (r"\b(\d+) (?:billion|b)(?: parameters?)?\b", r"\1b"),
        (r"vision[- ]language[- ]action|\bvlas?\b", "vla robot policy"),
        (r"real[- ]time", "realtime"),
        (r"run[- ]time", "runtime"),
        (r"multi[- ]turn", "session"),
        (r"out[- ]of[- ]memory|\boom\b|(?:does|do|will) ?n[o']t fit", "memory limit fit"),
    )
)
"""Phrases and their abbreviations."""
_WIDTHS = re.compile(r"\b([1-8]) ?(to|or|and|-) ?([1-8])[- ]bits?\b")
"""Several widths at once: `1 to 8 bits`, `3 or 4 bits`."""
_BITS = {"one": "1", "two": "2", "three": "3", "four": "4", "eight": "8", "sixteen": "16"}
SHORTEST = 3
"""Shortest stem that removing an ending may leave."""
_STOP = """
    a an and any are as at be best by can do does doing for from get has have how i in into is it its me my need of on
    one or should so some than that the their them then there this to up use used uses using via want we what when
    where which while who will with without would you
"""
STOP = frozenset(_STOP.split())
_GROUPS = """
    kv cache
    host cpu ram offload
    optimizer optimiser adam
    moe expert mixture
    ssd nvme disk storage
    quantize 4bit 3bit fp4 fp8 8bit bits precision narrow
    disaggregate split separate apart phase pool
    machine node server pool
    different unlike mixed heterogeneous vary
    prefill prompt
    decode generation
    serve inference request
    energy power watts carbon
    fault failure elastic recovery
    checkpoint snapshot
    rl reinforcement rollout
    communication collective allreduce nccl
    network nic rdma link
    gemm matmul matrix
    sequence context
    pipeline bubble stage
    finetune lora adapter
    cost price dollar cheap cheapest
    hide overlap behind concurrent
    gnn graph
    nerf radiance gaussian splatting rendering
    benchmark measure microbenchmark
    predict model simulator
    scheduler scheduling
    kernel cuda triton
    sparsity sparse prune
    diffusion denoise
    edge mobile consumer phone laptop card
    robot robotics policy action
    realtime interactive latency
    congestion contention collision traffic spraying
    cap limit lock oversubscription
    amd rocm mi250x mi300x
    fast speed quick
    stop wait stall idle block
    picture image
    sort select search
"""


def words(text: str) -> Iterator[str]:
    """The stems of a text, without stop words."""
    text = _WIDTHS.sub(_each_width, folded(text))
    for phrase, name in _PHRASES:
        text = phrase.sub(name, text)
    return (stem(word) for word in _WORD.findall(text) if word not in STOP)


def _each_width(found: re.Match[str]) -> str:
    low, joint, high = int(found[1]), found[2], int(found[3])
    return " ".join(f"{bits}bit" for bits in (range(low, high + 1) if joint in ("to", "-") else (low, high)))


def folded(text: str) -> str:
    """Lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


@cache
def stem(word: str) -> str:
    """The word without its ending.

    >>> [stem(word) for word in ("quantised", "quantization", "batching", "splitting", "experts", "memories")]
    ['quantiz', 'quantiz', 'batch', 'split', 'expert', 'memory']
    """
    if word.endswith("bit") and word[:-3] in _BITS:
        return f"{_BITS[word[:-3]]}bit"
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
