"""Stored answers beside today's: `python -m tests.replay` compares, `--store` keeps today's in their place.

Every number is compared to one part in a billion, and every chosen plan field by field; texts are not compared. A plan
that changed is shown with both costs.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.replay.questions import Words, questions

STORED = Path(__file__).parent / "answers.jsonl.gz"
ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-9
TEXTS = frozenset(("title", "source", "label", "why", "hint", "message", "command", "note", "not_modelled", "notes"))
"""Keys whose values are for people."""


def answer(words: Words) -> dict[str, Any]:
    """The exit code and the JSON of a command, run in a folder of its own."""
    from gnomon.cli.run import run

    out = io.StringIO()
    with TemporaryDirectory() as home, redirect_stdout(out), redirect_stderr(io.StringIO()):
        os.environ["GNOMON_HOME"] = home
        code = run([*words, "--json"])
    text = out.getvalue().replace(f"{ROOT}/", "")
    return {"words": list(words), "code": code, "answer": json.loads(text or "null")}


def answers(jobs: int) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(answer, questions(), chunksize=4)


def differences(before: Any, now: Any, at: str = "", *, plan: bool = False) -> Iterator[str]:
    """Places where two answers differ, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted(before):  # an answer may have more than it had, never less
            if key in TEXTS:
                continue
            inside = plan or key in ("plan", "strategy")
            yield from differences(before.get(key), now.get(key), f"{at}.{key}", plan=inside)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from differences(*pair, f"{at}[{index}]", plan=plan)
    elif _number(before) and _number(now):
        if not math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=1e-300):
            yield f"{at}: {before!r} -> {now!r} ({now / before - 1 if before else math.inf:+.2e})"
    elif type(before) is not type(now) or ((plan or not isinstance(now, str)) and before != now):
        yield f"{at}: {before!r} -> {now!r}"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flipped(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Both plans with what they cost, where a search chose another one."""
    one, two = (found.get("best") or {} for found in (before, now))
    if not one or one.get("plan", {}).get("strategy") == two.get("plan", {}).get("strategy"):
        return ""
    return f"another plan: {_cost(one)} -> {_cost(two)}"


def _cost(best: Mapping[str, Any]) -> str:
    figure = best.get("usd_h") or best.get("step_time_s", {}).get("value")
    return f"{best.get('label') or best.get('plan', {}).get('strategy')} at {figure}"


def stored() -> list[dict[str, Any]]:
    with gzip.open(STORED, "rt") as file:
        return [json.loads(line) for line in file]


def store(found: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(each, sort_keys=True) + "\n" for each in found)
    STORED.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _codes(found: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Exit codes by command."""
    codes = defaultdict[str, list[int]](list)
    for each in found:
        first, second = each["words"][:2]
        codes[f"{first} {second}" if second in ("serve", "train") else first].append(each["code"])
    return codes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="store_true", help="keep today's answers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    words = parser.parse_args()
    now = list(answers(words.jobs))
    if words.store:
        store(now)
        print(f"{len(now)} answers stored")
        for kind, codes in sorted(_codes(now).items()):
            print(f"  {kind}: {codes.count(0)} answered, {len(codes) - codes.count(0)} refused")
        return 0
    changed = 0
    for before, after in zip(stored(), now, strict=True):
        assert before["words"] == after["words"], "the questions changed: store the answers again first"
        found = list(differences(before, after))
        if found:
            changed += 1
            print(f"gnomon {' '.join(after['words'])}")
            plan = flipped(before["answer"] or {}, after["answer"] or {})
            print("".join(f"    {line}\n" for line in ([plan] if plan else []) + found[:6]), end="")
    print(f"{changed} of {len(now)} answers differ")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
