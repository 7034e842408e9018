"""`gnomon try` with a clear error for papers whose idea no technique implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gnomon.api import try_idea as _api
from gnomon.errors import InputError, UnknownNameError
from gnomon.papers.base import Paper

P = ParamSpec("P")
R = TypeVar("R")


def _aware_of_papers(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def answer(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except UnknownNameError as error:
            given = args[0] if args else options.get("name", "")
            name = str(getattr(given, "slug", given)).partition(":")[0].strip()
            refusal = _refusal(name) if error.where == "SLUG" else None
            if refusal is None:
                raise
            raise refusal from None

    return answer


def _refusal(name: str) -> InputError | None:
    """What Gnomon lacks for a paper's technique, and which comes closest; None where no paper is called so."""
    from gnomon.papers.book import paper_book
    from gnomon.papers.nearest import closest

    book = paper_book()
    entry = next((one for one in book.papers if one.slug == name), None)
    if entry is None:
        return None
    near = closest(entry, book)
    told = f"{near['technique']} comes closest: `{_command(near)}`. " if near else ""
    hint = f"{told}See `gnomon papers show {entry.slug}`; `gnomon techniques` lists what can be tried."
    message = f"{entry.slug} is {entry.status}, not built as a technique, so it cannot be tried{_lacking(entry)}"
    return InputError(message, where="SLUG", hint=hint)


def _command(near: Mapping[str, Any]) -> str:
    """The command that shows what a technique brings, in short."""
    name, command = near["technique"], near["compared_by"]
    return f"gnomon try {name} …" if command == "try" else f"gnomon {command} … --with {name}"


def _lacking(entry: Paper) -> str:
    from gnomon.papers.nearest import needs, with_states

    found = [one for one in needs(entry) if one.state != "built"]
    return f": it needs {with_states(found)}" if found else ""


try_idea = _aware_of_papers(_api.try_idea)
answer = _aware_of_papers(_api.answer)
