"""A deployment that runs already, read back as a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnomon.spec.answers import NotModelled, Result
from gnomon.spec.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredOption:
    """An option of a command that a plan has no place for, and why."""

    option: str
    """As it is written, with its value."""
    why: str
    affects: bool = False
    """Whether it changes what the deployment does, in a way that is not modelled."""


UNMODELLED = "not modelled: "
"""How reasons begin of options whose effect no figure has."""


@dataclass(frozen=True, kw_only=True)
class ImportedPlan(Result):
    """The plan of a command, a script or a manifest."""

    SCHEMA = "import"
    title: str
    plan: Plan
    ignored: tuple[IgnoredOption, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the file itself sets and the command uses, with the values taken."""
    command: str = ""
    """What starts one replica, as Gnomon writes it."""

    @property
    def unmodelled(self) -> tuple[NotModelled, ...]:
        """Options that change what the deployment does and no figure of it here, as other answers list them."""
        affecting = (one for one in self.ignored if one.affects)
        return tuple(NotModelled(option=one.option, why=one.why.removeprefix(UNMODELLED)) for one in affecting)
