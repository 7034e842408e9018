"""Fits what LoRA adapters and n-gram drafts cost under vLLM: `python -m tools.feature_overheads FIRST HOST...` prints
the figures of `src/gnomon/engines/vllm/features.yaml`.

FIRST has base.json.gz, lora-4.json.gz and lora-8.json.gz of tools/feature_loads. Device figures are least squares
on static batches: what a decode step, and one of 8,192 tokens of prompts, takes beside the same without adapters.
Copies and reads of adapters are from first tokens of single requests whose adapter was in a slot, in the host's memory
or on disk. Each HOST has host-base.json.gz and host-lora-4.json.gz of the batch `host`. Launches are what the worker
noted of steps beyond the captured sizes (tools/host_times.py); where it noted none, they are from steps before one with
a prompt, whose outputs wait until that one is launched, with adapters after the step itself. The hosts differ: the
figure is their geometric mean, FIRST's among them, with its spread. Folders of `part: check` are for `gnomon accuracy`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.cost.adapters import AdapterCost
from gnomon.cost.drafting import DraftCost
from gnomon.cost.step import variant_of
from gnomon.engines.vllm.lora import adapter_bytes, adapter_cost
from gnomon.load import model, parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Strategy

FULL = 8192
CAPTURED = 512
"""Tokens of the largest captured step of these engines."""
DEVICE_BOUND = 100
"""Sequences from which on the device takes longer than the host's launches."""
LEAST = 10
"""Launches that a median is taken of."""
STAGES = ("queued_us", "scheduled_us", "made_us", "first_us")
DEVICE = ("launch_s", "tile_s", "read_s")
Data = Mapping[str, Any]


def loads(data: Data, name: str, adapters: bool | None = None) -> Iterator[Data]:
    for load in data["loads"]:
        asked = bool(load.get("each", {}).get("adapter"))
        if load["name"] == name and not load.get("error") and adapters in (None, asked):
            yield load


def decode_us(load: Data) -> float:
    """The median step in which all requests decode, and did before."""
    steps = load["steps"]
    outputs, prompts = np.array(steps["outputs"]), np.array(steps["prompts"])
    alone = (outputs == load["requests"]) & (prompts == 0)
    alone[1:] &= alone[:-1]
    return float(np.median(np.array(steps["core_us"])[alone]))


def prompt_us(load: Data) -> float:
    """The median step of 8,192 tokens of prompts after one such."""
    steps = load["steps"]
    full = np.array(steps["prompt_tokens"]) == FULL
    full[1:] &= full[:-1]
    full[0] = False
    return float(np.median(np.array(steps["core_us"])[full]))


def first_us(load: Data, place: int = 0) -> float:
    each = load["each"]
    return float(sum(np.broadcast_to(np.array(each[name]), load["requests"])[place] for name in STAGES))


def between_us(load: Data) -> tuple[float, float]:
    """The median step, and the median of those whose outputs waited until one with a prompt was launched."""
    steps = load["steps"]
    prompts, taken = np.array(steps["prompts"]), np.array(steps["core_us"])
    before = np.append(prompts[1:] == 1, False) & (prompts == 0)
    return float(np.median(taken[prompts == 0])), float(np.median(taken[before]))


def device_rows(base: Data, others: list[Data]) -> Iterator[tuple[int, int, float]]:
    """Tokens, adapters and the seconds that they add."""
    plain = {load["requests"]: load for load in loads(base, "static", False)}
    for other in others:
        for load in loads(other, "static", True):
            count = load["requests"]
            adapters = len(set(np.atleast_1d(load["each"]["adapter"]).tolist()))
            yield count, adapters, (decode_us(load) - decode_us(plain[count])) * 1e-6
            if count >= 128:
                yield FULL, adapters, (prompt_us(load) - prompt_us(plain[count])) * 1e-6


def fitted(cost: AdapterCost, rows: list[tuple[int, int, float]]) -> AdapterCost:
    """The device's figures, each row with the same weight by its logarithm."""
    zeros: dict[str, Any] = dict.fromkeys(DEVICE, 0.0)
    none = replace(cost, **zeros)
    fixed = np.array([none.work(tokens, adapters)[0] for tokens, adapters, _ in rows])
    seconds = np.array([row[2] for row in rows])
    ones: list[dict[str, Any]] = [zeros | {name: 1.0} for name in DEVICE]
    parts = [[replace(none, **one).work(tokens, adapters)[0] for one in ones] for tokens, adapters, _ in rows]
    slopes = np.array(parts) - fixed[:, None]
    found = np.linalg.lstsq(slopes / seconds[:, None], (seconds - fixed) / seconds, rcond=None)[0]
    fit: dict[str, Any] = {name: float(max(value, 0.0)) for name, value in zip(DEVICE, found, strict=True)}
    return replace(cost, **fit)


def launch_us(data: Data) -> float:
    """The median launch of a step with prompts that is beyond the captured sizes, without the wait for the device."""
    noted = [load["host"] for load in data["loads"] if load.get("rate_per_s") and load.get("host")]
    found = [
        taken - waited
        for host in noted
        for taken, waited, tokens in zip(host["execute_us"], host["lora_us"], host["tokens"], strict=True)
        if tokens > CAPTURED
    ]
    if len(found) >= LEAST:
        return float(np.median(found))
    step, before = between_us(next(loads(data, "plain")))
    return before - step if data["adapters"] else before


