"""The exception tree. Every error a user can cause is a GnomonError; the command line prints it on one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

LONGEST_NAME = 80


class GnomonError(Exception):
    """What was wrong, where it stood, and what to do next."""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head.rstrip('.')}. {self.hint}" if self.hint else head


class InputError(GnomonError):
    """A file, a flag or an argument that cannot be understood."""


class UnknownNameError(InputError):
    """A name that a registry does not hold."""


class DoesNotFitError(GnomonError):
    """The model, or the request, needs more memory than there is."""


class NoPlanError(GnomonError):
    """No plan of the space meets the goals."""


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


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that look like one, the likest first."""
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
