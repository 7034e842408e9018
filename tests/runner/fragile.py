"""A module that kills the processes that import it, while marks are left for it in a folder of the environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

FOLDER = "GNOMON_TEST_KILLS"
"""Names the folder; each mark in it costs one process."""

if FOLDER in os.environ:  # never so where tests are collected
    for mark in sorted(Path(os.environ[FOLDER]).iterdir()):
        try:
            mark.unlink()
        except FileNotFoundError:  # another process took it
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def square(number: int) -> int:
    return number * number
