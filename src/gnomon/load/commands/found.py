"""What a command line, a script or a manifest starts, before an engine has read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.engines.operations import EngineCommand
from gnomon.spec.imported import IgnoredOption


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    """One command with what stands around it. Words that nobody could fill in are `Variable`s."""

    words: tuple[str, ...]
    where: str
    """The file, and the place in it."""
    name: str = ""
    """Of the object or service that it is of, by which others reach it."""
    image: str = ""
    """Of a container."""
    program: bool = True
    """Whether the words name a program; if not, they are arguments of what the image starts by itself."""
    environment: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    """How many of it there are."""
    counted: bool = False
    """Whether the file itself says how many, as a manifest does."""
    tasks: int = 1
    """As how many processes each of it is launched, as by `srun`; 0 where that is not known."""
    unknown: str = ""
    """Why nobody knows how many there are, where that is so."""
    branches: tuple[tuple[int, int], ...] = ()
    """The choices of a script that it is in, and which of their branches: one of them runs."""
    chips: int = 0
    """Chips that a container asks for; 0 where nothing says so."""
    nodes: int = 1
    """Containers of one replica."""
    chip: str = ""
    """The kind of chips, as a node selector names it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the text writes before it starts the command, with what is in them."""
    configured: Mapping[str, EngineCommand] = field(default_factory=dict)
    """By engine, the command that its own configuration file stands for."""
    trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By training engine, the fields of its own configuration file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSource:
    """All that a text starts, and what was filled in or left out on the way."""

    name: str
    processes: tuple[StartedProcess, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[IgnoredOption, ...] = ()
    header: str = ""
    """The line in which a file that Gnomon wrote names its plan."""
    router: str = ""
    """The router that a file of Gnomon's names."""
