"""Fits what published logs say of DeepSpeed's versions, and reports on others.

    python -m tools.deepspeed_versions

Rows of `measurements/published/deepspeed/zero3.csv` whose part is `fit` set the share of ZeRO 3's collectives that
nothing overlaps with (0.14) and the bytes per second of gathers one parameter at a time (0.3); the others check them.
Copies of gradients to host memory (`copied_bytes` of a parameter, over the host's link) are added to backward passes:
the logs' weights have their states there. Steps of RoBERTa are of its parameters; its widths are not published, and
those of GPT-2 networks of the same sizes are taken.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from gnomon.engines.deepspeed import releases
from gnomon.papers.machines import cluster
from gnomon.papers.shapes import network

ROWS = Path(__file__).resolve().parents[1] / "measurements" / "published" / "deepspeed" / "zero3.csv"
LINK_GB_S = 55.0
"""Of MLP-Offload's host: PCIe 5.0, as DataStates' authors measure it on the same machine."""
ADAPTERS_GB_S = {"V100-SXM2-32GB": 12.5, "A100-SXM-40GB": 50.0}
"""Of a node of AWS's p3dn and p4d."""
Row = Mapping[str, str]


def rows(version: str, part: str) -> list[Row]:
    with ROWS.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if (row["version"], row["part"]) == (version, part)]


def _answer(row: Row) -> Any:
    size = {name: int(row[name]) for name in ("layers", "hidden", "heads", "kv_heads", "inner", "vocab", "seq")}
    mixer = {"kind": "attention", "heads": size["heads"], "kv_heads": size["kv_heads"]}
    mixer["head_dim"] = size["hidden"] // size["heads"]
    block = {"kind": "dense", "inner": size["inner"], "gated": row["gated"] == "1"}
    blocks = [{"count": size["layers"], "mixer": mixer, "ffn": block}]
    shape = network(row["id"], hidden=size["hidden"], vocab=size["vocab"], max_context=size["seq"], blocks=blocks)
    chips = int(row["chips"])
    pool = cluster(row["chip"], chips, int(row["per_node"]))
    if chips > int(row["per_node"]) and pool.node is not None:
        adapter = replace(pool.node.adapter, bandwidth_bytes_s=ADAPTERS_GB_S[row["chip"]] * 1e9 / pool.node.adapters)
        pool = replace(pool, node=replace(pool.node, adapter=adapter))
    return gnomon.simulate_training(
        shape, on=pool, seq=size["seq"], micro_batch=int(row["micro_batch"]), zero=3, recompute="full",
        global_batch=chips * int(row["micro_batch"]), dtype="bf16" if row["gated"] == "1" else "fp16",
        sequence_parallel=False, engine=f"deepspeed@{row['version']}",
    )  # fmt: skip


def predicted_s(row: Row) -> float:
    """The row's seconds under its version as it stands in `releases.py`."""
    answer = _answer(row)
    found = answer.step.figures
    if row["what"] == "step":
        return float(answer.step_time_s.value)
    forward = float((found.forward_s + found.first_forward_s + found.last_forward_s)[0])
    if row["what"].startswith("forward less"):
        return forward - _without_gathers(row)
    backward = float((found.backward_s + found.first_backward_s + found.last_backward_s)[0])
    copied = float(row["copied_bytes"] or 0) * float(found.own_parameters[0]) / (LINK_GB_S * 1e9)
    return forward if row["what"] == "forward" else backward + copied


def _without_gathers(row: Row) -> float:
    """Forward seconds with unsharded weights."""
    found = gnomon.simulate_training(
        _answer(row).step.job.model, on=cluster(row["chip"], int(row["chips"]), int(row["per_node"])),
        seq=int(row["seq"]), micro_batch=int(row["micro_batch"]), zero=2, recompute="full", dtype="fp16",
        global_batch=int(row["chips"]) * int(row["micro_batch"]), sequence_parallel=False,
        engine=f"deepspeed@{row['version']}",
    ).step.figures  # fmt: skip
    return float((found.forward_s + found.first_forward_s + found.last_forward_s)[0])


def errors(some: Sequence[Row]) -> np.ndarray:
    """Of logarithms, predicted over measured."""
    return np.array([np.log(predicted_s(row) / float(row["seconds"])) for row in some])


def tried(version: str, name: str, values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Values of one field of a version's sharded weights, each with the root mean square error of the rows to fit."""
    release, some = releases.BY_VERSION[version], rows(version, "fit")
    for value in values:
        change: Any = {name: value}
        sharded = replace(release.sharded_weights, **change)
        releases.BY_VERSION[version] = replace(release, sharded_weights=sharded)
        yield float(value), float(np.sqrt((errors(some) ** 2).mean()))
    releases.BY_VERSION[version] = release


def main() -> None:
    for version, name, values in (
        ("0.14", "exposed", np.linspace(0.5, 1.0, 26)),
        ("0.3", "software_bytes_s", np.geomspace(15e9, 45e9, 13)),
    ):
        best, error = min(tried(version, name, list(values)), key=lambda pair: pair[1])
        print(f"{version}: {name} {best:.3g}, root mean square of the errors on the rows to fit {error:.1%}")
        for part in ("fit", "check"):
            for row, found in zip(some := rows(version, part), errors(some), strict=True):
                measured = float(row["seconds"])
                print(f"  {part:5} {row['id']:22} {row['what']:10} {measured:7.3f} s {np.expm1(found):+.1%}")


if __name__ == "__main__":
    main()
