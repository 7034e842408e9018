"""From the table of `tools.module_kernels` to families of convolutions and GEMMs, and to kernel efficiencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family
from gnomon.calibrate.table import read_rows
from gnomon.calibrate.training_fit import FRAMEWORK, LEAST_US
from gnomon.calibrate.training_fit import efficiencies as stream_efficiencies
from gnomon.cost.kernels import kernel_model
from gnomon.graph.dtypes import width
from gnomon.graph.ops import FEW_CHANNELS, ROW_BYTES
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TRAINING_FAMILIES = (("gemm", "bf16"),)
"""Families that are fitted to the table of `tools.training_kernels`, which has more of them."""
FIRST, STEP = ".first", "step."
"""The suffix of kernels whose inputs have channels first, and the prefix of single steps of a recurrent net."""
LARGE_US = 150.0
"""Shorter calls of attention say more of its launch, which the profile has from calls that waited for the host."""
GATHER, ROW = "gather", "gather.row_bytes"
SIDES = {"forward": "kkn", "by_input": "knn", "by_weight": "mnn"}
"""The row lengths of both operands and of the result, by direction."""

WIDE_BYTES = 4.0
"""Values of which the layout of operands counts: tensor cores take 16-bit ones either way."""

Sizes = dict[str, float]
Family = tuple[str, str]


def families(path: Path, chip: Chip) -> dict[str, Any]:
    """Fits by kind, format and framework."""
    return {
        f"{kind}.{dtype}.{FRAMEWORK}": fit_family(kind, dtype, columns, chip).to_dict()
        for (kind, dtype), columns in sorted(tables(path).items())
    }


def tables(path: Path) -> dict[Family, dict[str, Floats]]:
    """The columns that each family is fitted to."""
    return {
        family: {name: np.array([row[name] for row in rows]) for name in rows[0]}
        for family, rows in grouped(path).items()
        if family not in TRAINING_FAMILIES
    }


def grouped(path: Path) -> dict[Family, list[Sizes]]:
    """GEMMs and convolutions by the family that prices them, with the sizes it takes."""
    rows = read_rows(path)
    found: dict[Family, list[Sizes]] = defaultdict(list)
    for dtype, kind, sizes in (*_gemms(rows), *_convolutions(rows)):
        found[kind, dtype].append(sizes)
    return found


def _sizes(row: Mapping[str, str], *names: str) -> Sizes:
    return {name: float(row[name]) for name in (*names, "time_us")}


def _gemms(rows: list[dict[str, str]]) -> Iterator[tuple[str, str, Sizes]]:
    for row in rows:
        if row["op"] == "gemm" and not row["kernel"].startswith(STEP):
            sizes, value = _sizes(row, "m", "n", "k"), width(row["dtype"])
            *inside, out = (int(sizes[side] * value) for side in SIDES[row["kernel"]])
            aligned, out_aligned = gcd(ROW_BYTES, *inside), gcd(ROW_BYTES, out)
            laid = {"across": float(list(SIDES).index(row["kernel"]))} if value >= WIDE_BYTES else {}
            if row["dtype"] != "fp32" and min(aligned, out_aligned) < ROW_BYTES:
                laid |= {"aligned": float(aligned), "out_aligned": float(out_aligned)}
                yield row["dtype"], "gemm_unaligned", sizes | laid
            else:
                yield row["dtype"], "gemm", sizes | laid


def _convolutions(rows: list[dict[str, str]]) -> Iterator[tuple[str, str, Sizes]]:
    """The directions of one convolution move the same bytes: together they tell its channels and its kernel."""
    ways_of: dict[tuple[str, str, str], dict[str, Sizes]] = defaultdict(dict)
    for row in rows:
        if row["op"] == "conv":
            ways_of[row["dtype"], row["batch"], row["bytes"]][row["kernel"]] = _sizes(
                row, "m", "n", "k", "batch", "bytes"
            )
    for (dtype, _, _), ways in ways_of.items():
        inner, outer = ways["forward"]["n"], ways["by_input"]["n"]
        taps, groups = ways["forward"]["k"] / outer, ways["forward"]["batch"]
        weights = inner * outer * taps * groups * width(dtype)
        few = min(inner, outer) < FEW_CHANNELS
        kind = "conv_depthwise" if few and groups > 1 else "conv_few" if few else "conv"
        pointwise = taps == 1 and ways["forward"]["m"] == ways["by_input"]["m"]
        for name, sizes in ways.items():
            way = name.removesuffix(FIRST)
            stays = pointwise or (dtype == "bf16" and name == way)
            turned = {"turned": sizes["bytes"] - weights, "turned_weights": weights if taps > 1 else 0.0}
            flags = {other: float(way == other) for other in ("by_input", "by_weight")}
            yield dtype, kind, sizes | (dict.fromkeys(turned, 0.0) if stays else turned) | flags


def efficiencies(path: Path, chip: Chip, families: Mapping[str, Any]) -> dict[str, float]:
    """Throughput of streaming kernels relative to a plain one, and of attention relative to the profile's."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if row["op"].startswith("attention") and float(row["time_us"]) >= LARGE_US:
            name = row["kernel"] + (".backward" if row["op"].endswith("backward") else "")
            found[name].append(_attention_efficiency(row, chip, families))
    attention = {name: round(float(np.median(values)), 3) for name, values in sorted(found.items())}
    plain = families["elementwise.bf16"]["coefficients"]
    return stream_efficiencies(path, chip, plain, least_us=2 * LEAST_US) | attention | _gathered(path, chip, plain)


def _gathered(path: Path, chip: Chip, plain: Mapping[str, float]) -> dict[str, float]:
    """Bytes that a plain kernel would move while one row is looked up, where rows are of whole vectors."""
    found = []
    for row in read_rows(path):
        if row["kernel"].startswith(f"{GATHER}.") and row["batch"] and float(row["time_us"]) >= 3 * LEAST_US:
            found.append((float(row["time_us"]) - plain["launch_us"]) * 1e-6 / float(row["batch"]))
    return {ROW: round(float(np.median(found)) * chip.memory_bandwidth_bytes_s * plain["memory"], 0)} if found else {}


def _attention_efficiency(row: Mapping[str, str], chip: Chip, families: Mapping[str, Any]) -> float:
    c = families[f"{row['op']}.bf16.{FRAMEWORK}"]["coefficients"]
    batch, queries, keys = (float(row[name]) for name in ("batch", "q_len", "kv_len"))
    sums = {"sequences": batch, "tokens": batch * queries, "context": batch * keys, "pairs": batch * queries * keys}
    heads = {name: float(row[name]) for name in ("heads", "kv_heads", "head_dim")}
    shape = {name: np.array([value]) for name, value in (sums | heads).items()}
    seconds, launch = float(kernel_model(row["op"]).seconds(shape, row["dtype"], chip, c)[0]), c["launch_us"] * 1e-6
    return float((seconds - launch) / max(float(row["time_us"]) * 1e-6 - launch, 1e-9))
