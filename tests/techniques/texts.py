"""Techniques as plans write them: with what a search tries, and with values at both ends of every range."""

from __future__ import annotations

from itertools import product

from gnomon.techniques import AnyTechnique, techniques, words


def tried(one: AnyTechnique) -> list[str]:
    """At its defaults, and with every value that a search would try."""
    with_values = [p for p in one.parameters if p.tried]
    sets = product(*(p.tried for p in with_values))
    found = [words(one.name, dict(zip((p.name for p in with_values), values, strict=True))) for values in sets]
    return list(dict.fromkeys([one.name, *found]))


def ends(one: AnyTechnique) -> list[str]:
    """With each parameter at both ends of its range, or with each of its choices."""
    found = []
    for parameter in one.parameters:
        values = parameter.choices or (parameter.low, parameter.floor or parameter.low, parameter.high)
        found += [f"{one.name}:{parameter.name}={value if parameter.choices else f'{value:g}'}" for value in values]
    return list(dict.fromkeys(found))


def texts(work: str) -> list[str]:
    """All of them, of every technique of a work."""
    each = [text for one in techniques().values() if work in one.work for text in (*tried(one), *ends(one))]
    return list(dict.fromkeys(each))


def name_of(text: str) -> str:
    return text.partition(":")[0]


def changes(*named: str) -> set[str]:
    """What they do not conserve."""
    return {word for text in named for word in techniques()[name_of(text)].changes}
