"""Operator tables that others published, as groups that one fit can take: one chip, framework, version and format.

The tables do not come with Gnomon. `GNOMON_TRUTH` names their folder, or it stands in ../shared/truth.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gnomon.errors import CalibrationError
from gnomon.load.files import read_text
from gnomon.spec.workload import Floats

TABLES = ("gemm", "attention", "moe", "elementwise", "collectives")
MAX_BYTES = 256 * 1024**2
FORMATS = {
    "bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "half": "fp16", "fp32": "fp32", "float": "fp32",
    "fp8": "fp8", "fp8_block": "fp8-blocks", "nvfp4": "nvfp4", "sq": "int8", "int8": "int8",
    "int8_wo": "int8-weights", "int4_wo": "int4-weights", "w4a16_mxfp4": "mxfp4-weights",
    "w4a8_mxfp4_mxfp8": "mxfp4-mxfp8",
}  # fmt: skip
"""Their names of number formats, and ours."""
FRAMEWORKS = {"pytorch": "torch", "pytorch(cublas)": "torch", "cublas": "torch", "vLLM (v0 profiler)": "vllm-v0"}

Row = Mapping[str, str]
Sizes = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one kind of operator in one format, by one framework on one chip."""

    source: str
    chip: str
    framework: str
    version: str
    kind: str
    dtype: str
    columns: Mapping[str, Floats]
    """Sizes as `gnomon.cost.rows` names them, and `time_us`."""
    kernels: tuple[str, ...]

    @property
    def name(self) -> str:
        return " ".join((self.chip, self.framework, self.version, self.kind, self.dtype))

    @property
    def rows(self) -> int:
        return int(self.columns["time_us"].size)


def folder() -> Path | None:
    """Where the published tables lie, if they do."""
    near = Path(__file__).parents[4] / "shared" / "truth"
    named = os.environ.get("GNOMON_TRUTH")
    places = [Path(named)] if named else [Path("../shared/truth"), near]
    return next((place for place in places if all(path(place, name).is_file() for name in TABLES)), None)


def path(folder: Path, name: str) -> Path:
    return folder / f"kernels_{name}.csv.gz"


def rows(folder: Path, name: str) -> Iterator[Row]:
    """All rows of a published table, as text."""
    where = path(folder, name)
    reader = csv.DictReader(io.StringIO(read_text(where, MAX_BYTES), newline=""))
    if "time_us" not in (reader.fieldnames or ()):
        raise CalibrationError("has no column time_us", where=str(where))
    for line, row in enumerate(reader, 2):
        if None in row or None in row.values():
            raise CalibrationError("has not as many fields as the header", where=f"{where} line {line}")
        yield row


def number(row: Row, name: str, empty: float = 0.0) -> float:
    text = row.get(name) or ""
    try:
        return float(text) if text else empty
    except ValueError:
        raise CalibrationError(f"a published row has {name} '{text}'") from None


def _gemm(row: Row) -> tuple[str, str, Sizes]:
    sizes = {name: number(row, name) for name in ("m", "n", "k")} | {"batch": number(row, "batch", 1.0)}
    return "gemm", row["dtype"], sizes


def _attention(row: Row) -> tuple[str, str, Sizes] | None:
    """Whole prompts and decodes; batches that mix them, and latent attention, are read elsewhere."""
    if row["attn_type"] != "gqa/mha" or row["phase"] not in ("prefill", "decode"):
        return None
    names = {"batch": "batch_size", "kv_len": "kv_len", "heads": "num_heads", "kv_heads": "num_key_value_heads"}
    sizes = {ours: number(row, theirs) for ours, theirs in names.items()}
    sizes |= {"head_dim": number(row, "head_dim"), "window": number(row, "window_size")}
    sizes["q_len"] = number(row, "isl") if row["phase"] == "prefill" else 1.0
    return f"attention_{row['phase']}", row["kv_cache_dtype"], sizes


def _experts(row: Row) -> tuple[str, str, Sizes] | None:
    """Experts of one rank that holds all of them; a cut of their width is a smaller width."""
    if number(row, "moe_ep_size", 1.0) != 1:
        return None
    names = {"tokens": "num_tokens", "hidden": "hidden_size", "experts": "num_experts", "topk": "topk"}
    sizes = {ours: number(row, theirs) for ours, theirs in names.items()}
    sizes["inter"] = number(row, "inter_size") / number(row, "moe_tp_size", 1.0)
    power = row["distribution"].removeprefix("power_law_")
    sizes["skew"] = 0.0 if power == row["distribution"] else float(power)
    return "moe", row["dtype"], sizes


READERS: Mapping[str, Callable[[Row], tuple[str, str, Sizes] | None]] = {
    "gemm": _gemm,
    "attention": _attention,
    "moe": _experts,
}


@cache
def tables(folder: Path, name: str) -> tuple[Table, ...]:
    """The groups of one published table; rows of the same sizes keep the median of their times."""
    found: dict[tuple[str, ...], dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    named: dict[tuple[str, ...], set[str]] = defaultdict(set)
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in rows(folder, name):
        read = READERS[name](row)
        if read is None or read[1] not in FORMATS:
            continue
        kind, dtype, sizes = read
        framework = FRAMEWORKS.get(row["framework"], row["framework"])
        key = (row["source"], row["gpu"], framework, row["framework_version"], kind, FORMATS[dtype])
        found[key][tuple(sizes.values())].append(number(row, "time_us"))
        named[key].add(row["kernel"])
        names[key] = tuple(sizes)
    return tuple(_table(key, names[key], found[key], named[key]) for key in sorted(found))


def _table(
    key: tuple[str, ...], names: tuple[str, ...], times: Mapping[tuple[float, ...], list[float]], kernels: set[str]
) -> Table:
    shapes = sorted(times)
    columns = dict(zip(names, np.array(shapes).T, strict=True))
    columns["time_us"] = np.array([float(np.median(times[shape])) for shape in shapes])
    source, chip, framework, version, kind, dtype = key
    return Table(
        source=source,
        chip=chip,
        framework=framework,
        version=version,
        kind=kind,
        dtype=dtype,
        columns=columns,
        kernels=tuple(sorted(kernels)),
    )
