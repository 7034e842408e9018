"""Ideas of papers that any plan can use, one file each; a plan names them with what differs from their defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, TypeVar

from gnomon.errors import InputError, unknown_name
from gnomon.techniques.applied import Applied
from gnomon.techniques.base import CONSERVED, Parameter, Technique, TrainingCase, TrainingTechnique, Trial, Values
from gnomon.techniques.serving import SERVING_CONSERVED, DeploymentDraft, Served, ServingTechnique

__all__ = [
    "CONSERVED",
    "SERVING_CONSERVED",
    "WHERE",
    "Applied",
    "DeploymentDraft",
    "Parameter",
    "Served",
    "ServingTechnique",
    "Technique",
    "TrainingCase",
    "TrainingTechnique",
    "Trial",
    "Values",
    "applied",
    "asked",
    "beyond_words",
    "canonical",
    "for_paper",
    "searched_words",
    "served",
    "technique",
    "techniques",
    "trial_with",
    "variants",
    "words",
]
T = TypeVar("T", bound=Technique)
WHERE = "strategy.techniques"


@cache
def techniques() -> dict[str, Technique]:
    """All of them by name."""
    from gnomon.techniques.checkpoints import Checkpoints
    from gnomon.techniques.narrow_weights import Int4Weights, UnpackedWeights
    from gnomon.techniques.offload_optimizer import OffloadOptimizer
    from gnomon.techniques.pipelines import GPipeSchedule, InterleavedSchedule
    from gnomon.techniques.ring import Ring
    from gnomon.techniques.swapped_sessions import SwappedSessions
    from gnomon.techniques.vocabulary import VocabularyParallel

    training = (Checkpoints(), GPipeSchedule(), InterleavedSchedule(), OffloadOptimizer(), Ring(), VocabularyParallel())
    serving = (Int4Weights(), SwappedSessions(), UnpackedWeights())
    return {one.name: one for one in (*training, *serving)}


@cache
def _by_any_name() -> dict[str, Technique]:
    """The same, and by the names they had before."""
    known = techniques()
    return known | {alias: one for one in known.values() for alias in one.aliases}


def technique(name: str) -> Technique:
    """One of them, by its name or one it had before."""
    known = _by_any_name()
    if name not in known:
        raise unknown_name("technique", name, known, where=WHERE)
    return known[name]


def canonical(text: str) -> str:
    """The name of a technique as a plan writes it: without its values, and never one it had before. What is none is
    handed back."""
    name = text.partition(":")[0].strip()
    one = _by_any_name().get(name)
    return one.name if one else name


def for_paper(slug: str) -> tuple[Technique, Trial] | None:
    """The technique that a paper's idea is, and how it is tried."""
    found = ((one, trial) for one in techniques().values() for trial in one.trials if trial.paper == slug)
    return next(found, None)


def searched_words() -> list[str]:
    """What a search for a training plan may add to one: every technique that can make it quicker or smaller and is no
    choice of degrees, which a search makes anyway, with each value worth trying."""
    found = []
    for one in techniques().values():
        if one.work == "training" and one.searched:
            tried = [p for p in one.parameters if p.tried]
            for values in product(*(p.tried for p in tried)):
                found.append(words(one.name, dict(zip((p.name for p in tried), values, strict=True))))
    return found


def words(name: str, values: Values) -> str:
    """A technique as a plan writes it."""
    known = {one.name: one.default for one in technique(name).parameters}
    told = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()
            if value != known[key]]  # fmt: skip
    return f"{name}:{','.join(told)}" if told else name


