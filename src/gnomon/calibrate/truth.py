"""Operator tables that others published, as groups that one fit can take: one chip, framework, version and format.

The tables do not come with Gnomon. `GNOMON_TRUTH` names their folder, or it stands in ../shared/truth.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

import numpy as np

from gnomon.calibrate.truth_experts import experts
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
"""Number formats of the published tables, and Gnomon's names of them."""
FRAMEWORKS = {"pytorch": "torch", "pytorch(cublas)": "torch", "cublas": "torch", "vLLM (v0 profiler)": "vllm-v0"}
WITH_INPUTS, NARROWED = "aiconfigurator", ("fp8", "fp8_block", "nvfp4", "sq")
"""A source that times whole linear layers, and its formats whose activations a layer narrows first."""

TOGETHER, PAGE = "vLLM (v0 profiler)", 16
VARIANTS = {"attention": ("kernel", "attn_dtype", "attn_type"), "moe": ("kernel",)}
"""Columns that split a table further: a framework has several kernels for attention and for experts, several times
apart, and chooses by shape or by its settings."""

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
    variant: str = ""
    """What `VARIANTS` tells apart."""

    @property
    def name(self) -> str:
        parts = (self.chip, self.framework, self.version, self.kind, self.dtype, self.variant)
        return " ".join(part for part in parts if part)

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
    return (row for _, row in numbered(path(folder, name), ("time_us",)))


def numbered(where: Path, needed: Collection[str]) -> Iterator[tuple[int, Row]]:
    """The rows of a table, packed or not, as text, with the lines they end on; it must have these columns."""
    reader = csv.DictReader(io.StringIO(read_text(where, MAX_BYTES), newline=""))
    try:
        names = reader.fieldnames or ()
        if missing := [name for name in needed if name not in names]:
            raise CalibrationError(f"has no column {missing[0]}", where=f"{where} line 1")
        for row in reader:
            if None in row or None in row.values():
                raise CalibrationError("has not as many fields as the header", where=f"{where} line {reader.line_num}")
            yield reader.line_num, row
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=f"{where} line {reader.line_num}") from None


def number(row: Row, name: str, empty: float = 0.0) -> float:
    text = row.get(name) or ""
    try:
        return float(text) if text else empty
    except ValueError:
        raise CalibrationError(f"'{text}' is not a number", where=f"column {name}") from None


def _time(row: Row, where: str) -> float:
    try:
        found = float(row["time_us"])
    except ValueError:
        found = 0.0
    if not 0 < found < inf:
        raise CalibrationError(f"'{row['time_us']}' is not a number above 0", where=where)
    return found


def _gemm(row: Row) -> tuple[str, str, Sizes]:
    sizes = {name: number(row, name) for name in ("m", "n", "k")} | {"batch": number(row, "batch", 1.0)}
    if row["source"].startswith(WITH_INPUTS) and row["dtype"] in NARROWED:
        sizes["quantised"] = 1.0
    return "gemm", row["dtype"], sizes


def _attention(row: Row) -> tuple[str, str, Sizes] | None:
    """Whole prompts and decodes; batches that mix them, prompts of one token, which are decodes by another name, and
    choices of tokens are not read.

    vLLM's old profiler gives the cached tokens of all sequences together (its times fall as these become more), and
    has rows with less than a page of each.
    """
    if row["phase"] not in ("prefill", "decode") or row["attn_type"] not in ("gqa/mha", "mla"):
        return None
    if row["phase"] == "prefill" and number(row, "isl") < 2:
        return None
    if row["attn_type"] == "mla":
        return _latent(row)
    names = {"batch": "batch_size", "kv_len": "kv_len", "heads": "num_heads", "kv_heads": "num_key_value_heads"}
    sizes = {ours: number(row, theirs) for ours, theirs in names.items()}
    sizes |= {"head_dim": number(row, "head_dim"), "window": number(row, "window_size")}
    sizes["q_len"] = number(row, "isl") if row["phase"] == "prefill" else 1.0
    if row["framework"] == TOGETHER and row["phase"] == "decode":
        sizes["kv_len"] /= sizes["batch"]
        if sizes["kv_len"] < PAGE:
            return None
    return f"attention_{row['phase']}", row["kv_cache_dtype"], sizes


