"""Command lines run inside a test: what they print, answer and propose."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from tests.words import replaced

from gnomon.cli.run import run


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def say(line: str) -> Said:
    """Run a command line; each flag has its last value."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(replaced(line)))
    return Said(code, out.getvalue(), err.getvalue())


def next_lines(text: str) -> list[str]:
    """The commands that an answer ends with."""
    _, mark, tail = text.partition("\n  next: ")
    lines = [line.strip() for line in tail.splitlines()] if mark else []
    return [line.removeprefix("gnomon ") for line in lines if line.startswith("gnomon ")]


def without(line: str, flag: str) -> str:
    """The line without a flag and its value."""
    return re.sub(rf" {flag} [^- ]\S*", "", line)


def proposals(line: str, error: str) -> list[str]:
    """The command lines that an error tells to use instead of one that it refuses."""
    where, _, told = error.removeprefix("error: ").strip().partition(": ")
    flag = where.split(",")[0]
    found = []
    for number, on in re.findall(r"(\d+) on (\S+?)[. ]", told + " "):
        named = re.search(r"Use (--\w+) ", told)
        found.append(f"{line} {named[1] if named else flag} {number} --on {on}")
    if found:
        return found
    found += [
        f"{line} {'--cluster' if 'plan train' in line else '--on'} {on}"
        for on in re.findall(r"--on (\S+?)\.?(?= |$)", told)
    ]
    for words in re.findall(r"Raise it with ((?:--set \S+? ?)+)\.", told):
        found.append(f"{line} {words}")
    for named, values in re.findall(r"Use (--[pv]p) ([\d or]+)\.", told):
        found += [f"{line} {named} {value}" for value in values.split(" or ")]
    for values in re.findall(r"Use (\d[\d or]*)\.", told):
        found += [f"{line} {flag} {value}" for value in values.split(" or ")]
    for most in re.findall(r"Use at most ([\d,]+)(?:,|\.| )", told):
        value, key = most.strip(",").replace(",", ""), where.removeprefix("--set ")
        found.append(re.sub(rf"{key}=\S+", f"{key}={value}", line) if key != where else f"{line} {flag} {value}")
    for names in re.findall(r"What runs there: ([\w, -]+)\.", told):
        found += [f"{line} --dtype {name}" for name in names.split(", ")]
    for names in re.findall(r"Use ([a-z]+\d+(?: or [a-z]+\d+)*)\.", told):
        found += [f"{line} --dtype {name}" for name in names.split(" or ")]
    found += [f"{line} --cluster {on}" for on in re.findall(r"It fits (\S+:\d+)\.", told)]
    found += [f"{line} {words}" for words in re.findall(r"With (--\w+ \S+) it fits here", told)]
    found += [without(line, named) for named in re.findall(r"Leave (--\w+) out", told)]
    found += [without(line, flag)] if "Leave it out" in told else []
    return found
