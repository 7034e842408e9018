"""The files of `derived/`: which papers have one, and each of them loaded, when it is asked for, and checked."""

from __future__ import annotations

import ast
import math
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, InputError
from gnomon.papers import derived
from gnomon.papers.base import FIGURE_KINDS, KINDS, ROUNDING, Derivation, Figure, Input

_MISSING = re.compile(r'^    missing=(".*?"|\(\n.*?^    \)),$', re.DOTALL | re.MULTILINE)
_KIND = re.compile(rf'^DERIVATION = Derivation\($.*?^    kind="({"|".join(KINDS)})",$', re.DOTALL | re.MULTILINE)


@cache
def slugs() -> tuple[str, ...]:
    """Papers with a derivation, by the names of their files; none of them is loaded."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(derived.__path__)))


@cache
def kind(slug: str) -> str:
    """The kind of a paper's derivation, read off its text where it can be: a list of papers loads none of them."""
    written = _KIND.search(_written(slug))
    return written[1] if written else derivation(slug).kind


@cache
def missing(slug: str) -> str:
    """Which claims it leaves out, and why, read off its text too."""
    text = _written(slug)
    if "missing=" not in text:
        return ""
    written = _MISSING.search(text)
    try:
        return str(ast.literal_eval(written[1] if written else ""))
    except (SyntaxError, ValueError):  # not written out
        return derivation(slug).missing


def _written(slug: str) -> str:
    return Path(derived.__path__[0], f"{slug.replace('-', '_')}.py").read_text(encoding="utf-8", errors="replace")


@cache
def derivation(slug: str) -> Derivation:
    """The derivation of a paper that has one."""
    where = place(slug)
    with _blamed(where, "cannot be loaded"):
        module = import_module(f"{derived.__name__}.{slug.replace('-', '_')}")
    found = getattr(module, "DERIVATION", None)
    if not isinstance(found, Derivation):
        raise InputError("has no DERIVATION", where=where)
    check(found, slug, where)
    return found


def place(slug: str) -> str:
    """The file of a paper's derivation, as errors name it."""
    return f"papers/derived/{slug.replace('-', '_')}.py"


@contextmanager
def _blamed(where: str, what: str) -> Iterator[None]:
    """Whatever the file of a derivation raises is said with its name."""
    try:
        yield
    except GnomonError as error:
        error.where = f"{where}, {error.where}" if error.where else where
        raise
    except Exception as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{what}: {type(error).__name__}: {said}", where=f"{where}{line}") from error


def check(found: Derivation, slug: str, where: str) -> None:
    """Refuse a derivation that does not say whose it is, how it comes about and where its numbers are from."""
    if found.slug != slug:
        raise InputError(f"slug '{found.slug}' is not that of its file, '{slug}'", where=where)
    if found.kind not in KINDS:
        raise InputError(f"kind '{found.kind}' is none of {', '.join(KINDS)}", where=where)
    for name in ("setting", "source"):
        if not _text(getattr(found, name), f"'{name}'", where).strip():
            raise InputError(f"'{name}' is empty", where=where)
    for name in ("assumptions", "techniques"):
        for one in _several(getattr(found, name), f"'{name}'", where):
            _text(one, f"one of '{name}'", where)
    for given in _several(found.inputs, "'inputs'", where):
        if not isinstance(given, Input):
            raise InputError(f"{given!r} in 'inputs' is no Input", where=where)
        for name in ("name", "value", "source"):
            _text(getattr(given, name), f"'{name}' of an input", where)
        if not given.source.strip():
            raise InputError(f"input '{given.name}' has no source", where=where)


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} is {value!r}, not a text", where=where)
    return value


def _several(value: Any, what: str, where: str) -> Iterable[Any]:
    if not isinstance(value, (tuple, list)):
        raise InputError(f"{what} is {value!r}, not several in brackets", where=where)
    return value


def figures(found: Derivation) -> tuple[Figure, ...]:
    """What the derivation computes, checked."""
    where = place(found.slug)
    with _blamed(where, "its figures cannot be computed"):
        computed = tuple(found.figures())
    check_figures(computed, where)
    return computed


def _check_kind(figure: Figure, spot: str) -> None:
    """Arithmetic that comes out is an identity, and what does not is none."""
    if figure.kind == "identity" and figure.tolerance > ROUNDING:
        hint = f"Printed figures are rounded by {ROUNDING:.0%} at most."
        raise InputError(f"an identity with a tolerance of {figure.tolerance:.0%}", where=spot, hint=hint)
    if figure.kind == "identity" and not figure.within:
        hint = "What is not reproduced is predicted, or a contradiction."
        raise InputError("an identity that does not come out", where=spot, hint=hint)
    if figure.kind == "contradiction" and figure.within:
        raise InputError("a contradiction that comes out", where=spot, hint="It is an identity.")


def check_figures(computed: Sequence[Figure], where: str) -> None:
    if not computed:
        raise InputError("gives no figure", where=where)
    for figure in computed:
        if not isinstance(figure, Figure):
            raise InputError(f"gives {figure!r}, which is no Figure", where=where)
        spot = f"{where}, figure '{figure.what}'"
        for name in ("what", "unit", "note"):
            _text(getattr(figure, name), f"'{name}'", spot)
        for name in ("claimed", "ours", "tolerance"):
            value = getattr(figure, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InputError(f"'{name}' is {value!r}, not a number", where=spot)
        if figure.kind not in FIGURE_KINDS:
            raise InputError(f"kind '{figure.kind}' is none of {', '.join(FIGURE_KINDS)}", where=spot)
        if not (math.isfinite(figure.tolerance) and figure.tolerance >= 0):
            raise InputError(f"tolerance {figure.tolerance} is below zero", where=spot)
        for name in ("claimed", "ours"):
            if not math.isfinite(getattr(figure, name)):
                raise InputError(f"'{name}' is {getattr(figure, name)}, not a number", where=spot)
        _check_kind(figure, spot)
    names = [figure.what for figure in computed]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"figure '{name}' is given twice", where=where)