def host_figures(pairs: Sequence[tuple[Data, Data]], groups: int) -> dict[str, float]:
    """Of a launch, on hosts that were measured without adapters and with them."""
    each = [(launch_us(adapted) - launch_us(plain)) / groups for plain, adapted in pairs]
    print(f"# host_us of each host: {', '.join(f'{one:.0f}' for one in each)}")
    return {"host_us": float(np.exp(np.log(each).mean())), "host_spread": float(np.log(each).std(ddof=1))}


def copy_figures(few: Data, many: Data, size: float) -> dict[str, float]:
    """Of loading an adapter: a request alone whose adapter is in a slot, in memory, and on disk."""
    slot, memory = (first_us(next(loads(data, "static"))) for data in (few, many))
    copied = memory - slot
    cold = next(loads(few, "cold"))
    disk = float(np.median([first_us(cold, place) for place in range(cold["requests"])]))
    read = disk - copied - decode_us(next(loads(few, "static")))  # a short prompt is as long as a decode step
    return {"copy_bytes_s": size / (copied * 1e-6), "read_bytes_s": size / (max(read, 1.0) * 1e-6)}


def draft_rows(data: Data) -> Iterator[tuple[int, bool, float, float]]:
    """Of static batches: sequences, whether drafts were found and all accepted or none was found, seconds of a step,
    and those of the tokens that it verifies."""
    drafts = data["arguments"]["speculative_config"]
    given = {"max_model_len": 16384, "speculative_method": "ngram_gpu"}
    given |= {"num_speculative_tokens": drafts["num_speculative_tokens"]}
    engine, deployment = deploy(model(data["model"]), parse_pool("H200"), dtype="bf16", settings=given)
    free = replace(engine.step_model(deployment), drafting=DraftCost(drafts=drafts["num_speculative_tokens"]))
    cost = free.table(max_context=4096, max_tokens=8192, max_sequences=256)
    for load in loads(data, "static"):
        count, steps = load["requests"], {name: np.array(column) for name, column in load["steps"].items()}
        found = bool(load["accepted_at"][0])
        alone = (steps["outputs"] == count) & (steps["prompts"] == 0)
        alone &= steps["accepted"] == (steps["drafted"] if found else 0)
        if alone.sum() < 5:
            continue
        curve = cost.decode_curve(count) if found else cost.varied_curve(count, 1.0, variant_of(0, count))
        ours = float(np.interp(1024 + 64, curve.context, curve.seconds))
        yield count, found, float(np.median(steps["core_us"][alone])) * 1e-6, ours


def draft_figures(rows: Sequence[tuple[int, bool, float, float]]) -> Iterator[tuple[str, float]]:
    """Of n-gram lookup: what steps take beyond the tokens that they verify, and the least that one takes where no draft
    was found."""
    device = [row for row in rows if row[1] or row[0] >= DEVICE_BOUND]
    ones = np.array([[1.0, row[0]] for row in device])
    seconds, ours_s = (np.array([row[at] for row in device]) for at in (2, 3))
    base, each = np.linalg.lstsq(ones / seconds[:, None], (seconds - ours_s) / seconds, rcond=None)[0]
    ragged = float(np.exp(np.mean([np.log(row[2]) for row in rows if row not in device and row[0] > 1])))
    for count, found, measured, ours in rows:
        predicted = max(ours + base + each * count, 0.0 if found else ragged)
        told = "accepted" if found else "missing"
        print(f"# {count} sequences, drafts {told}: {measured * 1e3:.2f} ms, {predicted / measured - 1:+.1%}")
    yield from {"base_us": 1e6 * base, "sequence_us": 1e6 * each, "ragged_us": 1e6 * ragged}.items()


def _read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the measurements of the first batch are")
    parser.add_argument("host", type=Path, nargs="+", help="where those of the batch `host` are")
    parser.add_argument("--drafts", type=Path, nargs="+", help="ngram.json.gz of the second, host-ngram.json.gz")
    asked = parser.parse_args()
    folder = asked.folder
    base, few, many = (_read(folder / f"{name}.json.gz") for name in ("base", "lora-4", "lora-8"))
    pairs = [(base, few)]
    for host in asked.host:
        pairs.append((_read(host / "host-base.json.gz"), _read(host / "host-lora-4.json.gz")))
    network, settings = model(base["model"]), {"enable_lora": True, "max_loras": 4, "max_model_len": 16384}
    _, deployment = deploy(network, parse_pool("H200"), dtype="bf16", settings=settings)
    cost = adapter_cost(deployment)
    assert cost is not None
    rows = list(device_rows(base, [few, many]))
    found = fitted(cost, rows)
    for tokens, adapters, seconds in rows:
        ours = found.work(tokens, adapters)[0]
        print(f"# {tokens} tokens, {adapters} adapters: {seconds * 1e3:.2f} ms, {ours / seconds - 1:+.1%}")
    groups = sum(group.times for group in cost.layers)
    size = adapter_bytes(network, Strategy(), cost.rank)
    figures = {f"{name[:-2]}_us": getattr(found, name) * 1e6 for name in DEVICE}
    figures |= host_figures(pairs, groups) | copy_figures(few, many, size)
    for name, value in figures.items():
        print(f"    {name}: {value:.4g}" if value < 1e6 else f"    {name}: {value:.3e}")
    if asked.drafts:
        for name, value in draft_figures([row for path in asked.drafts for row in draft_rows(_read(path))]):
            print(f"    {name}: {value:.4g}")


if __name__ == "__main__":
    main()
