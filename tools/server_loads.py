"""vLLM's server path under loads, request by request and step by step: `python -m tools.server_loads MODEL OUT.json`.

Needs a GPU and vLLM; takes two minutes to start and five to measure. Starts vLLM with dummy weights as `vllm serve`
does (the asynchronous front end here, the engine core in a process of its own) and replays

bursts   short prompts all at once
rates    short requests at rising rates, up to beyond what front end or GPU sustain
beside   prompts that arrive beside a running decode batch
static   batches of 1,024 tokens in and 256 out, all at once
poisson  the same requests at 30, 60 and 85% of the saturation rate, which an overload measures first; one Gamma load

Every request has its arrival, when the scheduler saw it (queued), first scheduled it, had its first token (made), and
when this process had the first and the last one; every step of the engine core has its end, when the front end had its
outputs, and how many sequences, finished prompts, prompt tokens, running and waiting requests it had. Times are whole
microseconds. `begin_s` is on the monotonic clock that the NVML samples beside it (OUT.csv) are on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tools.power_samples import Card, sampled

from gnomon.calibrate.server_loads import Load, Recorded, arriving, bursts, rates, renewal, together
from gnomon.engines.replay import MeasuredRun
from gnomon.engines.vllm.runner import VllmRunner, versions
from gnomon.load import config_of
from gnomon.spec import Requests

HZ = 25.0
MAX_MODEL_LEN = 16384
SHARED = 0.05
"""Share of the memory that must be free where the size of the KV cache is given."""
LONG = (1024, 256)
"""Tokens in and out of the static and Poisson loads."""
SHARES = (0.6, 0.85, 0.3)
"""Of the saturation rate; the most telling first, should the time run out."""
OVERLOAD_S = 20.0
PARTS = ("bursts", "rates", "beside", "static", "poisson")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the command line asked for."""

    parts: Sequence[str]
    rates: Sequence[float]
    seconds: float
    around_per_s: float
    """Saturation rate as far as it is known before; the overload is half as much again."""
    saturation_per_s: float | None
    """Where it is known, no overload is run."""
    until_s: float
    """No load starts after this time of the monotonic clock."""


def beside() -> Iterator[Load]:
    """A decode batch, and prompts of five lengths in turn that arrive while all of it runs."""
    lengths = (64, 256, 1024, 2048, 4096) * 3
    for count in (16, 64, 192):
        at = 1.5 + 0.25 * np.arange(len(lengths))
        inputs = np.concatenate([np.full(count, 256), lengths]).astype(np.int64)
        outputs = np.concatenate([np.full(count, 560), np.full(len(lengths), 2)]).astype(np.int64)
        requests = Requests(np.concatenate([np.zeros(count), at]), inputs, outputs)
        yield Load(name="beside", requests=requests, about={"count": count})


def static() -> Iterator[Load]:
    for count in (32, 128, 256):
        yield Load(name="static", requests=together(count, *LONG), about={"count": count})


def poisson(saturation_per_s: float, seconds: float) -> Iterator[Load]:
    for share, cv in ((SHARES[0], 1.0), (SHARES[1], 1.0), (SHARES[0], 3.0), (SHARES[2], 1.0)):
        rate = round(share * saturation_per_s, 2)
        arrivals = renewal(rate, seconds, cv, round(100 * share + cv))
        about = {"rate_per_s": rate, "share": share, "cv": cv}
        yield Load(name="poisson" if cv == 1.0 else "gamma", requests=arriving(arrivals, *LONG), about=about)


