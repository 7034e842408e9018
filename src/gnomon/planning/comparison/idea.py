"""The technique that a paper's slug, or its own name, refers to."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError, named_as, named_by, unknown_name
from gnomon.spec.questions.tried import TryQuestion
from gnomon.techniques import WHERE, Technique, Trial, canonical, for_paper, techniques, trial_with

SLUG = "SLUG"


def idea_asked(question: TryQuestion) -> tuple[Technique, Trial]:
    """A question's technique and its trial; options of serving given for training, or vice versa, are refused."""
    with named_by(SLUG), named_as(WHERE, SLUG):
        one, trial = idea_of(question.slug)
    for name in question.SERVING if one.work == "training" else question.TRAINING:
        if getattr(question, name) is not None:
            where = question.flags()[name].where
            raise InputError(
                f"{one.name} is a {one.work} technique and has no such option", where=where, hint="Leave it out."
            )
    return one, trial


def idea_of(name: str) -> tuple[Technique, Trial]:
    """A technique and how it is tried, by a paper's slug or by its own name: against what its paper compares with."""
    name, colon, more = name.partition(":")
    found, known = for_paper(name), techniques()
    if found is None and canonical(name) in known:
        one = known[canonical(name)]
        found = one, replace(one.trials[0], words=one.name, note="")
    if found is None:
        papers = {trial.paper for one in known.values() for trial in one.trials}
        raise unknown_name("technique or paper", name, sorted({*papers, *known}), where="SLUG")
    one, trial = found
    return (one, replace(trial_with(trial, more), note="")) if colon else (one, trial)
