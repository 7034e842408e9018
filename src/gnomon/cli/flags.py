"""Parsers of command-line values, and options that several commands share. Numbers are read by
`gnomon.units`, so `8k` works everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gnomon.errors import InputError, named_by, unknown_name
from gnomon.units import parse_count, parse_duration, parse_money, parse_rate, parse_watts, parse_whole


def whole(flag: str, *, least: int = 1, most: int | None = None) -> Callable[[Any], int]:
    """A parser of whole numbers that names its flag in errors."""
    return lambda text: parse_whole(text, flag, least=least, most=most)


def length(flag: str, *, least: int = 1, most: int | None = None) -> Callable[[Any], Any]:
    """A parser of whole numbers, or of the description of a distribution of them, which is read later."""
    plain = whole(flag, least=least, most=most)
    return lambda text: text.strip() if isinstance(text, str) and text.strip()[:1].isalpha() else plain(text)


def rate(flag: str) -> Callable[[Any], float]:
    return lambda text: parse_rate(text, flag)


def watts(flag: str) -> Callable[[Any], float]:
    return lambda text: parse_watts(text, flag)


def money(flag: str) -> Callable[[Any], float]:
    return lambda text: parse_money(text, flag)


def duration(flag: str) -> Callable[[Any], float]:
    return lambda text: parse_duration(text, flag)


def word(flag: str) -> Callable[[Any], str]:
    """A parser of names and paths, which must not be empty."""

    def read(text: Any) -> str:
        if not str(text).strip():
            raise InputError("is empty", where=flag, hint="Give a value, or leave the flag out.")
        return str(text)

    return read


def factor(flag: str) -> Callable[[Any], float]:
    """A parser of factors, of zero or more."""
    return lambda text: parse_count(text, flag)


def count(flag: str) -> Callable[[Any], float]:
    """A parser of counts above zero, whole or not: `300e9`, `300B`."""

    def read(text: Any) -> float:
        found = parse_count(text, flag)
        if not found:
            raise InputError(f"'{text}' is not above zero", where=flag)
        return found

    return read


def _known(where: str, find: Callable[[str], Any], text: str) -> str:
    """A name that `find` knows; what it raises is about this flag."""
    with named_by(where):
        find(text)
    return text


def serving_engine(text: Any) -> str:
    from gnomon.engines import engine

    return _known("--engine", engine, word("--engine")(text))


def training_engine(text: Any) -> str:
    from gnomon.engines import training_engine as find

    return _known("--engine", find, word("--engine")(text))


def any_engine(text: Any) -> str:
    from gnomon.engines import engine_info, engines

    name = word("--engine")(text).partition("@")[0]
    found = engine_info(name)
    if found is None:
        raise unknown_name("engine", name, [one.name for one in engines()], where="--engine")
    return serving_engine(text) if found.serves else training_engine(text)


def number_format(text: Any) -> str:
    from gnomon.graph.gemm_recipes import GEMM_RECIPES
    from gnomon.spec.formats import MULTIPLIED, NARROW, PLAIN_BITS

    name, known = word("--dtype")(text), tuple(dict.fromkeys((*PLAIN_BITS, *MULTIPLIED, *NARROW, *GEMM_RECIPES)))
    if name not in known:
        raise unknown_name("number format", name, known, where="--dtype")
    return name


def schedule(text: Any) -> str:
    from gnomon.sim.training import schedule as find

    return _known("--schedule", find, word("--schedule")(text))


def objective(text: Any) -> str:
    from gnomon.search import objective as find

    return _known("--objective", find, word("--objective")(text))


def target(text: Any) -> str:
    from gnomon.export import target as find

    return _known("--to", find, str(text))


def formats(text: Any, flag: str = "--dtype") -> tuple[str, ...]:
    """Number formats, separated by commas."""
    from gnomon.graph.dtypes import WIDTH

    text = word(flag)(text)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"'{text}' names no number format", where=flag)
    for name in names:
        if name not in WIDTH:
            raise unknown_name("number format", name, WIDTH, where=flag)
    return tuple(names)


Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Write the answer as one page, with tables and plots."),
]


def settings(pairs: list[str] | None) -> dict[str, Any]:
    from gnomon.load import parse_settings

    return parse_settings(pairs or [], "--set")
