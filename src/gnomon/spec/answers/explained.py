"""Earlier answers: the list of them, and one opened up."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.spec.answers.base import Result
from gnomon.spec.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerNode:
    """One number, how it is made and where it comes from. `level`: metric, phase, operator or part."""

    name: str
    level: str = "part"
    shown: str
    formula: str = ""
    provenance: str = ""
    source: str = ""
    parts: tuple[AnswerNode, ...] = ()

    @classmethod
    def metric(
        cls, name: str, shown: str, formula: str = "", estimate: Estimate | None = None,
        parts: tuple[AnswerNode, ...] = (),
    ) -> AnswerNode:  # fmt: skip
        """A number that an answer is about, from an estimate where it has one."""
        origin = {"provenance": str(estimate.provenance), "source": estimate.source} if estimate else {}
        return cls(name=name, level="metric", shown=shown, formula=formula, parts=parts, **origin)

    @property
    def origin(self) -> str:
        return ": ".join(filter(None, [self.provenance, self.source]))


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """An answer as a tree: each node's value comes from its parts by its formula."""

    SCHEMA = "explain"
    title: str
    of: str
    id: str
    nodes: tuple[AnswerNode, ...]
    ops: tuple[str, ...]
    """Operators that `--op` can open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run of the history. `saved_s` is seconds since 1970."""

    id: str
    kind: str
    saved_s: float
    title: str


@dataclass(frozen=True, kw_only=True)
class History(Result):
    """The newest runs first. `opens` is the newest that can be opened."""

    SCHEMA = "history"
    HIDDEN = frozenset({"opens"})
    runs: tuple[KeptRun, ...]
    opens: str = ""
