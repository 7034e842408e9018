"""What to say when a module cannot be traced: which line of whose code, and what to do there."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from gnomon.errors import GnomonError, InputError

LIBRARY = Path(torch.__file__).parent
OURS = Path(__file__).parent
LONGEST_LINE = 80


@contextmanager
def quietly() -> Iterator[None]:
    """PyTorch logs a traceback of its own where an operator fails; the error that follows says it once."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def blamed_on_module() -> Iterator[None]:
    """Whatever the user's code raises in here, an exit of its own included, is told as an error of the module."""
    try:
        yield
    except (GnomonError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise explained(error) from None


def explained(error: BaseException) -> InputError:
    """The error in the user's terms."""
    where, line = _place(error)
    if isinstance(error, DataDependentOutputException):
        what = f"the value of a tensor decides what runs next ({_operator(error)})"
        hint = "Pass that value in as a plain number, or set it as an attribute before tracing."
    elif isinstance(error, DynamicOutputShapeException):
        what = f"the size of a result depends on values ({_operator(error)})"
        hint = "Use a fixed size there: masks in place of selections, index tensors made before and passed in."
    elif isinstance(error, (UnsupportedOperatorException, NotImplementedError)):
        what = f"an operator cannot be traced ({_first_line(error)})"
        hint = "Give it a shape function with torch.library.register_fake, or use PyTorch's own operators there."
    else:
        what = f"the module fails on these inputs: {type(error).__name__}: {_first_line(error)}"
        hint = "Run it once on real tensors of these shapes to see why."
    shown = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"
    return InputError(f"{what}{f' at `{shown}`' if shown else ''}", where=where, hint=hint)


def _place(error: BaseException) -> tuple[str, str]:
    """The innermost line that is neither PyTorch's nor ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not (path.is_relative_to(LIBRARY) or path.is_relative_to(OURS)) and "gnomon" not in path.parts[-3:]:
            return f"{path.name} line {frame.lineno}", (frame.line or "").strip()
    return "module", ""


def _operator(error: Any) -> str:
    return str(getattr(error, "func", "") or _first_line(error)).removesuffix(".default")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else "no reason given"
