"""Full-text search of papers: BM25 over the fields of their entries, whose stems the index has."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from gnomon.errors import InputError
from gnomon.papers.base import Paper
from gnomon.papers.book import OwnPaper, PaperBook
from gnomon.papers.entries import ARXIV_NUMBER, rows
from gnomon.papers.stems import folded, synonyms, words

WEIGHTS = {
    "slug": 5.0,
    "title": 4.0,
    "topics": 3.0,
    "techniques": 3.0,
    "idea": 1.5,
    "technique": 1.2,
    "mechanisms": 1.2,
    "claims": 1.0,
    "hardware": 1.0,
}
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
COVERED = 0.3
"""Share of a query, by the rarity of its words, that a match covers at least; synonyms and guesses cover less."""
UNRELATED, OUT_OF_REACH = 0.5, 0.8
"""Score factors of papers in the category `unrelated`, which are not about GPU systems, and of those whose claims no
model of GPU systems reaches (feasibility D)."""
MOST_WORDS = 64
"""Most words of a query: each unknown one is compared with all words of the index."""
LIKENESS = 0.8
"""Similarity from which an unknown word counts as a misspelling of a known one."""
_FITS = re.compile(r"\b\d+b\b.*\b\d+gb\b|\b\d+gb\b.*\b\d+b\b")
"""A model of so many parameters and a card of so much memory: the question is how it fits, whatever the numbers."""
_FITTING = ("memory", "offload", "quantiz")
"""Stems that such a question means."""
_NAME = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_CITED = frozenset({"et", "al", "and", "by", "of", "the", "paper", "papers", "from", "author", "authors"})
"""Words beside names of authors that are no names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """For each stem, its weight in each paper over all fields, and its inverse document frequency."""

    weights: Mapping[str, Mapping[str, float]]
    rarity: Mapping[str, float]
    most: float
    """The rarity of a word that no paper has."""


def ranked(query: str, book: PaperBook | None = None) -> list[tuple[Paper, float]]:
    """Papers that match the query or synonyms of it, with their scores, the best first; weak matches are dropped.

    An arXiv number finds its paper, and names of authors theirs.
    """
    book = book or PaperBook()
    numbers = {found[1] for found in ARXIV_NUMBER.finditer(query)}
    if numbers:
        return [(paper, 1.0) for paper in book.papers if paper.arxiv in numbers]
    query_words = list(dict.fromkeys(words(query)))
    if not query_words:
        hint = "Give keywords: `gnomon papers search offload optimizer`."
        raise InputError(f"'{query}' has no searchable word", where="WORDS", hint=hint)
    if len(query_words) > MOST_WORDS:
        hint = f"Use at most {MOST_WORDS}."
        raise InputError(f"{len(query_words):,} words are too many for a search", where="WORDS", hint=hint)
    known = index() if not book.own else _index(_stored() | {slug: _own_stems(one) for slug, one in book.own.items()})
    if _FITS.search(" ".join(query_words)):
        query_words = [*_FITTING, *(word for word in query_words if word not in _FITTING and not word[0].isdigit())]
    return _by_author(query, book, known) or _by_words(query_words, book, known)


def _by_words(query_words: list[str], book: PaperBook, known: Index) -> list[tuple[Paper, float]]:
    scores: dict[str, float] = {}
    hits: Counter[str] = Counter()
    covered: dict[str, float] = {}
    rarities = [known.rarity.get(word, known.most) for word in query_words]
    for variants, rarity in zip(_variants(query_words, known), rarities, strict=True):
        for slug, (score, share) in _best(variants, known).items():
            scores[slug] = scores.get(slug, 0.0) + score
            covered[slug] = covered.get(slug, 0.0) + share * rarity
            hits[slug] += 1
    by_slug, count = {paper.slug: paper for paper in book.papers}, len(query_words)
    enough = COVERED * sum(rarities)
    final = {
        slug: score * math.sqrt(hits[slug] / count) * _factor(by_slug[slug])
        for slug, score in scores.items()
        if covered.get(slug, 0.0) >= enough
    }
    least = CUT * max(final.values(), default=0.0)
    order = sorted((slug for slug in final if final[slug] >= least), key=lambda slug: (-final[slug], slug))
    return [(by_slug[slug], final[slug]) for slug in order]


