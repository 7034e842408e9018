"""From the table of `gnomon.calibrate.module_kernels` to families of convolutions and fp32 products, and to paces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family, read_rows, read_table
from gnomon.calibrate.training_fit import FRAMEWORK, LEAST_US
from gnomon.calibrate.training_fit import paces as stream_paces
from gnomon.cost.kernels import kernel_model
from gnomon.spec import Chip

FITTED = ("conv", "gemm")


def families(path: Path, chip: Chip) -> dict[str, Any]:
    found = {}
    for (kind, dtype), columns in sorted(read_table(path).items()):
        if kind in FITTED:
            long = columns["time_us"] >= LEAST_US
            fitted = fit_family(kind, dtype, {name: values[long] for name, values in columns.items()}, chip)
            found[f"{kind}.{dtype}.{FRAMEWORK}"] = fitted.to_dict()
    return found


def paces(path: Path, chip: Chip, families: Mapping[str, Any]) -> dict[str, float]:
    """Of kernels that stream, beside a plain one; of attention, beside what the profile says of FlashAttention."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if row["op"].startswith("attention") and float(row["time_us"]) >= LEAST_US:
            name = row["kernel"] + (".backward" if row["op"].endswith("backward") else "")
            found[name].append(_attention_pace(row, chip, families))
    attention = {name: round(float(np.median(values)), 3) for name, values in sorted(found.items())}
    return stream_paces(path, chip, families["elementwise.bf16"]["coefficients"]) | attention


def _attention_pace(row: Mapping[str, str], chip: Chip, families: Mapping[str, Any]) -> float:
    c = families[f"{row['op']}.bf16.{FRAMEWORK}"]["coefficients"]
    batch, length = float(row["batch"]), float(row["q_len"])
    sums = {"sequences": batch, "tokens": batch * length, "context": batch * length, "pairs": batch * length**2}
    heads = {name: float(row[name]) for name in ("heads", "kv_heads", "head_dim")}
    shape = {name: np.array([value]) for name, value in (sums | heads).items()}
    seconds, launch = float(kernel_model(row["op"]).seconds(shape, row["dtype"], chip, c)[0]), c["launch_us"] * 1e-6
    return float((seconds - launch) / max(float(row["time_us"]) * 1e-6 - launch, 1e-9))
