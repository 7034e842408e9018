"""What vLLM's host adds to steps and requests, read off server loads: `python -m tools.host_steps FOLDER`.

For every server-*.json of tools/server_loads.py prints, from the records of steps and requests: the time between
outputs of decode steps by sequences; that in which a step with prompts was launched, captured or kernel by kernel, by
sequences and prompts; what an output takes from the engine's core to the client by how many leave together; processor
seconds of the front end by request, step and output; and per load the stages of a request beside those simulated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.governor_steps import text_of

from gnomon.calibrate.overheads import fit_front
from gnomon.calibrate.server_rows import STAGES, column, server_rows
from gnomon.engines import Engine
from gnomon.engines.base import Deployment
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import simulate
from gnomon.spec import EngineChoice, Requests, Strategy


def step_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in sorted((row for row in rows if row["kind"] == "decode"), key=lambda row: row["sequences"]):
        yield f"  decode, {row['sequences']:4d} sequences: {row['time_s'] * 1e3:6.2f} ms"
    launches = [row for row in rows if row["kind"] == "launch"]
    for row in sorted(launches, key=lambda row: (row["time_s"] > 0.012, row["sequences"], row["prompts"])):
        inside = f"{row['sequences']:4d} sequences, {row['prompts']:3d} prompts of {row['tokens']:5d} tokens"
        before = f"{row['before_sequences']} sequences and {row['before_tokens']} prompt tokens"
        yield f"  launch, {inside}: {row['time_s'] * 1e3:6.2f} ms ({row['steps']} steps, after {before})"
    for row in (row for row in rows if row["kind"] == "egress"):
        yield f"  to the client, {row['sequences']:4d} outputs at once: {row['egress_s'] * 1e3:6.2f} ms"
    found = fit_front(rows)
    if found:
        yield "  front end, microseconds: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items())


def deployed(found: Mapping[str, Any], chip: str) -> tuple[Engine, Deployment]:
    model, settings = load_model(found["model"]), {"front_end": "in_process"}
    settings["max_model_len"] = found["settings"]["max_model_len"]
    dtype = found["quantization"] or model.dtype
    choice = EngineChoice(name="vllm", settings=settings)
    return deploy(model, parse_pool(chip), strategy=Strategy(), dtype=dtype, kv_dtype=model.dtype, engine=choice)


def stage_lines(found: Mapping[str, Any], chip: str) -> Iterator[str]:
    """Medians in milliseconds, measured and simulated: until it is scheduled, until its first token is made, TTFT."""
    engine, deployment = deployed(found, chip)
    cost = engine.step_cost(deployment)
    limits = replace(engine.limits(deployment), kv_blocks=found["settings"]["kv_blocks"])
    for load in found["loads"]:
        arrival = (column(load, "arrival_us") * 1e-6).astype(np.float64)
        prompt, output = (column(load, f"{name}_tokens") for name in ("input", "output"))
        run = simulate(Requests(arrival, prompt, output), cost, limits)
        stages = {name: np.median(column(load, name)) / 1e3 for name in STAGES}
        first = np.median(sum((column(load, name) for name in STAGES), np.zeros(load["requests"]))) / 1e3
        ours = [np.median(each) * 1e3 for each in (run.queue_s, run.first_token_s - run.scheduled_s, run.ttft_s)]
        about = " ".join(f"{name} {load[name]:g}" for name in ("count", "rate_per_s", "cv") if name in load)
        queued, scheduled, made, left = stages.values()
        measured = f"queued {queued:.2f}, scheduled {scheduled:.2f}, made {made:.2f}, first {left:.2f}"
        simulated = f"simulated {ours[0]:.2f}, {ours[1]:.2f}, TTFT {ours[2]:.2f}"
        yield f"  {load['name']} {about}: {measured}, TTFT {first:.2f}; {simulated}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the measurements are")
    parser.add_argument("--on", default="h200", help="the chip they were made on")
    asked = parser.parse_args()
    for path in sorted(asked.folder.glob("server-*.json*")):
        found = json.loads(text_of(asked.folder, f"{path.name.split('.json')[0]}.json"))
        print(f"{path.name}: {found['model']}, model runner {found['settings']['model_runner']}")
        rows = server_rows(found["model"], found["loads"], max(found["settings"]["capture_sizes"]))
        for line in (*step_lines(rows), *stage_lines(found, asked.on)):
            print(line)


if __name__ == "__main__":
    main()
