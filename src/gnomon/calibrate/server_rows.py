"""Records of server loads as rows that overheads are fitted to: what steps took by what was in them, what requests
waited for, and what the front end's processor worked.

Asynchronous scheduling launches a step before it takes the outputs of the one before, so the time between the outputs
of two steps is the launch of the next one, or the device's work on the one that ends, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_STEPS = 5
"""A row is the median of so many steps at least."""
LEAST_REQUESTS = 20
TRIMMED = 0.05
BUSY = 128
"""Bursts of so many requests keep the front end busy."""
STAGES = ("queued_us", "scheduled_us", "made_us", "first_us")
Ints = NDArray[np.int64]


def column(load: Mapping[str, Any], name: str) -> Ints:
    """A column of a load's requests; one number stands for all."""
    value = load["each"][name]
    return np.full(load["requests"], value) if isinstance(value, int) else np.array(value)


def server_rows(model: str, loads: Sequence[Mapping[str, Any]], largest: int) -> list[dict[str, Any]]:
    """Rows of one model's loads; `largest` is the most tokens of a captured step."""
    steps = [*launch_rows(loads, largest), *decode_rows(loads, largest)]
    found = [*steps, *egress_rows(loads), *front_rows(loads), *load_rows(loads)]
    return [{"model": model} | row for row in found]


def steps_of(load: Mapping[str, Any]) -> NDArray[np.float64]:
    """Each step that followed another and was followed by one: seconds between outputs; sequences, prompts and prompt
    tokens of itself; the same of the next one."""
    steps = {name: np.array(values) for name, values in load["steps"].items()}
    ends, some = np.cumsum(steps["core_us"]) * 1e-6, steps["outputs"] > 0
    middle = np.flatnonzero(some[:-2] & some[1:-1] & some[2:]) + 1
    sizes = [steps[name] for name in ("outputs", "prompts", "prompt_tokens")]
    taken = ends[middle] - ends[middle - 1]
    return np.stack([taken, *(size[middle] for size in sizes), *(size[middle + 1] for size in sizes)], axis=1)


def decode_rows(loads: Sequence[Mapping[str, Any]], largest: int) -> Iterator[dict[str, Any]]:
    """Medians of alike captured decode steps that decode steps follow."""
    alike: dict[int, list[tuple[float, float, float]]] = {}
    for load in (load for load in loads if load["name"] in ("burst", "rate")):
        context = float(column(load, "input_tokens")[0] + column(load, "output_tokens")[0] / 2)
        for taken, sequences, before, _, _, prompts, _ in steps_of(load):
            if not (before or prompts) and sequences <= largest:
                alike.setdefault(int(np.log2(sequences)), []).append((sequences, context, taken))
    for steps in (np.median(steps, axis=0) for steps in alike.values() if len(steps) >= LEAST_STEPS):
        sequences, context, taken = steps.tolist()
        yield {"kind": "decode", "sequences": round(sequences), "context": context, "time_s": taken}


def launch_rows(loads: Sequence[Mapping[str, Any]], largest: int) -> Iterator[dict[str, Any]]:
    """Alike times between outputs in which a step with prompts was launched. Launches differ by a factor of two from
    one to the next, and a load goes on by their mean: that without the slowest and fastest twentieth is taken."""
    tables = [steps_of(load) for load in loads if load["name"] in ("burst", "rate", "poisson", "gamma")]
    table = np.concatenate(tables) if tables else np.zeros((0, 7))
    sequences, prompts, tokens = table.T[4:]
    captured = sequences - prompts + tokens <= largest
    alike: dict[tuple[int, ...], list[int]] = {}
    for at in np.flatnonzero(prompts > 0):
        sized = int(np.log2(sequences[at])), int(np.log2(prompts[at]))
        alike.setdefault((int(captured[at]), *sized), []).append(int(at))
    for steps in (steps for steps in alike.values() if len(steps) >= LEAST_STEPS):
        middle = np.median(table[steps], axis=0)
        low, high = np.quantile(table[steps, 0], (TRIMMED, 1 - TRIMMED))
        middle[0] = np.mean(np.clip(table[steps, 0], low, high))
        names = ("time_s", "before_sequences", "before_prompts", "before_tokens", "sequences", "prompts", "tokens")
        whole = dict(zip(names, (float(middle[0]), *(round(float(size)) for size in middle[1:])), strict=True))
        yield {"kind": "launch", "steps": len(steps)} | whole


def egress_rows(loads: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """From a step's end to the client, by how many outputs left together, where no requests held it up."""
    waits: dict[int, list[tuple[float, float]]] = {}
    for load in loads:
        core, outputs = np.cumsum(load["steps"]["core_us"]), np.array(load["steps"]["outputs"])
        made = sum((column(load, name) for name in ("arrival_us", *STAGES[:3])), np.zeros(load["requests"]))
        step = np.clip(np.searchsorted(core, made - 30), 0, len(core) - 1)
        for count, wait in zip(outputs[step], column(load, "first_us"), strict=True):
            if count:
                waits.setdefault(int(np.log2(count)), []).append((float(count), float(wait)))
    for each in (np.array(each) for _, each in sorted(waits.items()) if len(each) >= LEAST_REQUESTS):
        yield {
            "kind": "egress",
            "sequences": max(1, round(float(np.median(each[:, 0])))),
            "egress_s": float(np.quantile(each[:, 1], 0.25)) * 1e-6,
        }


def front_rows(loads: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Processor seconds of the front end on loads that keep it busy."""
    for load in loads:
        if load["name"] == "rate" or (load.get("count", 0) >= BUSY and load["name"] == "burst"):
            steps, outputs = len(load["steps"]["core_us"]), int(np.sum(load["steps"]["outputs"]))
            counts = {"requests": load["requests"], "steps": steps, "outputs": outputs}
            yield {"kind": "front", "cpu_s": load["front_cpu_s"], **counts}


def load_rows(loads: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Times to the first token of bursts, and of requests at a rate, with their arrivals."""
    for load in loads:
        if load["name"] not in ("burst", "rate"):
            continue
        first = sum((column(load, name) for name in STAGES), np.zeros(load["requests"])) * 1e-6
        middle, late = np.quantile(first, (0.5, 0.9)).tolist()
        sizes = {"tokens": int(column(load, "input_tokens")[0]), "output": int(column(load, "output_tokens")[0])}
        about = {"rate_per_s": load["rate_per_s"]} if load["name"] == "rate" else {}
        yield {"kind": load["name"], "requests": load["requests"], **about, **sizes, "ttft_s": middle, "p90_s": late}