def asked(given: Any) -> tuple[str, ...]:
    """Techniques as a caller gives them, once they are known to be several texts."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, bytearray, dict))
    found = tuple(given) if several else ()
    if not several or not all(isinstance(text, str) for text in found):
        hint = "Give a list of texts: ['int4-weights']."
        raise InputError(f"{given!r} is no list of techniques", where="techniques", hint=hint)
    return found


def trial_with(trial: Trial, more: str) -> Trial:
    """A trial with values of the asker's own, on both sides but where the comparison is of that very parameter."""
    one, own = _told(trial.words)
    _, given = _told(f"{one.name}:{more}")
    if not trial.against:
        return replace(trial, words=words(one.name, own | given), told=tuple(given))
    other, fixed = _told(trial.against)
    found = words(one.name, own | given), words(other.name, given | fixed)
    if found[0] == found[1]:
        hint = "Try another value, or price it by `gnomon simulate train --with`."
        raise InputError(f"{found[0]} is what it would be compared with", where=WHERE, hint=hint)
    return replace(trial, words=found[0], against=found[1], told=tuple(given))


def variants(trial: Trial) -> list[str]:
    """A technique as a trial writes it, and with other values worth trying of each number that is its own choice."""
    one, own = _told(trial.words)
    found = [trial.words]
    for parameter in one.parameters:
        if parameter.name in own and parameter.name not in trial.told and not parameter.choices:
            others = (value for value in parameter.tried if value not in (parameter.default, own[parameter.name]))
            found += [words(one.name, {**own, parameter.name: value}) for value in others]
    return found


def beyond_words(written: Iterable[str]) -> tuple[str, ...]:
    """Those that the other words of a plan do not say."""
    known = techniques()
    return tuple(text for text in written if canonical(text) not in known or not _expressed_by_config(text))


def _expressed_by_config(text: str) -> bool:
    one, values = _read(text)
    return one.expressed_by_config(values)


def applied(written: Iterable[str]) -> Applied:
    """Techniques of training as a plan writes them, in the order of their names: it makes no difference which is named
    first."""
    return Applied(_joined(written, TrainingTechnique))


def served(written: Iterable[str]) -> Served:
    """The same of serving."""
    return Served(_joined(written, ServingTechnique))


def _joined(written: Iterable[str], of: type[T]) -> tuple[tuple[T, Values], ...]:
    pairs = sorted((_of(text, of) for text in asked(written)), key=lambda pair: pair[0].name)
    names = [one.name for one, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is asked for twice", where=WHERE)
    for one, _ in pairs:
        clash = next((other for other, _ in pairs if other.name in one.excludes), None)
        if clash is not None:
            raise InputError(f"{one.name} and {clash.name} cannot be joined", where=WHERE, hint="Leave one out.")
    return tuple(pairs)


def _of(text: str, of: type[T]) -> tuple[T, Values]:
    one, values = _read(text)
    if not isinstance(one, of):
        known = ", ".join(name for name, other in techniques().items() if isinstance(other, of))
        message = f"{one.name} is a technique of {one.work}, not of {of.work}"
        raise InputError(message, where=WHERE, hint=f"Known there: {known}.")
    return one, values


def _read(text: str) -> tuple[Technique, Values]:
    one, told = _told(text)
    return one, {parameter.name: parameter.default for parameter in one.parameters} | told


@cache
def _told(text: str) -> tuple[Technique, dict[str, float | str]]:
    """A technique as it is written, with the values that are. Nobody changes what it gives."""
    name, colon, rest = text.strip().partition(":")
    one = technique(name.strip())
    known = {name: parameter for parameter in one.parameters for name in (parameter.name, *parameter.aliases)}
    told: dict[str, float | str] = {}
    for part in (part.strip() for part in rest.split(",") if colon):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            ranges = "; ".join(f"{p.name}: {p.what}, {p.range}" for p in one.parameters)
            message = f"'{part}' is no parameter of {one.name}"
            raise InputError(message, where=WHERE, hint=f"It has {ranges}." if ranges else "It has none.")
        parameter = known[key]
        if parameter.name in told:
            raise InputError(f"{key} is given twice", where=f"{WHERE}, {one.name}")
        if not value.isascii() or "_" in value:  # which Python takes for digits
            raise InputError(
                f"'{value}' is not a number", where=f"{WHERE}, {one.name}", hint=f"It is {parameter.range}."
            )
        told[parameter.name] = parameter.read(value, f"{WHERE}, {one.name}")
    return one, told
