"""Ideas of papers that any plan can use, one file each; a plan names them with what differs from their defaults."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from gnomon.errors import InputError, unknown_name
from gnomon.techniques.applied import Applied
from gnomon.techniques.base import CONSERVED, Case, Parameter, Technique, Trial, Values

__all__ = [
    "CONSERVED",
    "Applied",
    "Case",
    "Parameter",
    "Technique",
    "Trial",
    "Values",
    "applied",
    "for_paper",
    "searched_words",
    "technique",
    "techniques",
    "variants",
    "words",
]
WHERE = "strategy.techniques"


@cache
def techniques() -> dict[str, Technique]:
    """All of them by name."""
    from gnomon.techniques.checkpoints import Checkpoints
    from gnomon.techniques.offload_optimizer import OffloadOptimizer
    from gnomon.techniques.pipelines import GPipe, Interleaved
    from gnomon.techniques.ring import Ring
    from gnomon.techniques.vocabulary import VocabularyParallel

    known = (Checkpoints(), GPipe(), Interleaved(), OffloadOptimizer(), Ring(), VocabularyParallel())
    return {one.name: one for one in known}


def technique(name: str) -> Technique:
    known = techniques()
    if name not in known:
        raise unknown_name("technique", name, known, where=WHERE)
    return known[name]


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


def variants(written: str) -> list[str]:
    """A technique as it is written, and with other values worth trying of each number that is."""
    one, values = _read(written)
    found = [written]
    for parameter in one.parameters:
        if f"{parameter.name}=" in written and not parameter.choices:
            others = (value for value in parameter.tried if value not in (parameter.default, values[parameter.name]))
            found += [words(one.name, {**values, parameter.name: value}) for value in others]
    return found


def applied(written: Iterable[str]) -> Applied:
    """Techniques as a plan writes them, in the order of their names: it makes no difference which is named first."""
    pairs = sorted((_read(text) for text in written), key=lambda pair: pair[0].name)
    names = [one.name for one, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is asked for twice", where=WHERE)
    for one, _ in pairs:
        clash = next((other for other, _ in pairs if other.name in one.excludes), None)
        if clash is not None:
            raise InputError(f"{one.name} and {clash.name} cannot be joined", where=WHERE, hint="Leave one out.")
    return Applied(tuple(pairs))


def _read(text: str) -> tuple[Technique, Values]:
    name, _, rest = text.strip().partition(":")
    one = technique(name.strip())
    known = {parameter.name: parameter for parameter in one.parameters}
    values = {parameter.name: parameter.default for parameter in one.parameters}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in known:
            ranges = "; ".join(f"{p.name}: {p.what}, {p.range}" for p in one.parameters)
            message = f"'{part}' is no parameter of {one.name}"
            raise InputError(message, where=WHERE, hint=f"It has {ranges}." if ranges else "It has none.")
        values[key] = known[key].read(value, f"{WHERE}, {one.name}")
    return one, values
