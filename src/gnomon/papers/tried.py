"""`gnomon try` with a clear error for papers whose idea no technique implements."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from gnomon.api import try_idea as _api
from gnomon.errors import InputError, UnknownNameError
from gnomon.papers.entries import papers

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
            entry = next((one for one in papers() if one.slug == name), None)
            if entry is None or error.where != "SLUG":
                raise
            hint = f"See `gnomon papers show {entry.slug}`; `gnomon techniques` lists what can be tried."
            raise InputError(f"{entry.slug} is {entry.status}, not built as a technique, so it cannot be tried",
                             where="SLUG", hint=hint) from None  # fmt: skip

    return answer


try_idea = _aware_of_papers(_api.try_idea)
answer = _aware_of_papers(_api.answer)
