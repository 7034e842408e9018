"""Runs one command line and turns every outcome into an exit code and at most one line on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from gnomon.cli.output import emit, fail, open_missing_streams, settle, silence
from gnomon.errors import BAD_INPUT, FAULT, GnomonError, UnwrittenError

COMPLETE = "_GNOMON_COMPLETE"
"""Set by a shell that asks for completions."""
INTERRUPTED, BROKEN_PIPE = 130, 141


def run(argv: Sequence[str]) -> int:
    """The exit code of `gnomon ARGV…`."""
    as_json = "--json" in argv
    if not open_missing_streams():
        return fail("is closed", where="standard output", code=BAD_INPUT)
    _forgiving_streams()
    _mute_warnings()
    try:
        return _answered(argv, as_json)
    finally:
        settle()


def _answered(argv: Sequence[str], as_json: bool) -> int:
    try:
        code = _invoke(list(argv))
        sys.stdout.flush()
        return code
    except GnomonError as error:
        return _refused(error, as_json)
    except BrokenPipeError:
        silence("stdout")
        return BROKEN_PIPE
    except (KeyboardInterrupt, EOFError):
        return INTERRUPTED
    except Exception as error:
        if _debugging():
            raise
        if hasattr(error, "format_message"):
            return _usage(error, as_json)
        return _unexpected(error, argv, as_json)


def _invoke(argv: list[str]) -> int:
    import typer

    from gnomon.cli.app import build

    asked = os.environ.get(COMPLETE)
    if asked:
        from gnomon.cli.completion import answer

        return answer(asked, _typed())
    command = typer.main.get_command(build(argv))
    try:
        with command.make_context("gnomon", argv or ["--help"]) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _typed() -> list[str]:
    """The words before the cursor, as the shells hand them over, so that only their command is built."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


def _refused(error: GnomonError, as_json: bool) -> int:
    if isinstance(error, UnwrittenError):
        emit(error.answer, as_json=as_json)
        as_json = False  # one answer on stdout
    nearest = getattr(error, "nearest", None)
    more = {"nearest": nearest} if nearest else {}
    where, hint, code = error.where, error.hint, error.exit_code
    return fail(error.message, where=where, hint=hint, as_json=as_json, code=code, more=more)


def _usage(error: Any, as_json: bool) -> int:
    """A usage error of the command line parser."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "gnomon"
    hint = "" if error.__class__.__name__ == "Abort" else f"See `{path} --help`."
    message = str(error.format_message())
    return fail(message[:1].lower() + message[1:], hint=hint, as_json=as_json, code=BAD_INPUT)


def _unexpected(error: Exception, argv: Sequence[str], as_json: bool) -> int:
    if isinstance(error, MemoryError):
        command = " ".join(["gnomon", *takewhile(lambda word: not word.startswith("-"), argv)])
        return fail(
            "out of memory", where=command, hint="Use smaller inputs, or fewer jobs.", as_json=as_json, code=BAD_INPUT
        )
    if isinstance(error, OSError) and error.strerror:
        return fail(error.strerror, where=str(error.filename or ""), as_json=as_json, code=BAD_INPUT)
    what = f"{type(error).__name__}: {error}"
    hint = "Please report it; GNOMON_DEBUG=1 shows the traceback."
    return fail(what, hint=hint, as_json=as_json, code=FAULT, kind="internal error")


def _debugging() -> bool:
    return os.environ.get("GNOMON_DEBUG", "") not in ("", "0")


def _mute_warnings() -> None:
    """Python's warnings are for developers, who ask for them with -W or GNOMON_DEBUG."""
    if not sys.warnoptions and not _debugging():
        import warnings

        warnings.simplefilter("ignore")


def _forgiving_streams() -> None:
    """A terminal that cannot show a character gets another one, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
