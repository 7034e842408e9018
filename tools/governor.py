"""Clock, watts and rate against time under steps of load: `python -m tools.governor FOLDER`.

Needs torch and an NVIDIA GPU, and takes three and a half minutes. Work of many kinds starts from rest, is paused, is
alternated with other work, or runs for a share of the time. Three files are written, all on the machine's monotonic
clock: `governor.json` (the loads: kind, work of one call, calls of one piece, when it ran), `governor-pieces.csv` (end
and device seconds of every piece of some 8 ms) and `governor-power.csv` (NVML, see tools/power_samples.py). The card's
settings are left alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tools.power_loads import Work, attention, captured, decode, gemm, layer, mixed, stream
from tools.power_samples import Card, sampled

HZ = 50.0
REST_S = 1.5
IN_FLIGHT = 2
"""Pieces launched ahead, so that the GPU never waits for the host."""
Build = Callable[[Any], Work]


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one of a load's kinds of work; `duty` below 1 pauses after every piece; work None is rest."""

    seconds: float
    work: int | None = 0
    duty: float = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    builds: tuple[Build, ...]
    steps: tuple[Step, ...]


def _gemm(m: int, n: int = 8192, k: int = 8192, dtype: str = "bf16") -> Build:
    return lambda torch: gemm(torch, dtype, m, n, k)


def _stream(name: str, count: int = 1 << 28) -> Build:
    return lambda torch: stream(torch, name, count)


def _layer(tokens: int) -> Build:
    return lambda torch: layer(torch, tokens)


def _mixed(gemms: int, copies: int) -> Build:
    """One 8192-cube GEMM takes about as long as two copies of 1 GB."""
    return lambda torch: mixed(
        *[gemm(torch, "bf16", 8192, 8192, 8192)] * gemms, *[stream(torch, "copy", 1 << 28)] * copies
    )


def _waves(seconds: float, on: float, off: float, work: int | None = None) -> tuple[Step, ...]:
    return (Step(on), Step(off, work)) * round(seconds / (on + off))


BIG = _gemm(8192)


def loads() -> Iterator[Load]:
    """All loads, in the order in which they run."""
    rest = None
    yield Load("rest", (), (Step(1.0, rest),))
    pauses = (Step(1.0, rest), Step(4.0), Step(3.0, rest), Step(4.0), Step(0.3, rest), Step(3.0))
    yield Load("gemm 8192x8192x8192", (BIG,), (Step(14.0), *pauses))
    yield Load("gemm fp8 8192x8192x8192", (_gemm(8192, dtype="fp8"),), (Step(8.0),))
    yield Load("gemm 4096x4096x4096", (_gemm(4096, 4096, 4096),), (Step(5.0),))
    for rows in (32, 128, 512):
        yield Load(f"gemm {rows}x8192x8192", (_gemm(rows),), (Step(5.0),))
    yield Load("gemm fp8 128x8192x8192", (_gemm(128, dtype="fp8"),), (Step(4.0),))
    yield Load("decode bmm 64x4096", (decode,), (Step(5.0),))
    for name in ("copy", "sum", "norm"):
        yield Load(name, (_stream(name),), (Step(4.0),))
    yield Load("attention causal 4x4096", (lambda torch: attention(torch, 4, 32, 4096),), (Step(6.0),))
    for tokens in (4096, 256, 64):
        yield Load(f"layer {tokens} tokens", (_layer(tokens),), (Step(5.0),))
    for gemms, copies in ((1, 5), (3, 5), (1, 15)):
        yield Load(f"mixed {gemms} gemm {copies} copy", (_mixed(gemms, copies),), (Step(5.0),))
    both = (BIG, decode)
    yield Load("gemm, then decode, then gemm", both, (Step(4.0), Step(3.0, 1), Step(4.0)))
    yield Load("gemm and decode, 0.2 s each", both, _waves(6.0, 0.2, 0.2, 1))
    yield Load("gemm and decode, 20 ms each", both, _waves(5.0, 0.016, 0.016, 1))
    for duty in (0.75, 0.5, 0.25):
        yield Load(f"gemm {duty:.0%} of the time", (BIG,), (Step(4.0, duty=duty),))
    yield Load("gemm 1 s on, 1 s off", (BIG,), _waves(8.0, 1.0, 1.0))
    yield Load("gemm 0.25 s on, 0.25 s off", (BIG,), _waves(5.0, 0.25, 0.25))
    yield Load("gemm 8192x8192x8192 on a warm card", (BIG,), (Step(6.0),))


