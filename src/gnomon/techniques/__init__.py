"""Techniques from papers that any plan can use; a plan names them with values that differ from their defaults.

A file here that has `TECHNIQUES` declares some, and so do an entry point of the group `gnomon.techniques` of another
package and the files of the folder that `GNOMON_TECHNIQUES` names. No list names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import product
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, overload

from gnomon.engines.base import ServingCase
from gnomon.errors import InputError, unknown_name
from gnomon.techniques.applied import WHERE, Applied
from gnomon.techniques.base import (
    CONSERVED,
    SERVING,
    TRAINING,
    Parameter,
    Technique,
    Trial,
    Values,
    changes_only_loads,
)
from gnomon.techniques.outside import of_folder, of_packages

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training.case import TrainingCase

__all__ = [
    "CONSERVED",
    "SERVING",
    "TRAINING",
    "WHERE",
    "AnyTechnique",
    "Applied",
    "Parameter",
    "Technique",
    "Trial",
    "Values",
    "applied",
    "asked",
    "beyond_config",
    "canonical",
    "compared_by",
    "for_paper",
    "last_resorts",
    "search_space",
    "technique",
    "techniques",
    "trial_with",
    "variants",
    "words",
]
AnyTechnique = Technique[Any]


@cache
def techniques() -> dict[str, AnyTechnique]:
    """All techniques by name: those of a kind together, those of files here before those from outside."""
    own = [one for name in _files() for one in _declared(name)]
    found = {one.name: one for one in sorted(own, key=lambda one: (TRAINING not in one.work, one.name))}
    found |= {one.name: one for one in of_packages(found.keys(), WHERE)}
    return found | {one.name: one for one in of_folder(found.keys())}


@cache
def _files() -> tuple[str, ...]:
    return tuple(one.name for one in iter_modules(__path__))


def _declared(file: str) -> tuple[AnyTechnique, ...]:
    return getattr(import_module(f"{__name__}.{file}"), "TECHNIQUES", ())


@cache
def _by_any_name() -> dict[str, AnyTechnique]:
    """All techniques by name and by alias."""
    known = techniques()
    return known | {alias: one for one in known.values() for alias in one.aliases}


@cache
def _named(name: str) -> AnyTechnique | None:
    """A technique by its name or one of its aliases. Its file is named after it, and is all that is imported then."""
    file = name.replace("-", "_")
    own = next((one for one in _declared(file) if one.name == name), None) if file in _files() else None
    return own or _by_any_name().get(name)


def technique(name: str) -> AnyTechnique:
    """A technique by its name or one of its aliases."""
    found = _named(name)
    if found is None:
        raise unknown_name("technique", name, _by_any_name(), where=WHERE)
    return found


def canonical(text: str) -> str:
    """The name of a technique without its parameters, aliases resolved; an unknown name is returned unchanged."""
    name = text.partition(":")[0].strip()
    one = _named(name)
    return one.name if one else name


def for_paper(slug: str) -> tuple[AnyTechnique, Trial] | None:
    """The technique that implements a paper's idea, and the comparison that tries it."""
    found = ((one, trial) for one in techniques().values() for trial in one.trials if trial.paper == slug)
    return next(found, None)


def compared_by(one: AnyTechnique) -> str:
    """The command that shows what a technique brings: `try`, or `simulate serve` where a step is the same with it."""
    return "simulate serve" if changes_only_loads(one) else "try"


def search_space() -> list[str]:
    """Techniques that a training search may add to a plan, with each value worth trying: those that can make a step
    faster or smaller and are not degrees, which a search varies anyway."""
    found = []
    for one in techniques().values():
        if TRAINING in one.work and one.searched:
            tried = {p.name: p.tried for p in one.parameters if p.tried}
            found += [words(one.name, dict(zip(tried, values, strict=True))) for values in product(*tried.values())]
    return found


def last_resorts() -> dict[str, str]:
    """Techniques to name where a network trains in no other way, and what each of them trains in its place."""
    return {one.name: one.last_resort for one in techniques().values() if TRAINING in one.work and one.last_resort}


def words(name: str, values: Values) -> str:
    """A technique with its values as a plan writes it, defaults left out."""
    known = {one.name: one.default for one in technique(name).parameters}
    changed = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()
            if value != known[key]]  # fmt: skip
    return f"{name}:{','.join(changed)}" if changed else name