def _latent(row: Row) -> tuple[str, str, Sizes] | None:
    """DeepSeek's heads. SGLang's prompts on an H100 are left out: it multiplies them with latents as they lie, which
    takes 3.4 times the arithmetic that others do."""
    names = {"batch": "batch_size", "heads": "num_heads", "kv_len": "kv_len"}
    sizes = {ours: number(row, theirs) for ours, theirs in names.items()}
    if row["phase"] == "decode":
        return "mla_decode", row["kv_cache_dtype"], sizes | {"kv_rank": 512.0, "rope_dim": 64.0}
    if (row["framework"], row["gpu"]) == ("sglang", "H100-SXM-80GB"):
        return None
    sizes |= {"kv_heads": sizes["heads"], "head_dim": 192.0, "value_dim": 128.0, "window": 0.0}
    return "attention_prefill", row["kv_cache_dtype"], sizes | {"q_len": number(row, "isl")}


_ANY = ("source", "gpu", "framework", "framework_version", "kernel", "time_us")
NEEDED: Mapping[str, tuple[str, ...]] = {
    "gemm": (*_ANY, "dtype", "m", "n", "k"),
    "attention": (
        *_ANY, "attn_type", "phase", "attn_dtype", "kv_cache_dtype", "batch_size", "isl", "kv_len", "num_heads",
        "num_key_value_heads", "head_dim", "window_size",
    ),
    "moe": (
        *_ANY, "dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
        "moe_ep_size", "distribution",
    ),
}  # fmt: skip
"""Columns that the readers read."""
READERS: Mapping[str, Callable[[Row], tuple[str, str, Sizes] | None]] = {
    "gemm": _gemm,
    "attention": _attention,
    "moe": experts,
}


@cache
def tables(folder: Path, name: str) -> tuple[Table, ...]:
    """The groups of one published table; rows of the same sizes keep the median of their times."""
    found: dict[tuple[str, ...], dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    named: dict[tuple[str, ...], set[str]] = defaultdict(set)
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line, row in numbered(path(folder, name), NEEDED[name]):
        try:
            read = READERS[name](row)
        except CalibrationError as problem:
            problem.where = ", ".join(filter(None, [f"{path(folder, name)} line {line}", problem.where]))
            raise
        if read is None or read[1] not in FORMATS:
            continue
        kind, dtype, sizes = read
        framework = FRAMEWORKS.get(row["framework"], row["framework"])
        variant = " ".join(row[column] for column in VARIANTS.get(name, ()))
        key = (row["source"], row["gpu"], framework, row["framework_version"], kind, FORMATS[dtype], variant)
        found[key][tuple(sizes.values())].append(_time(row, f"{path(folder, name)} line {line}, column time_us"))
        named[key].add(row["kernel"])
        names[key] = tuple(sizes)
    return tuple(_table(key, names[key], found[key], named[key]) for key in sorted(found))


def _table(
    key: tuple[str, ...], names: tuple[str, ...], times: Mapping[tuple[float, ...], list[float]], kernels: set[str]
) -> Table:
    shapes = sorted(times)
    columns = dict(zip(names, np.array(shapes).T, strict=True))
    columns["time_us"] = np.array([float(np.median(times[shape])) for shape in shapes])
    source, chip, framework, version, kind, dtype, variant = key
    return Table(
        source=source,
        chip=chip,
        framework=framework,
        version=version,
        kind=kind,
        dtype=dtype,
        columns=columns,
        kernels=tuple(sorted(kernels)),
        variant=variant,
    )
