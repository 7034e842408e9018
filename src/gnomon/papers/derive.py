"""Papers computed again: their figures beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from gnomon.errors import InputError
from gnomon.papers import derivations
from gnomon.papers.base import Derivation, Figure, Paper
from gnomon.papers.holds import counted
from gnomon.papers.results import Rederived
from gnomon.papers.shelf import paper

Progress = Callable[[int, int, str], None]


def run(slug: str) -> Rederived:
    """One paper computed again."""
    entry = paper(slug)
    if entry.slug not in derivations.slugs():
        why = entry.why or "It was run on a GPU, and nothing is computed for it."
        hint = f"`gnomon papers --status predicted` and `--status identity` list those that are. {why}"
        raise InputError(f"'{entry.slug}' is not re-derived", hint=hint)
    return _result(derivations.derivation(entry.slug), entry)


def run_all(progress: Progress | None = None) -> tuple[Rederived, ...]:
    """All that have a derivation, by slug."""
    slugs = derivations.slugs()
    found = []
    for done, slug in enumerate(slugs):
        if progress is not None:
            progress(done, len(slugs), slug)
        found.append(run(slug))
    return tuple(found)


def _result(found: Derivation, entry: Paper) -> Rederived:
    claims = tuple(map(_claim, derivations.figures(found)))
    return Rederived(
        slug=found.slug,
        title=entry.title,
        kind=found.kind,
        status=entry.status,
        setting=found.setting,
        source=found.source,
        assumptions=found.assumptions,
        inputs=tuple(asdict(given) for given in found.inputs),
        techniques=found.techniques,
        missing=found.missing,
        claims=claims,
        **counted(claims, len(entry.claims)),
    )


def _claim(figure: Figure) -> dict[str, object]:
    return asdict(figure) | {"error": figure.error, "within": figure.within}
