"""The literature in executable form: an index of papers, one folder each in `index/`, some of them reproduced.

    gnomon.papers()                             all of them; narrowed by topic=, status=, shelf=, hardware=, since=
    gnomon.papers.search("offload optimizer")   full-text search
    gnomon.papers.show("zero-offload")          one, with its figures against ours where it is reproduced
    gnomon.papers.run("zero-offload")           the figures alone; without a name, of all that are reproduced

Everything is imported when it is first used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.papers.answers import listed, run, search, show

__all__ = ["listed", "run", "search", "show"]


class _Index(ModuleType):
    """Lets `gnomon.papers()` list, as `gnomon.chips()` and `gnomon.models()` do."""

    def __call__(self, **filters: Any) -> Any:
        from gnomon.papers.answers import listed

        return listed(**filters)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gnomon.papers' has no attribute '{name}'")
    from gnomon.papers import answers

    return getattr(answers, name)


def __dir__() -> list[str]:
    return list(__all__)


sys.modules[__name__].__class__ = _Index
