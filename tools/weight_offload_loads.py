"""vLLM with weights in host memory, one H200: `python -m tools.weight_offload_loads OUT`.

Needs a GPU, vLLM 0.24 and 70 GB of host memory; starts five engines at once with dummy weights (tools/feature_loads.py
says how) and measures them in turn, all in under six minutes. Both models run on vLLM's first model runner, the only
one of 0.24 that offloads weights:

qwen2.5-7b    uva-4, uva-8        `cpu_offload_gb` 4 and 8: kernels read these weights over the host link
              prefetch            the last of every four layers, copied one layer ahead on a stream of its own
qwen2.5-14b   uva-8-14b           `cpu_offload_gb` 8
              prefetch-14b        the last two of every eight layers, two layers ahead

Each engine gets one prompt of 2,048 tokens, then static batches of 1, 8 and 64 sequences; the first and the third also
short requests that arrive by Poisson. OUT gets ENGINE.json.gz as its loads end and the engines' output (logs.tar.gz).
`tools/weight_offload_accuracy.py OUT` sets predictions beside them.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.feature_loads import FREE, Bench, FeatureRunner, Maker
from tools.server_loads import end_engine

from gnomon.engines.vllm.runner import versions
from gnomon.load import config_of

MAX_MODEL_LEN, KV_GIB = 8192, 3.0
BATCHES = ((1, (2048, 24)), (8, (512, 24)), (64, (256, 24)))
"""Sequences, and their tokens in and out."""
POISSON_PER_S, POISSON_COUNT, POISSON = 3.0, 30, (512, 24)
START_S, SLACK_S = 230.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloading:
    """One engine and what it keeps on the host."""

    model: str
    arguments: Mapping[str, Any]
    takes_s: float
    """About how long its loads take at 50 GB/s; what is left of the time is shared out by it."""
    poisson: bool = False


def _uva(gib: float) -> dict[str, Any]:
    return {"offload_backend": "uva", "cpu_offload_gb": gib}


def _prefetch(group: int, of_group: int, ahead: int) -> dict[str, Any]:
    sizes = {"offload_group_size": group, "offload_num_in_group": of_group, "offload_prefetch_step": ahead}
    return {"offload_backend": "prefetch", **sizes}


SMALL, LARGE = "qwen2.5-7b", "qwen2.5-14b"
ENGINES = {
    "uva-4": Offloading(model=SMALL, arguments=_uva(4.0), takes_s=26.0, poisson=True),
    "prefetch": Offloading(model=SMALL, arguments=_prefetch(4, 1, 1), takes_s=24.0, poisson=True),
    "prefetch-14b": Offloading(model=LARGE, arguments=_prefetch(8, 2, 2), takes_s=16.0),
    "uva-8": Offloading(model=SMALL, arguments=_uva(8.0), takes_s=22.0),
    "uva-8-14b": Offloading(model=LARGE, arguments=_uva(8.0), takes_s=22.0),
}


def measure(name: str, out: Path, hold: Path) -> None:
    """Start one engine, say so, wait to be let on, and run its loads until the time that it is then told."""
    engine = ENGINES[name]
    config = config_of(engine.model)
    given = {
        "max_model_len": MAX_MODEL_LEN, "dtype": "bfloat16", "enable_prefix_caching": True,
        "kv_cache_memory_bytes": int(KV_GIB * 2**30), "gpu_memory_utilization": FREE, **engine.arguments,
    }  # fmt: skip
    runner = FeatureRunner(config, dict(given))
    facts = {
        "schema": "gnomon.feature-loads/1", "engine": "vllm", "date": time.strftime("%Y-%m-%d"), "name": name,
        "versions": versions(), "host": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "model": engine.model, "arguments": given, "settings": runner.settings(), "gpu_mib": _gpu_mib(),
    }  # fmt: skip
    print(f"{name} started in {runner.startup_s:.0f} s: {facts['settings']}", file=sys.stderr, flush=True)
    hold.with_suffix(".ready").touch()
    going = hold.with_suffix(".go")
    while not going.exists():
        time.sleep(0.1)
    bench = Bench(runner, Maker(int(config["vocab_size"])), facts, out, float(going.read_text()))
    runner.send(bench.make.plain("warm", 0.0, 16, (300, 6)), 60.0)
    for count, lengths in BATCHES:
        bench.run(bench.make.plain(f"static-{count}", 0.0, count, lengths))
    if engine.poisson:
        bench.run(bench.make.plain("poisson", POISSON_PER_S, POISSON_COUNT, POISSON))


def _gpu_mib() -> str:
    """Memory in use on the card as NVML has it, all processes together."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        return ""


def run_batch(names: list[str], out: Path, budget_s: float) -> None:
    """Start engines at once, measure them in turn, and end within the time."""
    end = time.monotonic() + budget_s
    out.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(prefix="gnomon-loads-"))
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            command = [sys.executable, "-m", "tools.weight_offload_loads", str(out), "--engine", name]
            with (logs / f"{name}.log").open("wb") as log:
                hold = ["--hold", str(logs / name)]
                started[name] = subprocess.Popen([*command, *hold], stdout=log, stderr=log, start_new_session=True)
        limit = min(time.monotonic() + START_S, end)
        while time.monotonic() < limit and not all(_ready(logs, name) or _ended(one) for name, one in started.items()):
            time.sleep(0.2)
        print(f"started: {[name for name in started if _ready(logs, name)]}", flush=True)
        for place, name in enumerate(names):
            later = sum(ENGINES[other].takes_s for other in names[place + 1 :] if not _ended(started[other]))
            _let_on(logs / name, started[name], end - later - SLACK_S, end)
            told = (logs / f"{name}.log").read_text(errors="replace").splitlines()
            lines = [line[:300] for line in told if " requests in " in line or "started in" in line]
            print("\n".join(lines or [line[:300] for line in told[-25:]]), flush=True)
    finally:
        for one in started.values():
            _kill(one)
        with tarfile.open(out / "logs.tar.gz", "w:gz") as packed:
            for log_file in sorted(logs.glob("*.log")):
                packed.add(log_file, log_file.name)


def _ready(logs: Path, name: str) -> bool:
    return (logs / name).with_suffix(".ready").exists()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _let_on(hold: Path, process: subprocess.Popen[bytes], until: float, end: float) -> None:
    """Let an engine on, and wait for its end; one that is late is ended."""
    while not hold.with_suffix(".ready").exists() and not _ended(process) and time.monotonic() < until - 15:
        time.sleep(0.2)
    if hold.with_suffix(".ready").exists():
        part = hold.with_suffix(".part")
        part.write_text(str(until))
        part.rename(hold.with_suffix(".go"))
        while not _ended(process) and time.monotonic() < min(until + 10, end):
            time.sleep(0.2)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """An engine is the first of a process group of its own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the measurements")
    parser.add_argument("--only", default=",".join(ENGINES), help="engines, in order")
    parser.add_argument("--budget", type=float, default=340.0, help="seconds in all, the start counted in")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--hold", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engine is None:
        run_batch(asked.only.split(","), asked.out, asked.budget)
        return
    code = 1
    try:
        measure(asked.engine, asked.out / f"{asked.engine}.json.gz", asked.hold)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        end_engine()
        os._exit(code)


if __name__ == "__main__":
    main()