def asked(given: Any) -> tuple[str, ...]:
    """Techniques as a caller gives them, checked to be a list of strings."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, bytearray, dict))
    found = tuple(given) if several else ()
    if not several or not all(isinstance(text, str) for text in found):
        hint = "Give a list of strings: ['int4-weights']."
        raise InputError(f"{given!r} is not a list of techniques", where="techniques", hint=hint)
    return found


def trial_with(trial: Trial, more: str) -> Trial:
    """A trial with values given by the user, on both sides except for a parameter that the comparison itself varies."""
    one, own = _parsed(trial.words)
    _, given = _parsed(f"{one.name}:{more}")
    if not trial.against:
        return replace(trial, words=words(one.name, own | given), given=tuple(given))
    other, fixed = _parsed(trial.against)
    found = words(one.name, own | given), words(other.name, given | fixed)
    if found[0] == found[1]:
        hint = "Try another value, or price it by `gnomon simulate train --with`."
        raise InputError(f"{found[0]} is already the baseline of the comparison", where=WHERE, hint=hint)
    return replace(trial, words=found[0], against=found[1], given=tuple(given))


def variants(trial: Trial) -> list[str]:
    """A trial's technique, and the same with other values worth trying of each number that the trial sets."""
    one, own = _parsed(trial.words)
    found = [trial.words]
    for parameter in one.parameters:
        if parameter.name in own and parameter.name not in trial.given and not parameter.choices:
            others = (value for value in parameter.tried if value not in (parameter.default, own[parameter.name]))
            found += [words(one.name, {**own, parameter.name: value}) for value in others]
    return found


def beyond_config(written: Iterable[str]) -> tuple[str, ...]:
    """Techniques that the rest of a plan's configuration does not express."""
    return tuple(text for text in written if _named(canonical(text)) is None or not _expressed_by_config(text))


def _expressed_by_config(text: str) -> bool:
    one, values = _read(text)
    return one.expressed_by_config(values)


@overload
def applied(work: Literal["training"], written: Iterable[str]) -> Applied[TrainingCase]: ...
@overload
def applied(work: Literal["serving"], written: Iterable[str]) -> Applied[ServingCase]: ...
def applied(work: str, written: Iterable[str]) -> Applied[Any]:
    """Techniques of a plan's work as the plan writes them, sorted by name: their order in the plan makes no
    difference."""
    pairs = sorted((_of(work, text) for text in asked(written)), key=lambda pair: pair[0].name)
    names = [one.name for one, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is given twice", where=WHERE)
    for one, _ in pairs:
        clash = next((other for other, _ in pairs if other.name in one.excludes), None)
        if clash is not None:
            raise InputError(f"{one.name} and {clash.name} cannot be combined", where=WHERE, hint="Leave one out.")
    return Applied(tuple(pairs))


def _of(work: str, text: str) -> tuple[AnyTechnique, Values]:
    one, values = _read(text)
    if work not in one.work:
        known = ", ".join(name for name, other in techniques().items() if work in other.work)
        message = f"{one.name} is a {' and '.join(one.work)} technique, not a {work} technique"
        raise InputError(message, where=WHERE, hint=f"{work.capitalize()} techniques: {known}.")
    return one, values


def _read(text: str) -> tuple[AnyTechnique, Values]:
    one, given = _parsed(text)
    return one, {parameter.name: parameter.default for parameter in one.parameters} | given


@cache
def _parsed(text: str) -> tuple[AnyTechnique, dict[str, float | str]]:
    """A technique as it is written, with the values that are given. Cached: callers must not change the result."""
    name, colon, rest = text.strip().partition(":")
    one = technique(name.strip())
    known = {name: parameter for parameter in one.parameters for name in (parameter.name, *parameter.aliases)}
    given: dict[str, float | str] = {}
    for part in (part.strip() for part in rest.split(",") if colon):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            ranges = "; ".join(f"{p.name}: {p.what}, {p.range}" for p in one.parameters)
            message = f"'{part}' is not a parameter of {one.name}"
            raise InputError(message, where=WHERE, hint=f"Parameters: {ranges}." if ranges else "It has no parameters.")
        parameter = known[key]
        if parameter.name in given:
            raise InputError(f"{key} is given twice", where=f"{WHERE}, {one.name}")
        if not parameter.choices and (not value.isascii() or "_" in value):  # float() accepts these
            hint = f"Allowed: {parameter.range}."
            raise InputError(f"'{value}' is not a number", where=f"{WHERE}, {one.name}", hint=hint)
        given[parameter.name] = parameter.read(value, f"{WHERE}, {one.name}")
    return one, given
