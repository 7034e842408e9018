"""`python -m tests.fuzz --cases 100000 --jobs 2`: fuzzed inputs, and a table of how they ended.

Workers run blocks of cases; what a block came to is kept in a file, so that a run that was stopped can go on.
`python -m tests.fuzz --seed N` shows one case and how it ends.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BLOCK = 250
"""Cases of one worker process; the caches it fills go with it."""
ROOT = Path(__file__).parents[2]


def kept_of_this_code() -> Path:
    """Where blocks that were run are kept: another file for other code, whose outcomes may differ."""
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests/fuzz").glob("*.py"), *(ROOT / "tests/corpus").glob("*.py")]
    code = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts):
        code.update(file.read_bytes())
    return Path(f".fuzz-{code.hexdigest()[:8]}.jsonl")


def block(first: int, count: int) -> list[dict[str, Any]]:
    """Outcomes of so many cases; where a worker dies, of the case it died in and of those behind it too."""
    outcomes: list[dict[str, Any]] = []
    while len(outcomes) < count:
        begun = first + len(outcomes)
        done = _worker(begun, count - len(outcomes))
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        outcomes += [line for line in lines if "seed" in line]
        if len(outcomes) < count:
            if not lines or "begun" not in lines[-1]:
                raise RuntimeError(f"the worker did not begin case {begun}: {done.stderr[-1000:]}")
            outcomes.append(_killed(lines[-1]["begun"], done))
    return outcomes


def _worker(first: int, count: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    words = [sys.executable, "-m", "tests.fuzz.worker", str(first), str(count)]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def _killed(seed: int, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    from tests.fuzz.generate import case_of

    where = " < ".join(line.strip() for line in done.stderr.splitlines() if line.strip().startswith("File"))
    problem = f"ended the process with {done.returncode}: {where[:600] or done.stderr[-300:]}"
    return {"seed": seed, "kind": case_of(seed).kind, "code": done.returncode, "cpu_s": 0, "rss_bytes": 0,
            "problems": [problem]}  # fmt: skip


def blocks(first: int, cases: int, jobs: int, kept: Path) -> Iterator[dict[str, Any]]:
    """What each block came to, from the file where it was run before."""
    starts = {start: min(BLOCK, first + cases - start) for start in range(first, first + cases, BLOCK)}
    if kept.exists():
        for line in kept.read_text().splitlines():
            found = json.loads(line)
            if starts.get(found["first"]) == found["cases"]:
                del starts[found["first"]]
                yield found
    with ThreadPoolExecutor(jobs) as pool, kept.open("a") as file:
        for found in pool.map(lambda start: summary(start, block(start, starts[start])), starts):
            print(json.dumps(found), file=file, flush=True)
            yield found


def summary(first: int, outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A block in few words: counts by kind and exit code, the slowest and the largest, and what failed."""
    counts = Counter(f"{each['kind']} {each['code']}" for each in outcomes)
    return {
        "first": first,
        "cases": len(outcomes),
        "counts": dict(counts),
        "cpu_s": max((each["cpu_s"], each["seed"]) for each in outcomes),
        "rss_bytes": max((each["rss_bytes"], each["seed"]) for each in outcomes),
        "failed": [each for each in outcomes if each["problems"]],
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Cases by kind and exit code, and what failed."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in found:
        for name, count in each["counts"].items():
            kind, _, code = name.rpartition(" ")
            counts[kind, code] += count
    codes = sorted({code for _, code in counts}, key=int)
    failed = Counter(each["kind"] for block in found for each in block["failed"])
    rows = [["kind", "cases", *(f"exit {code}" for code in codes), "failed"]]
    for kind in sorted({kind for kind, _ in counts}):
        of_kind = [counts[kind, code] for code in codes]
        rows.append([kind, *(f"{count:,}" for count in (sum(of_kind), *of_kind, failed[kind]))])
    whole = [sum(counts[kind, code] for kind, _ in {(kind, "") for kind, _ in counts}) for code in codes]
    rows.append(["all", *(f"{count:,}" for count in (sum(whole), *whole, failed.total()))])
    lines = ["  ".join(f"{cell:>12}" for cell in row) for row in rows]
    (cpu_s, slow), (rss, large) = (max(tuple(block[name]) for block in found) for name in ("cpu_s", "rss_bytes"))
    lines.append(f"slowest {cpu_s} CPU s (seed {slow}), largest {rss / 2**20:.0f} MiB (seed {large})")
    lines += [f"seed {each['seed']}: {'; '.join(each['problems'])}" for block in found for each in block["failed"]]
    return "\n".join(lines)


def show(seed: int) -> None:
    """One case: its command line, its files, and how it ends."""
    from tests.fuzz.generate import case_of, intact

    case = case_of(seed)
    print(f"{case.kind}: gnomon", *map(repr, case.words))
    for name, content in case.files.items():
        if intact().get(name) != content:
            print(f"--- {name}\n{content[:4000]!r}")
    print(json.dumps(block(seed, 1)[0], indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kept", type=Path, help="where blocks that were run are kept (.fuzz-CODE.jsonl)")
    parser.add_argument("--seed", type=int, help="show this case alone")
    words = parser.parse_args()
    if words.seed is not None:
        show(words.seed)
        return 0
    found: list[dict[str, Any]] = []
    for each in blocks(words.first, words.cases, words.jobs, words.kept or kept_of_this_code()):
        found.append(each)
        done = sum(block["cases"] for block in found)
        failed = sum(len(block["failed"]) for block in found)
        print(f"\r{done:,} of {words.cases:,} cases, {failed} failed", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(table(found))
    return int(any(block["failed"] for block in found))


if __name__ == "__main__":
    sys.exit(main())
