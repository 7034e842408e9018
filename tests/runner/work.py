"""Functions that workers are given; they stand in a module so that other processes can import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from gnomon.errors import InfeasibleError, MissingExtraError


def square(number: int) -> int:
    return number * number


def slow_when_even(number: int) -> int:
    """Later items are done before earlier ones."""
    time.sleep(0.05 if number % 2 == 0 else 0)
    return number


def who(_: int) -> int:
    return os.getpid()


def fails_at_three(number: int) -> int:
    if number == 3:
        raise InfeasibleError("three", where="--number", hint="Take four.", nearest={"number": 4})
    return number


def lacks_an_extra(_: int) -> int:
    raise MissingExtraError("ray", "ray", "this")


class OddError(Exception):
    """An error that cannot be sent: it wants other arguments than it keeps."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def fails_oddly(_: int) -> int:
    raise OddError(1, 2)


def dies_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def dies_once(item: tuple[int, str]) -> int:
    """The first process that comes to item 5 is killed; the next one finds the mark it left."""
    number, folder = item
    mark = Path(folder, "died")
    if number == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number
