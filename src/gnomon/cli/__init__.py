"""The command line: parse, call, print. Nothing here computes."""

from __future__ import annotations

import sys


def main() -> None:
    """The `gnomon` program."""
    from gnomon.cli.run import run

    sys.exit(run(sys.argv[1:]))
