"""The exception tree. Every error a user can cause is a GnomonError; the command line prints it on one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

LONGEST_NAME = 80
LONGEST_TEXT = 600
"""Letters of a message or a hint; a longer one loses its middle, which is somebody's value quoted in full."""
BAD_INPUT, FAULT, INFEASIBLE = 2, 3, 4
"""Exit codes of the command line: what cannot be understood, a fault of Gnomon, and what is well-formed but has no
answer."""


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """The text without its middle where it is longer than `most` letters.

    >>> shortened("abcdefghij", most=7)
    'abc…hij'
    """
    keep = (most - 1) // 2
    return text if len(text) <= most else f"{text[:keep]}…{text[-keep:]}"


def shown(value: Any) -> str:
    """A value as a message quotes it: on one line, and not long."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


class GnomonError(Exception):
    """What was wrong, where, and what to do next."""

    exit_code: ClassVar[int] = BAD_INPUT

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = shortened(message)
        super().__init__(self.message)
        self.where = where
        self.hint = shortened(hint)

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head.rstrip('.')}. {self.hint}" if self.hint else head

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process needs to have the same error: its class may ask for other arguments than it keeps."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[GnomonError], args: tuple[Any, ...], state: Mapping[str, Any]) -> GnomonError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(GnomonError):
    """A file, a flag or an argument that cannot be understood."""


class UnknownNameError(InputError):
    """A name that a registry does not hold."""


class NotApplicableError(InputError):
    """A technique that cannot be used here; `reason` says why, without its name."""

    def __init__(self, technique: str, reason: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(f"{technique} does not apply: {reason}", where=where, hint=hint)
        self.reason = reason


class InfeasibleError(GnomonError):
    """Well-formed, and nothing can do it. `nearest` has the plan that comes closest, as plain JSON values."""

    exit_code: ClassVar[int] = INFEASIBLE

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", nearest: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.nearest = nearest


class DoesNotFitError(InfeasibleError):
    """The model, or the request, needs more memory than there is."""


class NoPlanError(InfeasibleError):
    """No plan of the space meets the goals."""


class UnwrittenError(InputError):
    """A file beside an answer could not be written; the `answer` is there."""

    def __init__(self, problem: GnomonError, answer: Any) -> None:
        super().__init__(problem.message, where=problem.where, hint=problem.hint)
        self.answer = answer


class MissingExtraError(GnomonError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the package '{package}', which is not installed",
            hint=f"pip install 'gnomon[{extra}]'",
        )


class CalibrationError(GnomonError):
    """A measurement, or a profile, that cannot be trusted."""


@contextmanager
def named_by(where: str) -> Iterator[None]:
    """A name that proves unknown in here was given by this flag or field."""
    try:
        yield
    except UnknownNameError as error:
        error.where = error.where or where
        raise


@contextmanager
def named_as(field: str, flag: str) -> Iterator[None]:
    """What a plan's field would be blamed for in here was given by this flag."""
    try:
        yield
    except GnomonError as error:
        error.where = error.where.replace(field, flag)
        raise


@contextmanager
def placed(places: Mapping[str, str]) -> Iterator[None]:
    """What a plan's fields would be blamed for in here was given by flags: `places` has the flag of each field."""
    try:
        yield
    except GnomonError as error:
        field, comma, rest = error.where.partition(", ")
        error.where = places.get(error.where) or f"{places.get(field, field)}{comma}{rest}"
        raise


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that look like one, the closest first."""
    lowered = {entry.lower(): entry for entry in reversed(list(known))}
    return [lowered[hit] for hit in difflib.get_close_matches(name.lower(), lowered, n=most, cutoff=0.4)]


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, near: Sequence[str] = (), hint: str = "", where: str = ""
) -> UnknownNameError:
    """An error that names the nearest known names, or those given as such.

    >>> str(unknown_name("chip", "H1000", ["H100-SXM-80GB", "A40"]))
    "unknown chip 'H1000'. Near: H100-SXM-80GB."
    """
    names = list(known)
    name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    near = near or near_names(name, names)
    known_too = "" if hint.startswith("Known: ") else f"Known: {', '.join(sorted(names)[:12])}."
    tail = f"Near: {', '.join(near)}." if near else known_too
    return UnknownNameError(f"unknown {kind} '{name}'", where=where, hint=" ".join(filter(None, [tail, hint])))
