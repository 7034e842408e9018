"""Time and memory of large loads: a million requests of a trace through the command line, ten million as columns.

    python bench/sim_scale.py [--requests 1000000] [--columns 10000000]

The trace is drawn (lognormal lengths with a long tail, a thousand prefixes by Zipf's law, sessions of four turns for a
part of it), written as CSV, and served by `gnomon simulate serve --trace FILE`. Each part runs in a process of its own,
whose CPU seconds and largest memory are printed. Nothing is asserted but that it runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gnomon.spec import Requests, ServingLoad
from gnomon.spec.drawing import draw
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.popularity import SharedPrefix

MODEL, CHIP = "llama-3.1-8b", "H200"
INPUT, OUTPUT = "lognormal:mean=600,cv=2,max=12000", "lognormal:mean=120,cv=1.5,max=2000"
PREFIX = "groups=1000,tokens=512,zipf=1"
RATE = 20.0
TURNS = 4
ROWS = 200_000
"""Lines that are written at once."""


def drawn(count: int, turns: int = 1) -> Requests:
    return draw(
        ServingLoad(
            rate_per_s=RATE,
            input_tokens=lengths_of(INPUT, "--input"),
            output_tokens=lengths_of(OUTPUT, "--output"),
            requests=count,
            prefix=SharedPrefix.read(PREFIX, "--prefix"),
            turns=turns,
            think_s=5.0 if turns > 1 else 0.0,
        )
    )


def write_trace(file: Path, count: int) -> None:
    """Requests that share prefixes, in order of arrival."""
    load = drawn(count)
    assert load.prefixes is not None
    columns = [load.arrival_s, load.input_tokens, load.output_tokens, load.prefixes.node]
    with file.open("w") as out:
        out.write("arrival_s,input_tokens,output_tokens,prefix_group,prefix_tokens\n")
        for first in range(0, count, ROWS):
            part = np.column_stack([column[first : first + ROWS] for column in columns])
            np.savetxt(out, part, "%.6f,%d,%d,p%d,512")


def measured(name: str, command: list[str], count: int) -> None:
    """Run a command and print what it took."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{name:46} {wall:7.1f} s  {cpu:7.1f} CPU-s  {count / cpu:9,.0f} requests/CPU-s  "
        f"{used.ru_maxrss / 1024:7,.0f} MiB{'' if status == 0 else '  FAILED'}",
        flush=True,
    )


def part(name: str, count: int) -> None:
    """One of the parts that need no command line."""
    if name == "draw":
        drawn(count)
    elif name == "sessions":
        drawn(count, TURNS)
    elif name == "serve":
        from gnomon.load import model, parse_pool
        from gnomon.load.deployments import deploy
        from gnomon.sim.serving import simulate

        engine, replica = deploy(model(MODEL), parse_pool(CHIP), settings={"max_model_len": 16384})
        simulate(drawn(count), engine.step_cost(replica), engine.limits(replica))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=10_000_000)
    parser.add_argument("--part", nargs=2, metavar=("NAME", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part(options.part[0], int(options.part[1]))
        return 0
    if options.requests:
        with tempfile.TemporaryDirectory() as folder:
            trace, out = Path(folder) / "trace.csv", Path(folder) / "out.csv"
            write_trace(trace, options.requests)
            base = [sys.executable, "-m", "gnomon", "simulate", "serve", MODEL, "--on", CHIP]
            base += ["--set", "max_model_len=16384", "--trace", str(trace), "--json"]
            measured(f"{options.requests:,} requests, simulate serve --trace", base, options.requests)
            measured("the same with --requests-out", [*base, "--requests-out", str(out)], options.requests)
    for name in ("draw", "sessions", "serve") if options.columns else ():
        command = [sys.executable, __file__, "--part", name, str(options.columns)]
        measured(f"{options.columns:,} requests: {name}", command, options.columns)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
