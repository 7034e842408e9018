"""CPU time of whole commands: user and system time of a fresh process, with a warm file cache and .pyc files, against
its target. Short commands run ten times, plans twice; the minimum counts, as it is least disturbed by other processes.

python bench/commands.py [--json]
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile

CLI = f"{shlex.quote(sys.executable)} -m gnomon"
SHORT, LONG = 10, 2
CASES = (
    ("import gnomon", f"{shlex.quote(sys.executable)} -c 'import gnomon'", 0.05, SHORT),
    ("help", f"{CLI} --help", 0.25, SHORT),
    ("predict", f"{CLI} predict llama-3.1-8b --on H100 --phase decode --batch 32 --context 1024", 0.45, SHORT),
    (
        "plan serve, cheapest",
        f"{CLI} plan serve llama-3.1-70b --fleet H100:16 --rate 8 --input 1024 --output 256"
        " --slo ttft_p90=1s,tpot_p90=50ms",
        2.5,
        LONG,
    ),
    (
        "plan serve, highest throughput",
        f"{CLI} plan serve llama-3.1-70b --fleet H100:8 --input 4000 --output 1000 --slo ttft_p90=1s,tpot_p90=40ms"
        " --dtype fp8",
        6.0,
        LONG,
    ),
    (
        "plan train, GPT-3 on 1,024 A100",
        f"{CLI} plan train gpt3-175b --cluster A100-SXM-80GB:1024 --seq 2048 --global-batch 1536 --tokens 300e9",
        1.5,
        LONG,
    ),
    (
        "plan train, DeepSeek-V3 on 2,048 H800",
        f"{CLI} plan train deepseek-v3 --cluster H800:2048 --seq 4096 --global-batch 15360 --tokens 1e12 --dtype fp8",
        20.0,
        LONG,
    ),
)
"""Name, command, target in seconds, runs."""


def cpu_s(command: str, compiled: str) -> float:
    """User and system seconds of a process, which must succeed; `compiled` is a folder for .pyc files."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"GNOMON_HOME": home, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        words = shlex.split(command)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        assert process.stderr is not None
        talk = process.stderr.read().decode()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed: {talk.strip()}")
    return usage.ru_utime + usage.ru_stime


def measure() -> list[dict[str, object]]:
    """The cases with their minimum time and target; one warm-up run each fills the disk cache and the .pyc files."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as compiled:
        for name, command, target, runs in CASES:
            cpu_s(command, compiled)
            seconds = min(cpu_s(command, compiled) for _ in range(runs))
            found.append({"case": name, "cpu_s": round(seconds, 4), "target_s": target, "met": seconds <= target})
    return found


def main() -> int:
    cases = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps({"schema": "gnomon.bench.commands/1", "cases": cases}, indent=2))
    else:
        for case in cases:
            verdict = "ok" if case["met"] else "TOO SLOW"
            print(f"{case['case']:<38} {case['cpu_s']:7.3f} s CPU   target {case['target_s']:5.2f} s   {verdict}")
    return 0 if all(case["met"] for case in cases) else 1


if __name__ == "__main__":
    raise SystemExit(main())
