"""What a paper needs of Gnomon, and the technique that comes closest to one that has none of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.papers.base import Mechanism, Paper
from gnomon.papers.book import PaperBook
from gnomon.papers.clusters import clusters_of, mechanism
from gnomon.papers.ranking import index
from gnomon.papers.stems import words
from gnomon.techniques import AnyTechnique, compared_by, techniques

WORK = {"training": {"training"}, "serving": {"serving", "inference"}}
"""Topics of papers that a technique of a kind of work can be close to."""

NEAR = ("technique", "what", "papers", "shared", "compared_by")
"""What is told of the technique that comes closest."""


def needs(paper: Paper) -> tuple[Mechanism, ...]:
    return tuple(map(mechanism, paper.mechanisms))


def closest(paper: Paper, book: PaperBook) -> Mapping[str, Any] | None:
    """The technique whose own papers share most of this one's mechanisms; of its clusters at least, and for the same
    kind of work. Of several, the one whose words are most like the paper's."""
    ranked = sorted(
        (found for one in techniques().values() if (found := _near(one, paper, book))),
        key=lambda found: (-len(found["shared"]), -found["likeness"], found["technique"]),
    )
    return {name: ranked[0][name] for name in NEAR} if ranked else None


def _near(one: AnyTechnique, paper: Paper, book: PaperBook) -> dict[str, Any] | None:
    topics, works = set(paper.topics), {topic for known in WORK.values() for topic in known}
    if topics & works and not any(topics & WORK[kind] for kind in one.work):
        return None
    known = {entry.slug: entry for entry in book.papers}
    own = [known[trial.paper] for trial in one.trials if trial.paper in known]
    if not {name for entry in own for name in clusters_of(entry)} & set(clusters_of(paper)):
        return None
    has = {name for entry in own for name in entry.mechanisms}
    shared = tuple(name for name in paper.mechanisms if name in has)
    likeness = _likeness(f"{one.title} {one.idea}", f"{paper.idea} {paper.technique}")
    slugs = tuple(entry.slug for entry in own)
    found = {"technique": one.name, "what": one.title, "papers": slugs, "shared": shared, "likeness": likeness}
    return found | {"compared_by": compared_by(one)}


def _likeness(one: str, other: str) -> float:
    """The rarity of the words that both have."""
    return sum(index().rarity.get(word, 0.0) for word in set(words(one)) & set(words(other)))


def with_states(found: Iterable[Mechanism]) -> str:
    """`streamed-weights (partly) and zeroth-order-step (missing)`."""
    told = [f"{one.name} ({one.state})" for one in found]
    return " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))
