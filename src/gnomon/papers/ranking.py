"""Papers by words: BM25 over the fields of their entries, with nothing to download."""

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
from gnomon.papers.stems import alike, words

WEIGHTS = {"slug": 5.0, "title": 4.0, "topics": 3.0, "idea": 1.5, "technique": 1.2, "claims": 1.0, "hardware": 1.0}
SATURATION = 2.0
"""How soon a word that is said again counts for less (BM25's k1)."""
LENGTH = 0.6
"""How much a long field counts for less (BM25's b)."""
SYNONYM = 0.35
"""What a word of the same meaning counts beside the one that was asked for."""
FEWEST_LETTERS = 3
"""Of a word that is not in the index and may be the beginning of one that is."""
CUT = 0.25
"""Of the best match's score: what has less shares a word with the query and is about something else."""
UNRELATED = 0.5
"""What counts of a paper on the shelf of those that are not about GPU systems."""
MOST_WORDS = 64
"""Of one search: each that no paper has is compared with all that papers have."""
LIKENESS = 0.8
"""Of a word that is not in the index and may be one that is, mistyped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """For each stem, the papers that have it and how much of it, fields weighed, and its rarity."""

    weights: Mapping[str, Mapping[str, float]]
    rarity: Mapping[str, float]


def ranked(query: str) -> list[tuple[Paper, float]]:
    """Papers that have the words, or words of the same meaning, the best match first, with their scores; none that is
    far behind it."""
    asked = list(dict.fromkeys(words(query)))
    if not asked:
        hint = "Say what it is about: `gnomon papers search offload optimizer`."
        raise InputError(f"'{query}' has no word to look for", where="WORDS", hint=hint)
    if len(asked) > MOST_WORDS:
        hint = f"Use at most {MOST_WORDS}."
        raise InputError(f"{len(asked):,} words are too many to look for", where="WORDS", hint=hint)
    known = index()
    scores: dict[str, float] = {}
    hits: Counter[str] = Counter()
    for variants in _variants(asked, known):
        for slug, score in _best(variants, known).items():
            scores[slug] = scores.get(slug, 0.0) + score
            hits[slug] += 1
    by_slug = {paper.slug: paper for paper in papers()}
    final = {
        slug: score * math.sqrt(hits[slug] / len(asked)) * (UNRELATED if by_slug[slug].shelf == "unrelated" else 1.0)
        for slug, score in scores.items()
    }
    least = CUT * max(final.values(), default=0.0)
    order = sorted((slug for slug in final if final[slug] >= least), key=lambda slug: (-final[slug], slug))
    return [(by_slug[slug], final[slug]) for slug in order]


def _variants(asked: list[str], known: Index) -> list[dict[str, float]]:
    """For each word asked for, the stems it may stand for and what they count."""
    found = []
    for position, word in enumerate(asked):
        joined = {word + other for other in asked[position + 1 : position + 2]}  # flash moe: flashmoe
        joined |= {other + word for other in asked[max(0, position - 1) : position]}
        near = dict.fromkeys(alike().get(word, ()), SYNONYM)
        own = {word: 1.0} if word in known.rarity else _guesses(word, known)
        found.append(near | dict.fromkeys(joined & known.rarity.keys(), 1.0) | own)
    return found


def _guesses(word: str, known: Index) -> dict[str, float]:
    """Words of the index that begin so, or else look so."""
    begun = [term for term in known.rarity if term.startswith(word)] if len(word) >= FEWEST_LETTERS else []
    return dict.fromkeys(begun or difflib.get_close_matches(word, known.rarity, n=2, cutoff=LIKENESS), SYNONYM)


def _best(variants: Mapping[str, float], known: Index) -> dict[str, float]:
    """By paper, the score of the best of the stems: saying one thing in three words is saying it once."""
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
    said = " ".join(f"{claim.what} {claim.against} {claim.setting}" for claim in paper.claims)
    return {
        "slug": paper.slug,
        "title": paper.title,
        "topics": " ".join(paper.topics),
        "idea": paper.idea,
        "technique": paper.technique,
        "claims": said,
        "hardware": " ".join(paper.hardware),
    }


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return max(1.0, sum(found) / max(1, len(found)))
