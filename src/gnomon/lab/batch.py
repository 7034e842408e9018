"""Several experiments one after the other, each in a process of its own that is killed at its limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCHEMA = "gnomon.lab.batch/1"
SECONDS = 150
"""An experiment's limit, unless another is given: it is meant to take 30 to 100 s."""
LEAST_S = 10.0
"""Seconds that must be left for one more to be started."""
GOOD = ("ok", "there already")
"""States of experiments that have a result whose checks hold."""
Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """One experiment of a batch."""

    slug: str
    state: str
    """ok, checks failed, failed, killed, not started, there already."""
    file: str | None
    log: str | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Seconds of each experiment, and of all of them together where that is limited."""

    seconds: float = SECONDS
    total_s: float | None = None


def run_batch(slugs: Sequence[str], device: str, folder: Path, limits: BatchLimits, tick: Tick) -> tuple[BatchRun, ...]:
    """Run experiments into `SLUG.json` and `SLUG.log` of a folder. Those that have a result there are not run again."""
    began, found = time.monotonic(), []
    for slug in slugs:
        out, log = folder / f"{slug}.json", folder / f"{slug}.log"
        if out.exists():
            found.append(BatchRun(slug=slug, state="there already", file=str(out), log=None))
            continue
        left = limits.seconds
        if limits.total_s is not None:
            left = min(left, limits.total_s - (time.monotonic() - began))
        if left < min(LEAST_S, limits.seconds):
            found.append(BatchRun(slug=slug, state="not started", file=None, log=None, why="no time was left"))
            continue
        tick(f"{slug}, {len(found) + 1} of {len(slugs)}")
        found.append(_one(slug, device, out, log, left))
    return tuple(found)


def _one(slug: str, device: str, out: Path, log: Path, seconds: float) -> BatchRun:
    words = [sys.executable, "-m", "gnomon", "lab", "run", slug, "--device", device, "--out", str(out)]
    with log.open("w", encoding="utf-8") as text, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=text, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"TMPDIR": scratch},  # what a killed one leaves goes with it
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    file = str(out) if out.exists() else None
    state = {0: "ok", 1: "checks failed", None: "killed"}.get(code, "failed")
    if state in ("ok", "checks failed") and file is None:
        state = "failed"
    why = f"ran longer than {seconds:.0f} s" if state == "killed" else "" if state == "ok" else _last_line(log)
    return BatchRun(slug=slug, state=state, file=file, log=str(log), why=why)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was said"


def to_dict(runs: Sequence[BatchRun], device: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "device": device,
        "ok": all(run.state in GOOD for run in runs),
        "runs": [asdict(run) for run in runs],
    }
