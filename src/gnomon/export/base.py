"""The contract of an export target: a plan in, files out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gnomon.spec import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Files by name, the command that starts one replica, and what the target cannot say."""

    files: Mapping[str, str]
    command: str
    engine: str
    version: str
    not_expressed: tuple[str, ...]


class Target(Protocol):
    """A module of this package."""

    NAME: str
    SUMMARY: str

    def render(self, plan: Plan) -> Rendered:
        """The plan's files. Raises InputError where the plan's engine is not the target's."""
