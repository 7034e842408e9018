"""`try` for papers: one that is known and whose idea no technique stands for says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from gnomon.api import try_idea as _api
from gnomon.errors import InputError, UnknownNameError
from gnomon.papers.entries import papers

P = ParamSpec("P")
R = TypeVar("R")


def _told_of_papers(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def answer(*args: P.args, **words: P.kwargs) -> R:
        try:
            return function(*args, **words)
        except UnknownNameError as error:
            asked = args[0] if args else words.get("name", "")
            name = str(getattr(asked, "slug", asked)).partition(":")[0].strip()
            entry = next((one for one in papers() if one.slug == name), None)
            if entry is None or error.where != "SLUG":
                raise
            hint = f"`gnomon papers show {entry.slug}` says what is known of it, `gnomon techniques` what can be tried."
            raise InputError(f"{entry.slug} is {entry.status}, not built as a technique, so there is nothing to try",
                             where="SLUG", hint=hint) from None  # fmt: skip

    return answer


try_idea = _told_of_papers(_api.try_idea)
answer = _told_of_papers(_api.answer)
