"""Starts the engines of a batch at once and measures them in turn."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tools.feature_loads.configs import ENGINES
from tools.power_samples import sampled
from tools.server_loads import HZ

START_S = 240.0


@dataclass(slots=True)
class _Started:
    name: str
    hold: Path
    process: subprocess.Popen[bytes]

    def ready(self) -> bool:
        return self.hold.with_suffix(".ready").exists()

    def ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def engines(names: Sequence[str], out: Path, logs: Path, more: Sequence[str]) -> Iterator[list[_Started]]:
    """Engines that start at once, each the first of a process group that ends with the block."""
    started = []
    try:
        for name in names:
            hold = logs / name
            command = [sys.executable, "-m", "tools.feature_loads", name, str(out / f"{name}.json.gz")]
            with (logs / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*command, "--hold", str(hold), *more], stdout=log, stderr=log, start_new_session=True
                )
            started.append(_Started(name, hold, process))
        yield started
    finally:
        for one in started:
            _kill(one)


def _kill(one: _Started) -> None:
    try:
        os.killpg(one.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    one.process.wait()


def run_batch(names: Sequence[str], out: Path, budget_s: float, more: Sequence[str], power: bool) -> None:
    """Start engines at once, measure them in turn, and end within the time."""
    begin = time.monotonic()
    end = begin + budget_s
    out.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(prefix="gnomon-loads-"))
    samples = sampled(logs / "power.csv", HZ) if power else nullcontext()
    try:
        with engines(names, out, logs, more) as started, samples:
            limit = min(begin + START_S, end)
            while time.monotonic() < limit and not all(one.ready() or one.ended() for one in started):
                time.sleep(0.2)
            print(f"started after {time.monotonic() - begin:.0f} s: {[one.name for one in started if one.ready()]}")
            for place, one in enumerate(started):
                later = [other for other in started[place + 1 :] if not other.ended()]
                _measured_one(one, end - sum(ENGINES[other.name].takes_s for other in later), end)
                print(f"{one.name}: done {time.monotonic() - begin:.0f} s after the start", flush=True)
                print("\n".join(_told(logs / f"{one.name}.log")), flush=True)
    finally:
        _pack(logs, out)


def _measured_one(one: _Started, until: float, end: float) -> None:
    """Let an engine on, and wait for its end; one that is late to end is ended."""
    while not one.ready() and not one.ended() and time.monotonic() < until - 30:
        time.sleep(0.2)
    if one.ready():
        going = one.hold.with_suffix(".part")
        going.write_text(str(until))
        going.rename(one.hold.with_suffix(".go"))
        while not one.ended() and time.monotonic() < min(until + 20, end):
            time.sleep(0.2)
    _kill(one)


def _told(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line[:300] for line in lines if " requests in " in line or "started in" in line or "out of time" in line]
    return told if len(told) > 1 else [*told, *(line[:300] for line in lines[-25:])]


def _pack(logs: Path, out: Path) -> None:
    power = logs / "power.csv"
    if power.exists():
        with power.open("rb") as file, gzip.open(out / "power.csv.gz", "wb") as packed:
            shutil.copyfileobj(file, packed)
    with tarfile.open(out / "logs.tar.gz", "w:gz") as packed_logs:
        for log in sorted(logs.glob("*.log")):
            packed_logs.add(log, log.name)
