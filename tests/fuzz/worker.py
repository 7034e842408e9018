"""Runs cases one after the other in a process of its own, held to two gigabytes and to twenty seconds each.

`python -m tests.fuzz.worker FIRST COUNT` prints a line of JSON before and after each case: whoever reads them knows in
which case the process ended, should it end.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2 * 1024**3
CPU_S = 20
CODES = (0, 2, 4, 130)
LONGEST_LINE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a case ended. `problems` says what may not be."""

    seed: int
    kind: str
    code: int
    cpu_s: float
    rss_bytes: int
    problems: tuple[str, ...]


def main(first: int, count: int, lines: Any) -> None:
    from tests.fuzz.generate import case_of

    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a command that measures finds nothing to measure
    faulthandler.register(signal.SIGXCPU, chain=True)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for seed in range(first, first + count):
        print(json.dumps({"begun": seed}), file=lines, flush=True)
        print(json.dumps(asdict(judged(case_of(seed)))), file=lines, flush=True)


def judged(case: Any) -> Outcome:
    """Run a case in a fresh folder and say what was wrong with it."""
    folder = Path(tempfile.mkdtemp(prefix="gnomon-fuzz-"))
    try:
        case.write(folder)
        os.environ["GNOMON_HOME"] = str(folder / "home")
        os.environ["GNOMON_TRUTH"] = str(folder)
        os.chdir(folder)
        before = time.process_time()
        _limit_cpu(before)
        _reset_peak()
        code, out, err = _run(list(case.words))
        cpu_s, rss = time.process_time() - before, _peak_bytes()
        left = [path.name for path in folder.rglob("*") if path.suffix == ".partial" or path.name == "ran"]
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    problems = _problems(case, code, out, err)
    problems += [f"left {name}" for name in left]
    problems += [f"took {cpu_s:.1f} s"] if cpu_s > CPU_S else []
    problems += [f"took {rss / 2**30:.2f} GiB"] if rss > MEMORY_BYTES else []
    return Outcome(
        seed=case.seed, kind=case.kind, code=code, cpu_s=round(cpu_s, 3), rss_bytes=rss, problems=tuple(problems)
    )


def _run(words: list[str]) -> tuple[int, str, str]:
    from gnomon.cli.run import run

    streams = sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    sys.stdout, sys.stderr = out, err
    code = -1
    try:
        code = run(words)
    except BaseException as error:
        err.write(f"escaped: {type(error).__name__}: {error}\n")
    finally:
        sys.stdout, sys.stderr = streams
    return code, *(_text(stream) for stream in (out, err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    data = stream.buffer
    return data.getvalue().decode() if isinstance(data, io.BytesIO) else ""


def _problems(case: Any, code: int, out: str, err: str) -> list[str]:
    found = []
    if code not in CODES:
        found.append(f"exit code {code}: {err.strip()[-300:]}")
    if "Traceback" in err or "Traceback" in out:
        found.append(f"traceback: {err.strip()[-300:]}")
    if "out of memory" in err or "needs more memory" in err:
        found.append(f"memory: {err.strip()[-300:]}")
    lines = err.splitlines()
    said = [line for line in lines if not line.startswith("warning: ")]
    if code in (2, 4) and (len(said) != 1 or not said[0].startswith("error: ")):
        found.append(f"{len(said)} lines on stderr: {err[:300]!r}")
    if any(len(line) > LONGEST_LINE for line in lines):
        found.append(f"a line of {max(map(len, lines))} characters")
    if not all(line.isprintable() for line in lines):
        found.append(f"stderr is not printable: {err[:300]!r}")
    return found + _on_stdout(case.words, code, out, err)


def _on_stdout(words: Sequence[str], code: int, out: str, err: str) -> list[str]:
    """With --json one document, without it nothing beside an error but an answer whose file failed."""
    if {"--help", "-h"} & set(words):
        return []
    if "--json" in words:
        return [] if code not in CODES[:3] or _is_json(out) else [f"no JSON: {out[:200]!r}"]
    answered = "The answer itself is complete" in err or "is on standard output" in err or "Not all files" in err
    return [f"text beside an error: {out[:200]!r}"] if code in (2, 4) and out and not answered else []


def _is_json(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _limit_cpu(used_s: float) -> None:
    """The kernel ends the process twenty seconds and a little from now."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used_s) + CPU_S + 2, hard))


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.stdout)
