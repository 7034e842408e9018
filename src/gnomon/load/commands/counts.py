"""How often a shell text starts something: the words of a loop's list, and the tasks of what launches several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gnomon.engines.operations import Variable
from gnomon.load.commands.scan import QUOTED_DOLLAR

_RANGE = re.compile(r"(?:(-?\d{1,18})\.\.(-?\d{1,18})|([A-Za-z])\.\.([A-Za-z]))(?:\.\.(-?\d{1,9}))?")
_SEQUENCE = re.compile(r"\$\(\s*seq((?:\s+-?\d{1,9}){1,3})\s*\)")
_GLOB = re.compile(r"[*?\[]")
_BATCH = re.compile(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
_ARRAY = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?")
SLURM, MPI = ("srun",), ("mpirun", "mpiexec", "orterun")
EACH = ("xargs", "parallel", "pdsh", "clush", "pssh", "parallel-ssh", "torchrun")
"""Programs that start a command once for each of their items."""
TASKS = {
    "tasks": ("-n", "--ntasks", "-np", "--np", "--n"),
    "nodes": ("-N", "--nodes"),
    "each": ("--ntasks-per-node", "--tasks-per-node"),
}
TWO_VALUES = ("--mca", "-mca", "--gmca", "-gmca")


def loop_times(token: str, items: Sequence[str]) -> int:
    """How many items a token of a loop's list stands for, with the words it is filled in with; 0 where that is not
    known."""
    if QUOTED_DOLLAR in token:
        return len(items) if len(items) > 1 else _braces(token)
    if "$" not in token:
        return 0 if _GLOB.search(token) else _braces(token)
    if len(items) == 1 and (sequence := _SEQUENCE.fullmatch(items[0])):
        return sequence_length([int(number) for number in sequence[1].split()])
    if any(isinstance(item, Variable) or _GLOB.search(item) for item in items):
        return 0
    return len(items) * _braces(token)


def sequence_length(numbers: Sequence[int]) -> int:
    """How many numbers `seq LAST`, `seq FIRST LAST` or `seq FIRST STEP LAST` writes."""
    first, step, last = (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[-1])
    step = numbers[1] if len(numbers) == 3 else step
    return max(0, (last - first) // step + 1) if step else 0


def _braces(word: str) -> int:
    """How many words the braces of one stand for."""
    for at, letter in enumerate(word):
        if letter != "{":
            continue
        parts, end = _parts(word, at)
        if end and (len(parts) > 1 or _RANGE.fullmatch(parts[0])):
            inside = sum(map(_braces, parts)) if len(parts) > 1 else _span(parts[0])
            return inside * _braces(word[end:])
    return 1


def _parts(word: str, at: int) -> tuple[list[str], int]:
    """What stands between the commas of a brace, and where it ends; 0 where it is not closed."""
    depth, parts = 0, [""]
    for place in range(at, len(word)):
        letter = word[place]
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return parts, place + 1
        if letter == "," and depth == 1:
            parts.append("")
        elif place > at:
            parts[-1] += letter
    return parts, 0


def _span(text: str) -> int:
    found = _RANGE.fullmatch(text)
    if found is None:
        return 1
    first, last = (int(found[1]), int(found[2])) if found[1] else (ord(found[3]), ord(found[4]))
    return abs(last - first) // (abs(int(found[5] or 1)) or 1) + 1


def batch_options(text: str) -> list[str]:
    """The options of a script's `#SBATCH` lines."""
    return [word for line in _BATCH.findall(text) for word in line.split("#")[0].split()]


def array_jobs(batch: Sequence[str]) -> int:
    """How many jobs a Slurm array runs a script as; 0 where that is not known."""
    given = _given(batch, ("-a", "--array"))
    if given is None:
        return 1
    parts = [_ARRAY.fullmatch(part) for part in given.partition("%")[0].split(",")]
    spans = [(int(part[1]), int(part[2] or part[1]), int(part[3] or 1)) for part in parts if part]
    return sum(max(0, last - first) // step + 1 for first, last, step in spans) if all(parts) else 0


def launched_tasks(words: Sequence[str], batch: Sequence[str], piped: Sequence[str]) -> int:
    """How many processes `srun`, `mpirun` and `xargs` start of the command behind them: 1 where none of them is there,
    0 where they do not say it. `piped` are the words of the command that writes their input."""
    for at, word in enumerate(words):
        program = word.rpartition("/")[2]
        if program in EACH:
            return _items(words[at + 1 :], piped) if program == "xargs" else 0
        if program in (*SLURM, *MPI):
            own = list(_head(words[at + 1 :]))
            return _slurm(own, batch) if program in SLURM else _number(_given(own, TASKS["tasks"]) or "")
    return 1


def _slurm(own: Sequence[str], batch: Sequence[str]) -> int:
    """Tasks of `srun`: those that it names, else one on each node, or as many as it says for each."""
    found = {}
    for name, flags in TASKS.items():
        mine, outer = _given(own, flags), _given(batch, flags)
        found[name] = outer if mine is None else mine
    if found["tasks"] is not None:
        return _number(found["tasks"])
    return _number(found["nodes"] or "1") * _number(found["each"] or "1")


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,7}", text) and not isinstance(text, Variable) else 0


def _head(words: Sequence[str]) -> Iterator[str]:
    """A launcher's own options, up to the program; a word behind an option may be its value."""
    values = 0
    for word in words:
        if word.startswith("-"):
            values = 0 if "=" in word else 2 if word in TWO_VALUES else 1
        elif values:
            values -= 1
        else:
            return
        yield word


def _given(words: Sequence[str], names: Sequence[str]) -> str | None:
    """The last value of an option, however it is written; nothing where it is not there."""
    found: str | None = None
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        short = re.fullmatch(r"(-[nNa])(\d+)", word)
        if word in names:
            found = words[at + 1] if at + 1 < len(words) else ""
        elif equals and name in names:
            found = Variable(value) if isinstance(word, Variable) else value
        elif short and short[1] in names:
            found = short[2]
    return found


def _items(own: Sequence[str], piped: Sequence[str]) -> int:
    """How often `xargs` starts its command, where it does so once for each number of `seq`."""
    head = list(_head(own))
    once = any(re.fullmatch(r"-I.*|-i|-n1|-L1|--max-args=1|--replace.*", word) for word in head)
    once = once or _given(head, ("-n", "-L", "--max-args")) == "1"
    counted = piped[:1] == ["seq"] and all(re.fullmatch(r"-?\d{1,9}", word) for word in piped[1:])
    return sequence_length([int(word) for word in piped[1:4]]) if once and counted and piped[1:] else 0
