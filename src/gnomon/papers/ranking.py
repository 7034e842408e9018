"""Full-text search of papers: BM25 over the fields of their entries."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from gnomon.errors import InputError
from gnomon.papers.base import Paper
from gnomon.papers.entries import papers
from gnomon.papers.stems import synonyms, words

WEIGHTS = {"slug": 5.0, "title": 4.0, "topics": 3.0, "idea": 1.5, "technique": 1.2, "claims": 1.0, "hardware": 1.0}
SATURATION = 2.0
"""Term-frequency saturation (BM25's k1)."""
LENGTH = 0.6
"""Length normalisation (BM25's b)."""
SYNONYM = 0.35
"""Weight of a synonym of a query word."""
FEWEST_LETTERS = 3
"""Shortest query word that is matched as a prefix."""
CUT = 0.25
"""Share of the best score below which matches are dropped."""
UNRELATED = 0.5
"""Score factor of papers in the category `unrelated`, which are not about GPU systems."""
MOST_WORDS = 64
"""Most words of a query: each unknown one is compared with all words of the index."""
LIKENESS = 0.8
"""Similarity from which an unknown word counts as a misspelling of a known one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """For each stem, its weight in each paper over all fields, and its inverse document frequency."""

    weights: Mapping[str, Mapping[str, float]]
    rarity: Mapping[str, float]


def ranked(query: str) -> list[tuple[Paper, float]]:
    """Papers that match the query or synonyms of it, with their scores, the best first; weak matches are dropped."""
    query_words = list(dict.fromkeys(words(query)))
    if not query_words:
        hint = "Give keywords: `gnomon papers search offload optimizer`."
        raise InputError(f"'{query}' has no searchable word", where="WORDS", hint=hint)
    if len(query_words) > MOST_WORDS:
        hint = f"Use at most {MOST_WORDS}."
        raise InputError(f"{len(query_words):,} words are too many for a search", where="WORDS", hint=hint)
    known = index()
    scores: dict[str, float] = {}
    hits: Counter[str] = Counter()
    for variants in _variants(query_words, known):
        for slug, score in _best(variants, known).items():
            scores[slug] = scores.get(slug, 0.0) + score
            hits[slug] += 1
    by_slug, count = {paper.slug: paper for paper in papers()}, len(query_words)
    final = {
        slug: score * math.sqrt(hits[slug] / count) * (UNRELATED if by_slug[slug].shelf == "unrelated" else 1.0)
        for slug, score in scores.items()
    }
    least = CUT * max(final.values(), default=0.0)
    order = sorted((slug for slug in final if final[slug] >= least), key=lambda slug: (-final[slug], slug))
    return [(by_slug[slug], final[slug]) for slug in order]


def _variants(query_words: list[str], known: Index) -> list[dict[str, float]]:
    """For each query word, the stems it may match and their weights."""
    found = []
    for position, word in enumerate(query_words):
        joined = {word + other for other in query_words[position + 1 : position + 2]}  # flash moe: flashmoe
        joined |= {other + word for other in query_words[max(0, position - 1) : position]}
        near = dict.fromkeys(synonyms().get(word, ()), SYNONYM)
        own = {word: 1.0} if word in known.rarity else _guesses(word, known)
        found.append(near | dict.fromkeys(joined & known.rarity.keys(), 1.0) | own)
    return found


def _guesses(word: str, known: Index) -> dict[str, float]:
    """Words of the index with this prefix, or else similar ones."""
    begun = [term for term in known.rarity if term.startswith(word)] if len(word) >= FEWEST_LETTERS else []
    return dict.fromkeys(begun or difflib.get_close_matches(word, known.rarity, n=2, cutoff=LIKENESS), SYNONYM)


def _best(variants: Mapping[str, float], known: Index) -> dict[str, float]:
    """By paper, the score of the best of the stems: synonyms count once."""
    found: dict[str, float] = {}
    for word, share in variants.items():
        rarity = known.rarity.get(word, 0.0)
        for slug, weight in known.weights.get(word, {}).items():
            score = share * rarity * weight / (SATURATION + weight)
            found[slug] = max(found.get(slug, 0.0), score)
    return found


@cache
def index() -> Index:
    counts = {paper.slug: {field: Counter(words(text)) for field, text in _texts(paper).items()} for paper in papers()}
    means = {field: _mean(sum(fields[field].values()) for fields in counts.values()) for field in WEIGHTS}
    weights: dict[str, dict[str, float]] = {}
    for slug, fields in counts.items():
        for field, found in fields.items():
            length = 1 - LENGTH + LENGTH * sum(found.values()) / means[field]
            for word, count in found.items():
                row = weights.setdefault(word, {})
                row[slug] = row.get(slug, 0.0) + WEIGHTS[field] * count / length
    total = len(counts)
    rarity = {word: math.log(1 + (total - len(row) + 0.5) / (len(row) + 0.5)) for word, row in weights.items()}
    return Index(weights=weights, rarity=rarity)


def _texts(paper: Paper) -> dict[str, str]:
    claims = " ".join(f"{claim.what} {claim.against} {claim.setting}" for claim in paper.claims)
    return {
        "slug": paper.slug,
        "title": paper.title,
        "topics": " ".join(paper.topics),
        "idea": paper.idea,
        "technique": paper.technique,
        "claims": claims,
        "hardware": " ".join(paper.hardware),
    }


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return max(1.0, sum(found) / max(1, len(found)))