def core_cpu_s() -> float:
    """Processor seconds of the engine's processes."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Bench:
    """One engine, and what was measured on it so far, kept on disk."""

    def __init__(self, runner: VllmRunner, facts: dict[str, Any], out: Path) -> None:
        self._runner, self._recorded, self._out = runner, Recorded(runner), out
        self._found = facts | {"loads": []}

    def run(self, load: Load) -> dict[str, Any]:
        core = core_cpu_s()
        row, run = self._recorded.run(load)
        row["core_cpu_s"] = round(core_cpu_s() - core, 3)
        self._found["loads"].append(row)
        self._out.write_text(json.dumps(self._found, separators=(",", ":")) + "\n")
        print(summary(row, run), file=sys.stderr, flush=True)
        return row

    def run_all(self, ask: Ask) -> None:
        self._runner.replay(together(32, 512, 32))
        self._runner.replay(together(256, 128, 8))
        for load in self._loads(ask):
            if time.monotonic() > ask.until_s:
                print("out of time", file=sys.stderr)
                return
            self.run(load)

    def _loads(self, ask: Ask) -> Iterator[Load]:
        makers = {"bursts": bursts, "rates": lambda: rates(ask.rates), "beside": beside, "static": static}
        for part in ask.parts:
            if part != "poisson":
                yield from makers[part]()
            else:
                yield from poisson(self._saturation(ask), ask.seconds)

    def _saturation(self, ask: Ask) -> float:
        """Requests per second that an overloaded engine finishes, its filling and draining counted in.

        Tokens per second while it is full would say less: prompts go first, and decodes catch up only at the end.
        """
        if ask.saturation_per_s is not None:
            return ask.saturation_per_s
        arrivals = renewal(1.5 * ask.around_per_s, OVERLOAD_S, 1.0, 7)
        load = Load(name="overload", requests=arriving(arrivals, *LONG), about={"rate_per_s": 1.5 * ask.around_per_s})
        row = self.run(load)
        return float(row["requests"] / row["wall_s"])


def summary(row: Mapping[str, Any], run: MeasuredRun) -> str:
    named = " ".join(f"{name} {row[name]:g}" for name in ("count", "rate_per_s", "cv") if name in row)
    tpot = f"{np.nanmedian(run.tpot_s) * 1e3:.2f}" if np.any(np.isfinite(run.tpot_s)) else "-"
    first, late = np.quantile(run.ttft_s, (0.5, 0.9)) * 1e3
    return (
        f"{row['name']} {named}: {row['requests']} requests in {row['wall_s']:.2f} s, "
        f"TTFT p50 {first:.1f} p90 {late:.1f} ms, TPOT p50 {tpot} ms, "
        f"{len(row['steps']['core_us'])} steps, processor {row['front_cpu_s']:.1f} and {row['core_cpu_s']:.1f} s"
    )


def wait_at(hold: Path) -> None:
    """Say that the engine runs, and wait to be let on: several engines can start at once and be measured in turn."""
    hold.with_suffix(".ready").touch()
    while not hold.with_suffix(".go").exists():
        time.sleep(0.1)


def end_engine() -> None:
    """An engine core that does not end by itself would keep the GPU's memory."""
    for child in multiprocessing.active_children():
        if child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model of the catalog, or a folder with its config.json")
    parser.add_argument("out", type=Path, help="file of the measurement; NVML's samples go beside it as .csv")
    parser.add_argument("--parts", default=",".join(PARTS), help="which loads, in order")
    parser.add_argument("--rates", default="25,50,100,200,300,400,600", help="requests per second of the part rates")
    parser.add_argument("--around", type=float, default=24.0, help="rough saturation rate, requests per second")
    parser.add_argument("--saturation", type=float, help="the saturation rate, where it is known: no overload is run")
    parser.add_argument("--seconds", type=float, default=40.0, help="arrivals of each Poisson load last this long")
    parser.add_argument("--budget", type=float, default=3600.0, help="no load starts later than this many seconds")
    parser.add_argument("--quantization", help="fp8: weights in fp8, made from dummy bf16 ones")
    parser.add_argument("--max-model-len", type=int, default=MAX_MODEL_LEN, help="longest request, in tokens")
    parser.add_argument("--kv-gib", type=float, help="size of the KV cache where engines share a card")
    parser.add_argument("--hold", type=Path, help="touch HOLD.ready once started, go on when HOLD.go exists")
    return parser


def _arguments(asked: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {"max_model_len": asked.max_model_len, "dtype": "bfloat16"}
    if asked.quantization:
        given["quantization"] = asked.quantization
    if asked.kv_gib:
        given |= {"kv_cache_memory_bytes": int(asked.kv_gib * 2**30), "gpu_memory_utilization": SHARED}
    return given


def main() -> None:
    asked = _parser().parse_args()
    runner = VllmRunner(config_of(asked.model), _arguments(asked))
    facts = {
        "schema": "gnomon.server-loads/1", "engine": "vllm", "date": time.strftime("%Y-%m-%d"), "versions": versions(),
        "host": f"{os.cpu_count()} cores, Python {platform.python_version()}", "limits_w": Card().limits_w(),
        "model": asked.model, "quantization": asked.quantization, "settings": runner.settings(),
    }  # fmt: skip
    print(f"{asked.model} started in {runner.startup_s:.0f} s", file=sys.stderr, flush=True)
    if asked.hold:
        wait_at(asked.hold)
    ask = Ask(
        parts=asked.parts.split(","),
        rates=[float(rate) for rate in asked.rates.split(",")],
        seconds=asked.seconds,
        around_per_s=asked.around,
        saturation_per_s=asked.saturation,
        until_s=time.monotonic() + asked.budget,
    )
    code = 1
    try:
        with sampled(asked.out.with_suffix(".csv"), HZ):
            Bench(runner, facts, asked.out).run_all(ask)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        end_engine()
        os._exit(code)


if __name__ == "__main__":
    main()