def _factor(paper: Paper) -> float:
    if paper.shelf == "unrelated":
        return UNRELATED
    return OUT_OF_REACH if paper.feasibility == "D" else 1.0


def _by_author(query: str, book: PaperBook, known: Index) -> list[tuple[Paper, float]]:
    """Papers whose authors have all the names of a query that consists of names: a full name, or family names that no
    paper has as words. The names of one author count more than those of several."""
    asked = [name for name in _names(query) if name not in _CITED]
    if not asked or any(letter.isdigit() for letter in query):
        return []
    found = []
    for paper in book.papers:
        people = [set(_names(author)) for author in paper.authors]
        if not all(any(name in person for person in people) for name in asked):
            continue
        together = max(len(person & set(asked)) for person in people)
        if together > 1 or not any(stem in known.rarity for stem in words(query)):
            found.append((paper, float(together)))
    return sorted(found, key=lambda pair: (-pair[1], pair[0].slug))


def _names(text: str) -> list[str]:
    return [folded(name).replace("’", "'") for name in _NAME.findall(text)]


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


def _best(variants: Mapping[str, float], known: Index) -> dict[str, tuple[float, float]]:
    """By paper, the score of the best of the stems, and how well it matches the word: synonyms count once."""
    found: dict[str, tuple[float, float]] = {}
    for word, share in variants.items():
        rarity = known.rarity.get(word, 0.0)
        for slug, weight in known.weights.get(word, {}).items():
            score = share * rarity * weight / (SATURATION + weight)
            before = found.get(slug, (0.0, 0.0))
            found[slug] = (max(before[0], score), max(before[1], share))
    return found


@cache
def index() -> Index:
    """That of the papers that ship."""
    return _index(_stored())


def _stored() -> dict[str, Mapping[str, str]]:
    return {slug: row["stems"] for slug, row in rows().items()}


def _own_stems(one: OwnPaper) -> dict[str, str]:
    return stems_of(one.paper, one.reproduction.techniques if one.reproduction else ())


def _index(stems: Mapping[str, Mapping[str, str]]) -> Index:
    counts = {slug: {field: Counter(text.split()) for field, text in fields.items()} for slug, fields in stems.items()}
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
    return Index(weights=weights, rarity=rarity, most=math.log(2 * total + 2))


def stems_of(paper: Paper, techniques: Iterable[str] = ()) -> dict[str, str]:
    """The stems of each field of a paper with these techniques, as the index keeps them."""
    from gnomon.papers.clusters import mechanism

    claims = " ".join(f"{claim.what} {claim.value} {claim.against} {claim.setting}" for claim in paper.claims)
    texts = {
        "slug": paper.slug,
        "title": paper.title,
        "topics": " ".join(paper.topics),
        "techniques": " ".join(techniques),
        "idea": paper.idea,
        "technique": paper.technique,
        "mechanisms": " ".join(mechanism(name).what for name in paper.mechanisms),
        "claims": claims,
        "hardware": " ".join((*map(_described, paper.hardware), *paper.other_hardware)),
    }
    return {field: " ".join(words(text)) for field, text in texts.items()}


def _described(name: str) -> str:
    """A chip with its maker, architecture and memory: `RTX-4090 NVIDIA Ada 24GB`."""
    from gnomon.load.chips import chip

    found = chip(name)
    return f"{name} {found.vendor} {found.architecture} {found.memory_bytes / 1024**3:.0f}GB"


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return max(1.0, sum(found) / max(1, len(found)))
