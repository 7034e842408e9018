"""The technique that a paper's slug, or its own name, refers to."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError, named_as, named_by, unknown_name
from gnomon.spec.questions.tried import TryQuestion
from gnomon.techniques import (
    SERVING,
    TRAINING,
    WHERE,
    AnyTechnique,
    Trial,
    canonical,
    for_paper,
    techniques,
    trial_with,
)

SLUG = "SLUG"


def idea_asked(question: TryQuestion) -> tuple[AnyTechnique, Trial, str]:
    """A question's technique, its trial, and the work that it is tried in: of two kinds the one that options are given
    of, or else the first. Options of the other kind are refused."""
    with named_by(SLUG), named_as(WHERE, SLUG):
        one, trial = idea_of(question.slug)
    options = {TRAINING: question.TRAINING, SERVING: question.SERVING}
    given = {work: [name for name in names if getattr(question, name) is not None] for work, names in options.items()}
    work = next((work for work in one.work if given[work]), one.work[0])
    for other, names in given.items():
        if names and other != work:
            where = question.flags()[names[0]].where
            raise InputError(
                f"{one.name} is a {work} technique and has no such option", where=where, hint="Leave it out."
            )
    return one, trial, work


def idea_of(name: str) -> tuple[AnyTechnique, Trial]:
    """A technique and how it is tried, by a paper's slug or by its own name: against what its paper compares with."""
    name, colon, more = name.partition(":")
    found, known = for_paper(name), techniques()
    if found is None and canonical(name) in known:
        one = known[canonical(name)]
        found = one, replace(one.trials[0] if one.trials else Trial(paper="", words=""), words=one.name, note="")
    if found is None:
        papers = {trial.paper for one in known.values() for trial in one.trials if trial.paper}
        raise unknown_name("technique or paper", name, sorted({*papers, *known}), where="SLUG")
    one, trial = found
    return (one, replace(trial_with(trial, more), note="")) if colon else (one, trial)
