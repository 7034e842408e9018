"""The program in fresh processes: what a user types, what comes out, and where."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

GNOMON = [sys.executable, "-m", "gnomon"]
PROGRAM = Path(sys.executable).with_name("gnomon")
STEP = "predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024"
PLAN = "plan serve llama-3.1-8b --fleet H100:2 --rate 4 --input 512 --output 64 --requests 200"


def gnomon(words: str | list[str], **changes: str) -> subprocess.CompletedProcess[str]:
    arguments = shlex.split(words) if isinstance(words, str) else words
    return subprocess.run(
        [*GNOMON, *arguments], capture_output=True, text=True, timeout=120, check=False, env=os.environ | changes
    )


def test_the_installed_program_is_the_module() -> None:
    if not PROGRAM.exists():
        pytest.skip("the package is not installed beside this Python")
    installed = subprocess.run([str(PROGRAM), "--version"], capture_output=True, text=True, check=True)
    assert installed.stdout == gnomon("--version").stdout


def test_an_answer_is_text_without_codes() -> None:
    done = gnomon(STEP)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\033" not in done.stdout
    assert "tokens/s" in done.stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_any_locale_will_do(locale: str) -> None:
    done = gnomon(STEP, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr


FIRST = {
    "predict": STEP,
    "fit": "fit llama-3.1-8b --on H100",
    "no-fit": "fit llama-3.1-70b --on H100",
    "simulate": "simulate serve llama-3.1-8b --on H100 --rate 4 --input 512 --output 64 --requests 50",
    "plan": PLAN,
    "train": "simulate train llama-3.1-8b --on H100:16 --seq 4096 --global-batch 256 --tp 2 --pp 2 --tokens 15T",
    "no-train": "simulate train llama-3.1-70b --on H100:32 --seq 4096 --global-batch 256 --tp 8",
    "train-part-of-a-node": "simulate train llama-3.2-1b --on H100:12 --seq 4096 --global-batch 24 --engine torch",
    "plan-train": "plan train llama-3.1-8b --cluster H100:16 --seq 4096 --global-batch 256 --tokens 123456789012",
    "plan-train-idle": "plan train llama-3.1-8b --cluster H100:12 --seq 4096 --global-batch 256",
    "chips": "chips",
    "chip": "chips show H200",
    "models": "models",
    "papers": "papers",
    "papers-found": "papers search offload optimizer",
    "history": "history",
}


@pytest.mark.heavy
@pytest.mark.battery(16)
@pytest.mark.parametrize("name", FIRST)
def test_what_is_told_to_do_next_can_be_done(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = gnomon(FIRST[name])
    assert done.returncode == 0, done.stderr
    commands = re.findall(r"^ +(?:next: )?gnomon (.*)$", done.stdout, flags=re.MULTILINE)
    assert commands
    for command in commands:
        faster = command + " --requests 200" if command.startswith("plan serve") else command
        followed = gnomon(faster)
        assert followed.returncode == 0, f"{command}: {followed.stderr}"


@pytest.mark.heavy
def test_from_plan_to_files(tmp_path: Path) -> None:
    assert gnomon(PLAN).returncode == 0
    folder = tmp_path / "deploy"
    done = gnomon(["export", "last", "--out", str(folder)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(folder / "launch.sh"), str(folder / "plan.yaml")]
    assert os.access(folder / "launch.sh", os.X_OK)
    again = gnomon(["launch", str(folder / "plan.yaml"), "--dry-run", "--json"])
    assert json.loads(again.stdout)["why_not"] == "this is a dry run"
    printed = gnomon(["export", str(folder / "plan.yaml"), "--to", "vllm"])
    assert printed.stdout == (folder / "launch.sh").read_text()


def test_a_reader_that_leaves_is_no_error() -> None:
    script = f"{shlex.join(GNOMON)} chips --json | head -c 20; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.split()[-1] in ("0", "141")
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_closed_stdout_is_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(GNOMON)} chips >&-"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    words = "simulate serve llama-3.1-8b --on H100 --rate 4 --input 512 --output 256 --requests 2000000"
    process = subprocess.Popen(
        [*GNOMON, *shlex.split(words), "--trace-out", str(tmp_path / "steps.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert (out, err) == ("", "")
    assert not list(tmp_path.iterdir())


def _small(memory_bytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


@pytest.mark.heavy
@pytest.mark.parametrize(("more", "code", "said"), [("--requests 10", 0, ""), ("", 2, "bomb.csv.gz: has more than")])
def test_a_packed_trace_of_a_gigabyte_in_little_memory(tmp_path: Path, more: str, code: int, said: str) -> None:
    """140 million rows in 1.4 MB; read whole they took seven gigabytes."""
    rows = gzip.compress(b"0,10,5\n" * 100_000) * 1400
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"arrival_s,input_tokens,output_tokens\n") + rows)
    words = f"simulate serve llama-3.2-1b --on H100 --trace bomb.csv.gz {more}"
    done = subprocess.run(
        [*GNOMON, *words.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=_small(2**30),
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_history_that_cannot_be_written_costs_nothing_but_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = gnomon(STEP, GNOMON_HOME=str(tmp_path / "file" / "home"))
    assert done.returncode == 0
    assert "tokens/s" in done.stdout
    assert done.stderr.count("\n") == 1


STREAMS = {
    "full": (f"{STEP} >/dev/full", 2, "error: standard output: cannot be written: No space left on device\n"),
    "full-json": (f"{STEP} --json >/dev/full", 2, "error: standard output: cannot be written: No space left"),
    "full-help": ("--help >/dev/full", 2, "error: No space left on device\n"),
    "full-error": (f"{STEP} --batch 0 --json >/dev/full", 2, "error: --batch"),
    "full-talk": (f"{STEP} >/dev/null 2>/dev/full", 0, ""),
    "full-talk-error": (f"{STEP} --batch 0 2>/dev/full", 2, ""),
    "full-both": (f"{STEP} --json >/dev/full 2>/dev/full", 2, ""),
    "closed": (f"{STEP} >&-", 2, "error: standard output: is closed\n"),
    "closed-json": (f"{STEP} --json >&-", 2, "error: standard output: is closed\n"),
    "closed-talk": (f"{STEP} >/dev/null 2>&-", 0, ""),
    "closed-talk-error": (f"{STEP} --batch 0 2>&-", 2, ""),
    "closed-both": (f"{STEP} >&- 2>&-", 2, ""),
}


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_take_nothing(name: str) -> None:
    words, code, said = STREAMS[name]
    script = f"{shlex.join(GNOMON)} {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == (1 if said else 0)
    assert done.stdout == ""


@pytest.mark.slow
def test_a_folder_in_the_way_stops_the_export(tmp_path: Path) -> None:
    assert gnomon(PLAN).returncode == 0
    (tmp_path / "d1" / "plan.yaml").mkdir(parents=True)
    done = gnomon(["export", "last", "--out", str(tmp_path / "d1")])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert [file.name for file in (tmp_path / "d1").iterdir()] == ["plan.yaml"]
