"""A sample of the fuzzed inputs, and that the harness sees what it is there to see."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.fuzz.__main__ import block, blocks, summary, table
from tests.fuzz.case import Case
from tests.fuzz.generate import MAKERS, case_of, commands
from tests.fuzz.worker import _problems

CASES = 80


@pytest.mark.heavy
def test_fuzzed_inputs_end_as_they_should(tmp_path: Path) -> None:
    found = list(blocks(0, CASES, 1, tmp_path / "kept.jsonl"))
    assert sum(each["cases"] for each in found) == CASES
    failed = [each for block in found for each in block["failed"]]
    assert not failed, table(found)
    codes = Counter(name.rpartition(" ")[2] for each in found for name in each["counts"])
    assert {"0", "2"} <= set(codes)


@pytest.mark.heavy
def test_a_seed_makes_one_case() -> None:
    assert all(case_of(seed) == case_of(seed) for seed in range(60))


def test_every_kind_and_every_command_is_drawn() -> None:
    assert {case_of(seed).kind for seed in range(200)} == set(MAKERS)
    draw = random.Random(0)
    drawn = [MAKERS["arguments"][1](draw)[0] for _ in range(1500)]
    for path, _ in commands():
        assert any(tuple(words[: len(path)]) == path for words in drawn), path


@pytest.mark.heavy
def test_what_was_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.jsonl"
    first = list(blocks(7, 3, 1, kept))
    monkeypatch.setattr("tests.fuzz.__main__.block", None)
    assert list(blocks(7, 3, 1, kept)) == json.loads(json.dumps(first))


CASE = Case(seed=0, kind="arguments", words=("predict", "x", "--json"))
TEXT = Case(seed=0, kind="arguments", words=("predict", "x"))
SEEN = {
    "exit code": (CASE, 3, '{"a": 1}', "internal error: x\n"),
    "exit code -1": (CASE, -1, "", "escaped: ValueError: x\n"),
    "traceback": (CASE, 2, '{"a": 1}', "error: Traceback (most recent call last)\n"),
    "memory": (CASE, 2, '{"a": 1}', "error: gnomon predict x: out of memory\n"),
    "2 lines on stderr": (CASE, 2, '{"a": 1}', "error: x\nerror: y\n"),
    "0 lines on stderr": (CASE, 2, '{"a": 1}', ""),
    "a line of 2508": (CASE, 2, '{"a": 1}', "error: " + "x" * 2500 + "!\n"),
    "not printable": (CASE, 2, '{"a": 1}', "error: \x1b[2J\n"),
    "no JSON": (CASE, 0, "text", ""),
    "no JSON: ''": (CASE, 2, "", "error: x\n"),
    "no JSON: '{\"a\": NaN}'": (CASE, 0, '{"a": NaN}', ""),
    "text beside an error": (TEXT, 2, "half an answer", "error: x\n"),
}


@pytest.mark.parametrize("expected", SEEN)
def test_what_may_not_be_is_seen(expected: str) -> None:
    case, code, out, err = SEEN[expected]
    (problem, *_) = [each for each in _problems(case, code, out, err) if expected in each]
    assert problem


@pytest.mark.parametrize(("code", "out", "err"), [(0, "text", ""), (2, "", "error: x\n"), (130, "", "")])
def test_what_should_be_is_no_problem(code: int, out: str, err: str) -> None:
    assert _problems(TEXT, code, out, err) == []


HANGING = """
import sys
from tests.fuzz import worker

right = worker.judged
worker.judged = lambda case: right(case) if case.seed != 8 else hang()


def hang():
    import time

    worker.CPU_S = -1
    worker._limit_cpu(time.process_time())
    while True:
        pass


worker.main(int(sys.argv[1]), int(sys.argv[2]), sys.stdout)
"""


@pytest.mark.heavy
def test_a_case_that_does_not_end_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that hangs is killed by the kernel; the cases behind it run in another."""

    def worker(first: int, count: int) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", HANGING, str(first), str(count)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    monkeypatch.setattr("tests.fuzz.__main__._worker", worker)
    outcomes = block(7, 3)
    assert [each["seed"] for each in outcomes] == [7, 8, 9]
    assert [each["problems"][0][:26] for each in outcomes if each["code"] < 0] == ["ended the process with -24"]
    assert outcomes[1] in summary(7, outcomes)["failed"]
