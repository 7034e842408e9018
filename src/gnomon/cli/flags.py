"""Readers of what stands on a command line, and options that several commands share. Numbers are read by
`gnomon.units`, so `8k` works everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from gnomon.cli import names


def whole(flag: str, *, least: int = 1, most: int | None = None) -> Callable[[Any], int]:
    """A reader of whole numbers that names its flag in errors."""

    def read(text: Any) -> int:
        from gnomon.units import parse_whole

        return parse_whole(text, flag, least=least, most=most)

    return read


def rate(flag: str) -> Callable[[Any], float]:
    def read(text: Any) -> float:
        from gnomon.units import parse_rate

        return parse_rate(text, flag)

    return read


def word(flag: str) -> Callable[[Any], str]:
    """A reader of names and paths: anything but nothing."""

    def read(text: Any) -> str:
        from gnomon.errors import InputError

        if not str(text).strip():
            raise InputError("is empty", where=flag, hint="Give a value, or leave the flag out.")
        return str(text)

    return read


def count(flag: str) -> Callable[[Any], float]:
    """A reader of counts above zero, whole or not: `300e9`, `300B`."""

    def read(text: Any) -> float:
        from gnomon.errors import InputError
        from gnomon.units import parse_count

        found = parse_count(text, flag)
        if not found:
            raise InputError(f"'{text}' is not above zero", where=flag)
        return found

    return read


def serving_engine(text: Any) -> str:
    from gnomon.engines import engine
    from gnomon.errors import named_by

    label = word("--engine")(text)
    with named_by("--engine"):
        engine(label)
    return label


def training_engine(text: Any) -> str:
    from gnomon.engines import training_engine as found
    from gnomon.errors import named_by

    label = word("--engine")(text)
    with named_by("--engine"):
        found(label)
    return label


def any_engine(text: Any) -> str:
    from gnomon.engines import SERVING, TRAINING, engine, training_engine
    from gnomon.errors import named_by, unknown_name

    label = word("--engine")(text)
    name = label.partition("@")[0]
    if name not in (*SERVING, *TRAINING):
        raise unknown_name("engine", name, (*SERVING, *TRAINING), where="--engine")
    with named_by("--engine"):
        engine(label) if name in SERVING else training_engine(label)
    return label


def number_format(text: Any) -> str:
    from gnomon.errors import unknown_name
    from gnomon.spec.formats import NARROW, PLAIN_BITS

    name, known = word("--dtype")(text), (*PLAIN_BITS, *NARROW)
    if name not in known:
        raise unknown_name("number format", name, known, where="--dtype")
    return name


def one_of(flag: str, kind: str, known: Callable[[], Iterable[str]]) -> Callable[[Any], str]:
    """A reader of one of a few names."""

    def read(text: Any) -> str:
        from gnomon.errors import unknown_name

        name, listed = word(flag)(text), list(known())
        if name not in listed:
            raise unknown_name(kind, name, listed, where=flag)
        return name

    return read


def objective(text: Any) -> str:
    from gnomon.errors import named_by
    from gnomon.search import objective as found

    name = word("--objective")(text)
    with named_by("--objective"):
        found(name)
    return name


def target(text: Any) -> str:
    from gnomon.errors import named_by
    from gnomon.export import target as found

    with named_by("--to"):
        return str(found(str(text)).NAME)


def formats(text: Any, flag: str = "--dtype") -> tuple[str, ...]:
    """Number formats, parted by commas."""
    from gnomon.errors import InputError, unknown_name
    from gnomon.graph.dtypes import WIDTH

    text = word(flag)(text)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"'{text}' names no number format", where=flag)
    for name in names:
        if name not in WIDTH:
            raise unknown_name("number format", name, WIDTH, where=flag)
    return tuple(names)


def degree(flag: str, what: str, note: str) -> Any:
    return typer.Option(flag, parser=whole(flag), metavar="N", help=f"{what} parallel degree.{note}")


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A known name, a hub id, or a folder with a config.json.", autocompletion=names.models
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="CHIP[:N]",
        autocompletion=names.chips,
        help="The chip, and how many of it; or a chip's or a cluster's YAML file.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        parser=number_format,
        autocompletion=names.words(names.formats),
        metavar="D",
        help="Number format of the weights, such as fp8.",
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="TECHNIQUE",
        help="A technique, such as int4-weights or offload-optimizer:stride=2; `gnomon techniques` lists them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Write the answer as one page, with tables and plots."),
]
PlanRef = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's file, a run's id, or `last`.")]

Ep = Annotated[int, degree("--ep", "Expert", " Ranks that whole experts are spread over.")]


def settings(pairs: list[str] | None) -> dict[str, Any]:
    from gnomon.load import parse_settings

    return parse_settings(pairs or [], "--set")