class Driver:
    """Runs loads and notes every piece of work as it ends."""

    def __init__(self, torch: Any, pieces: TextIO) -> None:
        self._torch = torch
        self._pieces = pieces
        pieces.write("load,step,work,end_s,device_s\n")

    def run(self, number: int, load: Load) -> dict[str, Any]:
        works = [build(self._torch) for build in load.builds]
        graphs = [captured(self._torch, work.call) for work in works]
        time.sleep(REST_S)
        begun = time.monotonic()
        steps = [self._step(number, i, step, graphs) for i, step in enumerate(load.steps)]
        return {
            "load": number, "name": load.name, "begin_s": round(begun, 4), "end_s": round(time.monotonic(), 4),
            "works": [
                {"flops": work.flops, "bytes": work.bytes, "cached_bytes": work.cached, "calls": 2 * many}
                for work, (_, many) in zip(works, graphs, strict=True)
            ],
            "steps": steps,
        }  # fmt: skip

    def _step(self, number: int, place: int, step: Step, graphs: Sequence[tuple[Any, int]]) -> dict[str, Any]:
        begun = time.monotonic()
        if step.work is None:
            time.sleep(step.seconds)
        else:
            self._drive(f"{number},{place},{step.work}", graphs[step.work][0], begun + step.seconds, step.duty)
        return {"begin_s": round(begun, 4), "work": step.work, "duty": step.duty}

    def _drive(self, label: str, graph: Any, until: float, duty: float) -> None:
        flight: deque[tuple[Any, Any]] = deque()
        ahead = IN_FLIGHT if duty == 1.0 else 1
        while True:
            going = time.monotonic() < until
            if going:
                flight.append(self._launch(graph))
            if not flight:
                return
            if len(flight) >= ahead or not going:
                start, end = flight.popleft()
                end.synchronize()
                took = start.elapsed_time(end) * 1e-3
                self._pieces.write(f"{label},{time.monotonic():.5f},{took:.7f}\n")
                if duty < 1.0:
                    time.sleep(took * (1 / duty - 1))

    def _launch(self, graph: Any) -> tuple[Any, Any]:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        graph.replay()
        end.record()
        return start, end


def facts(torch: Any) -> dict[str, Any]:
    return {
        "schema": "gnomon.governor/1",
        "date": time.strftime("%Y-%m-%d"),
        "versions": {
            "torch": str(torch.__version__),
            "cuda": str(torch.version.cuda),
            "python": platform.python_version(),
        },
        "gpu": torch.cuda.get_device_name(0),
        "limits_w": Card().limits_w(),
        "hz": HZ,
    }


def write(folder: Path) -> None:
    """Run all loads; what is done is on disk after every one of them."""
    import torch

    torch.zeros(1, device="cuda")
    found = facts(torch) | {"loads": []}
    with sampled(folder / "governor-power.csv", HZ), (folder / "governor-pieces.csv").open("w") as pieces:
        time.sleep(0.5)
        driver = Driver(torch, pieces)
        for number, load in enumerate(loads()):
            found["loads"].append(driver.run(number, load))
            torch.cuda.empty_cache()
            pieces.flush()
            (folder / "governor.json").write_text(json.dumps(found, indent=1) + "\n")
            print(load.name, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the three files are written")
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
