"""The literature in executable form: an index of papers, one folder each in `index/`, some of them reproduced.

    gnomon.papers()                             all; narrowed by topic=, status=, shelf=, cluster=, hardware=, since=
    gnomon.papers.search("offload optimizer")   full-text search, arXiv numbers, names of authors
    gnomon.papers.show("zero-offload")          one, with its figures against ours where it is reproduced
    gnomon.papers.run("zero-offload")           the figures alone; without a name, of all that are reproduced
    gnomon.papers.cite("zero-offload")          BibTeX of what is known
    gnomon.papers.apply(plan)                   which techniques of papers help a plan, alone and in pairs
    gnomon.papers.new("a-paper")                a folder for a paper of your own

Those of papers take `folder=`, with papers of your own beside those of Gnomon's own folder; their Python runs with
`allow_code=True` alone.

Everything is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.api.apply_techniques import apply
    from gnomon.papers.answers import cite, listed, new, run, search, show

__all__ = ["apply", "cite", "listed", "new", "run", "search", "show"]


class _Index(ModuleType):
    """Lets `gnomon.papers()` list, as `gnomon.chips()` and `gnomon.models()` do."""

    def __call__(self, **filters: Any) -> Any:
        from gnomon.papers.answers import listed

        return listed(**filters)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gnomon.papers' has no attribute '{name}'")
    if name == "apply":
        return import_module("gnomon.api.apply_techniques").apply
    return getattr(import_module("gnomon.papers.answers"), name)


def __dir__() -> list[str]:
    return list(__all__)


sys.modules[__name__].__class__ = _Index
