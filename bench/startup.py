"""CPU time of a cold start: user and system time of a fresh process, the least of ten with a warm file cache and .pyc
files, against its target.

python bench/startup.py [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

RUNS = 10
CLI = [sys.executable, "-m", "gnomon"]
STEP = ["predict", "llama-3.1-8b", "--on", "H100", "--phase", "decode", "--batch", "32", "--context", "1024"]
CASES = (
    ("import gnomon", [sys.executable, "-c", "import gnomon"], 0.05),
    ("gnomon --help", [*CLI, "--help"], 0.25),
    ("gnomon predict", [*CLI, *STEP], 0.45),
)


def cpu_s(command: list[str], compiled: str) -> float:
    """User and system seconds of a process, which must succeed; `compiled` is a folder for .pyc files."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"GNOMON_HOME": home, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        assert process.stderr is not None
        talk = process.stderr.read().decode()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {talk.strip()}")
    return usage.ru_utime + usage.ru_stime


def measure() -> list[dict[str, object]]:
    """The cases with their least time and target; one unmeasured run each fills the disk cache and the .pyc files."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as compiled:
        for name, command, target in CASES:
            cpu_s(command, compiled)
            seconds = min(cpu_s(command, compiled) for _ in range(RUNS))
            found.append({"case": name, "cpu_s": round(seconds, 4), "target_s": target, "met": seconds <= target})
    return found


def main() -> int:
    cases = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps({"schema": "gnomon.bench.startup/1", "cases": cases}, indent=2))
    else:
        for case in cases:
            verdict = "ok" if case["met"] else "TOO SLOW"
            print(f"{case['case']:<16} {case['cpu_s']:.3f} s CPU   target {case['target_s']:.2f} s   {verdict}")
    return 0 if all(case["met"] for case in cases) else 1


if __name__ == "__main__":
    raise SystemExit(main())
