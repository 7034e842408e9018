"""Commands that only ask: a question from the flags, the answer printed, kept and, with `--html`, written as a page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any, TypeVar

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, outputs, page
from gnomon.spec.questions import Question

AnyQuestion = TypeVar("AnyQuestion", bound=Question)
PLOTTED = {"series": ("series", "distributions"), "by_rate": ("by_rate",)}
"""Flags of what only a page shows in full, and the fields of an answer that they fill."""
READ = ("model", "chips", "trace")
"""Kinds of flags that may name a file."""


def answered(question: type[Question], module: str, talk: str = "") -> Callable[..., None]:
    """The command of a question that `answer` of a module answers; with `talk`, what a terminal shows meanwhile."""

    def command(question: Question, html: flags.Html = None, as_json: flags.Json = False) -> None:
        from gnomon.cli.output import emit
        from gnomon.cli.progress import Progress

        paths = outputs({FLAG: html}, sources(question))
        full = plotted(question) if FLAG in paths else question
        answer = import_module(module).answer
        with Progress(talk) if talk else nullcontext() as tick:
            result = answer(full, progress=tick) if talk else answer(full)
        emit(as_asked(result, question), as_json=as_json, files=page(result, paths))

    command.__doc__ = question.__doc__
    return asks(question)(command)


def plotted(question: AnyQuestion) -> AnyQuestion:
    """The question with all that its page plots."""
    return replace(question, **{name: True for name in PLOTTED if name in question.flags()})  # type: ignore[type-var]


def as_asked(result: Any, question: Question) -> Any:
    """An answer without what only its page plots: beside a page the same is printed as without one."""
    extra = [field for flag, fields in PLOTTED.items() if getattr(question, flag, True) is False for field in fields]
    return replace(result, **{name: type(getattr(result, name))() for name in extra}) if extra else result


def sources(question: Question) -> dict[str, str]:
    """What a question may read from files, by what a refusal to overwrite it calls it."""
    named: dict[str, Any] = {
        flag.where if flag.names else f"the {name}": getattr(question, name)
        for name, flag in question.flags().items()
        if flag.kind in READ
    }
    for name, flag in question.flags().items():  # a distribution of lengths may be a file's
        kind, _, path = str(getattr(question, name)).partition(":")
        if flag.kind == "length" and kind.lower() == "file":
            named[flag.where] = path
    return {name: str(value) for name, value in named.items() if value}
