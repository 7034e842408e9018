"""`--html`: an answer as one page, and the command line that it was asked with."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.cli.app import Once

if TYPE_CHECKING:
    from gnomon.spec.answers import Result

FLAG = "--html"
ASKED: ContextVar[tuple[str, ...]] = ContextVar("asked", default=())
"""The arguments of the command line."""
FILES = (FLAG, "--out", "--requests-out", "--trace-out", "--memory-out")
"""Flags of output files, which are not part of the question."""


class PageAsked(Once):
    """A command that remembers its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ASKED.set((*ctx.command_path.split(), *args))
        return super().parse_args(ctx, args)


def outputs(named: Mapping[str, str | None], sources: Mapping[str, str | None]) -> dict[str, Path]:
    """The paths of the flags that were given, checked before the work: no two the same, and none that would take the
    place of an input. `sources` are a model, chips, a trace or a plan by what they are called in a refusal."""
    if all(text is None for text in named.values()):
        return {}
    from gnomon.cli.files import keep_apart, output_files

    paths = output_files(dict(named))
    for name, source in sources.items():
        parts = [part.partition(":")[0].strip() for part in (source or "").split(",")]
        for text in dict.fromkeys([source, *parts]):
            for file in (Path(text), Path(text) / "config.json") if text else ():
                keep_apart(paths, file, name)
    return paths


def page(answer: Result, paths: Mapping[str, Path]) -> list[Callable[[], None]]:
    """What writes the page of an answer, where one was asked for."""
    if FLAG not in paths:
        return []
    command = _command()

    def write() -> None:
        from gnomon.paths import write_text

        write_text(paths[FLAG], answer.to_html(command=command))

    return [write]


def _command() -> str:
    """The command line as typed, without output files and `--json`."""
    words, kept = iter(ASKED.get()), []
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in FILES and not equals:
            next(words, None)
        elif flag not in FILES and word != "--json":
            kept.append(word)
    return shlex.join(kept)
