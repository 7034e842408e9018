"""Sweeps in processes of their own: killed at any moment and run again, nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GNOMON = [sys.executable, "-m", "gnomon"]
SWEEP = """
command: simulate serve
fixed: {model: llama-3.2-1b, on: H100, rate: 20, input: 400, output: 20, requests: 50}
over:
  dtype: [bf16, fp8]
  seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
"""
QUESTIONS = 28
"""Of some fifty milliseconds each, so that there is time to stop it in the middle."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path / "sweep.yaml"


def command(file: Path, out: Path, *more: str) -> list[str]:
    return [*GNOMON, "sweep", str(file), "--out", str(out), *more]


def run(file: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(file, out, *more), capture_output=True, text=True, timeout=300, check=False)


def stopped(file: Path, out: Path, after: int, how: signal.Signals, *more: str) -> tuple[int, str]:
    """The program, sent a signal once the file has so many lines."""
    begun = subprocess.Popen(
        command(file, out, *more),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    while begun.poll() is None and count(out) < after:
        time.sleep(0.002)
    begun.send_signal(how)
    return begun.wait(60), begun.communicate()[1]


def count(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


@pytest.mark.slow
def test_killed_twice_it_comes_out_the_same(file: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert run(file, whole).returncode == 0
    begun = [0]
    for after in (4, 12):
        code, _ = stopped(file, out, after, signal.SIGKILL, "--jobs", "2")
        assert code == -signal.SIGKILL
        begun.append(count(out))
    assert 0 < begun[1] < begun[2] < QUESTIONS, "it was not killed in the middle"
    done = run(file, out, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert f"{begun[2]} answers were in the file; {QUESTIONS - begun[2]} are new" in done.stderr
    assert out.read_bytes() == whole.read_bytes()
    assert [json.loads(line)["index"] for line in out.read_text().splitlines()] == list(range(QUESTIONS))
    again = run(file, out, "--jobs", "2")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert f"nothing to do: all {QUESTIONS} answers are in the file" in again.stderr


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupted_it_says_how_to_go_on(file: Path, tmp_path: Path, jobs: str) -> None:
    out = tmp_path / "out.jsonl"
    code, said = stopped(file, out, 5, signal.SIGINT, "--jobs", jobs)
    assert code == 130
    assert said == f"stopped; the answers so far are kept, and the same command resumes: {out}\n"
    assert 5 <= count(out) < QUESTIONS
    assert run(file, out).returncode == 0
    assert count(out) == QUESTIONS


@pytest.mark.heavy
def test_workers_end_with_their_parent(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    begun = subprocess.Popen(command(file, out, "--jobs", "2"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while begun.poll() is None and count(out) < 3:
        time.sleep(0.002)
    workers = Path(f"/proc/{begun.pid}/task/{begun.pid}/children")
    if not workers.exists():
        pytest.skip("this system does not list the children of a process")
    children = [int(pid) for pid in workers.read_text().split()]
    assert len(children) >= 2
    begun.kill()
    begun.wait()
    for _ in range(2000):
        if not any(_alive(pid) for pid in children):
            return
        time.sleep(0.01)
    pytest.fail("workers outlived their parent")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.heavy
def test_a_script_without_a_main_is_told_what_it_lacks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gnomon\n"
        "asked = {'command': 'fit', 'fixed': {'on': 'H100'}, 'over': {'model': ['llama-3.2-1b', 'llama-3.1-8b']}}\n"
        f"gnomon.sweep(asked, out={str(tmp_path / 'out.jsonl')!r}, jobs=2)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "GnomonError: jobs: worker processes end as soon as they start" in done.stderr
    assert "if __name__ == '__main__':" in done.stderr
