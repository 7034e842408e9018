"""Command lines for tests: a base with some of its flags replaced."""

from __future__ import annotations

import shlex


def replaced(line: str) -> str:
    """The line with each flag at its last value alone, since a command refuses a flag given twice.

    >>> replaced("predict m --on H100 --batch 8 --on H200")
    'predict m --batch 8 --on H200'
    """
    kept: list[list[str]] = []
    for word in shlex.split(line):
        if word.startswith("--") or not kept or not kept[-1][0].startswith("--"):
            kept = [group for group in kept if group[0] != word or word in REPEATED or not word.startswith("--")]
            kept.append([word])
        else:
            kept[-1].append(word)
    return shlex.join(word for group in kept for word in group)


REPEATED = ("--set", "--with", "--slo", "--pool")
