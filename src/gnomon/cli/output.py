"""What a command prints: the answer on stdout, messages on stderr; the answer is kept in the history."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from gnomon.errors import GnomonError, InputError, shortened

if TYPE_CHECKING:
    from typer import Context

    from gnomon.spec.answers import Result


def emit(answer: Result, *, as_json: bool, keep: bool = True, files: Sequence[Callable[[], None]] = ()) -> None:
    """Print an answer, as text or as JSON, keep it in the history, and write the files beside it.

    A file that cannot be written costs exit code 2 and a line, never the answer; a stdout that cannot be written to
    costs neither history nor files.
    """
    unshown: BrokenPipeError | InputError | None = None
    try:
        _show(answer, as_json)
    except (BrokenPipeError, InputError) as problem:
        unshown = problem
    if keep:
        from gnomon.store import save

        save(answer.schema.removeprefix("gnomon.").partition("/")[0], answer.to_dict())
    problems = [problem for problem in map(_problem, files) if problem]
    if unshown is not None:
        raise unshown
    if problems:
        import typer

        raise typer.Exit(fail("; ".join(problems), hint="The answer itself is complete."))


def show(answer: Result, context: Context, as_json: bool) -> None:
    """Print a listing, which the history does not keep; `--json` may also stand before a subcommand, as in
    `gnomon chips --json show H100`."""
    before = bool(context.parent and context.parent.params.get("as_json"))
    emit(answer, as_json=as_json or before, keep=False)


def _show(answer: Result, as_json: bool) -> None:
    if as_json:
        print_json(answer.to_dict())
    else:
        from gnomon.report import render

        put(render(answer, colour=wants_colour()) + "\n")


def _problem(write: Callable[[], None]) -> str:
    """Why a file could not be written; empty where it was."""
    try:
        write()
    except GnomonError as problem:
        return str(problem)
    except MemoryError:
        return "out of memory while a file was written"
    except OSError as problem:
        return f"{problem.filename or 'a file'}: cannot be written: {problem.strerror or problem}"
    return ""


def print_json(payload: Mapping[str, Any]) -> None:
    from gnomon.spec.plan_dict import as_json

    put(json.dumps(as_json(payload), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def put(text: str) -> None:
    """The answer on stdout, all of it. A closed pipe is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence("stdout")
        raise InputError(f"cannot be written: {error.strerror or error}", where="standard output") from None


def say(text: str) -> None:
    """A message on stderr; dropped where stderr is closed."""
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence("stderr")


def fail(
    message: str,
    *,
    where: str = "",
    hint: str = "",
    as_json: bool = False,
    code: int = 2,
    kind: str = "error",
    more: Mapping[str, Any] | None = None,
) -> int:
    """One line on stderr, the same in JSON on stdout where that was asked for, with `more` beside it; gives back the
    code."""
    message, where, hint = (shortened(one_line(text)) for text in (message, where, hint))
    head = f"{where}: {message}" if where else message
    stop = "" if head.endswith((".", "?", "!")) else "."
    say(f"{kind}: {head}{stop} {hint}" if hint else f"{kind}: {head}")
    if as_json:
        with suppress(OSError, ValueError, InputError):
            print_json({"error": {"message": message, "where": where, "hint": hint}} | dict(more or {}))
    return code


def one_line(text: str) -> str:
    """The text without line breaks and without anything that could steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def wants_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def open_missing_streams() -> bool:
    """Put something in the place of streams that were closed before we began. Whether stdout was there."""
    there = sys.stdout is not None
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _devnull())
    return there


def settle() -> None:
    """Flush what is left, so that the interpreter's own last flush has nothing to fail on."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError):
            silence(name)


def silence(name: str) -> None:
    """Let a stream that can take no more, and what still waits in it, go to /dev/null."""
    stream, sink = getattr(sys, name), _devnull()
    setattr(sys, name, sink)
    if stream is getattr(sys, f"__{name}__"):
        with suppress(OSError, ValueError):
            os.dup2(sink.fileno(), stream.fileno())


def _devnull() -> TextIO:
    return open(os.devnull, "w")  # noqa: PTH123
