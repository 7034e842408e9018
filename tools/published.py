"""The A100's profile, fitted to operator tables that others published: `python -m tools.published`.

The tables do not come with Gnomon. `GNOMON_TRUTH` names their folder, or it stands in ../shared/truth; where they
are missing the shipped profile stays as it is.
"""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import hypot
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tools.ship import PROFILES, write

from gnomon import catalog
from gnomon.calibrate.fit import fit_family
from gnomon.cost.kernels import kernel_model
from gnomon.errors import CalibrationError
from gnomon.load.files import read_text, read_yaml
from gnomon.load.profile_file import SCHEMA
from gnomon.spec import Chip

CHIP = "A100-SXM-80GB"
DATE = "2026-11-15"
TABLES = ("gemm", "attention", "moe", "elementwise")
VERSIONS = {
    "vidur": "2023-24",
    "aiconfigurator": "0.12.0",
    "vllm": "0.14.0",
    "sglang": "0.5.10",
    "neusight": "torch 2.1.0",
}
NOTES = (
    "GEMMs: Vidur's table. PyTorch with cuBLAS in fp16 on random data, whole transformer blocks repeated "
    "twenty times, which is nearest to a long run. Its best is 272 TFLOP/s, as is the best of any shape that a search "
    "on random bf16 data found (271); large GEMMs run at 230. Times are whole microseconds: those below 20 are "
    "left out.",
    "Left out, vLLM 0.14's table: 286 to 299 TFLOP/s on large GEMMs. Its weights are never set, and zeros draw "
    "less power, so the clock stays up (Horace He, 2024: 295 with zeros, 257 with random data on 8192 cubed).",
    "Left out, the tables of SGLang 0.5.10 and TensorRT-LLM 1.0: random data, but short bursts, 6% (SGLang) and 15% "
    "(TensorRT-LLM) faster than Vidur on the same shapes above 0.4 ms, and within 5% of it below 0.1 ms.",
    "The tables disagree more than their rows scatter, so every spread holds 0.06 that its family shares.",
    "Attention: head dimension 128 only. Prompts and decodes as vLLM 0.14 runs them, with grouped heads for decodes "
    "(it does not split a long context of ungrouped ones); whole sequences as SGLang's FlashAttention runs them, which "
    "is 16% faster.",
    "Streams: residual additions of Vidur in fp16; layer norms and softmax of NeuSight in fp32 on the PCIe card, by "
    "the ratio of the bandwidths. Vidur's norms (0.35 of the bandwidth) and activations (0.5) are left out: kernels "
    "of 2023 that no trainer ran and that serving engines have replaced.",
    "Mixtures: vLLM 0.14 with experts visited unevenly (power law 1.01).",
    "Power is an estimate: the limit of 400 W at the rate of a large GEMM, with the H200's measured joules a byte "
    "and its share of the limit for a busy chip that does nothing.",
)
LEAST_US = 20.0
"""Vidur's whole microseconds are off by 2.5% at most from here on."""
LEAST_ADD_US = 4.0
"""Additions are worth more rounding: only short ones show the launch."""
LEAST_TOKENS = 128
POWER = 1.01
"""Exponent of the power law of expert visits in the rows that are used."""
SHARED = 0.06
"""How far the three tables of GEMMs on random data are apart on large shapes, as a standard deviation."""
USUAL_SHARE = 0.75
"""Of the data sheet's rate, what a large GEMM reaches where no table has it: an A100 has 0.74, an H200 0.8."""
AN_OCTAVE, SHORT_OCTAVE = 100, 4
"""Rows taken of each doubling of the work, so that no size outweighs the others; fewer where operators would."""
PCIE_BANDWIDTH = 1.935e12
"""NVIDIA A100 PCIe 80 GB data sheet, bytes per second."""
MAX_BYTES = 256 * 1024**2

Row = Mapping[str, str]
Times = dict[tuple[float, ...], float]
"""Microseconds by sizes, in the order of the columns that a kind of operator is fitted by."""


def tables() -> Path | None:
    """The folder of the published tables, where there is one."""
    near = Path(__file__).parents[2] / "shared" / "truth"
    named = os.environ.get("GNOMON_TRUTH")
    folders = [Path(named)] if named else [Path("../shared/truth"), near]
    return next((folder for folder in folders if all(_path(folder, name).is_file() for name in TABLES)), None)


def profile(folder: Path) -> dict[str, Any]:
    """The content of the chip's profile file."""
    chip = catalog.chip(CHIP)
    fitted = (
        ("gemm", "Vidur, PyTorch 2023-24", gemms(folder)),
        ("attention_forward", "AIConfigurator 0.12, SGLang 0.5.10", attention(folder, "prefill", "sglang")),
        ("attention_prefill", "AIConfigurator 0.12, vLLM 0.14.0", attention(folder, "prefill", "vllm")),
        ("attention_decode", "AIConfigurator 0.12, vLLM 0.14.0", attention(folder, "decode", "vllm")),
        ("moe", "AIConfigurator 0.12, vLLM 0.14.0", experts(folder)),
        ("elementwise", "Vidur and NeuSight, PyTorch 2023-24", streams(folder)),
    )
    families = {
        f"{kind}.bf16": _fit(kind, times, chip) | {"source": f"published by {source}"} for kind, source, times in fitted
    }
    return {
        "schema": SCHEMA,
        "chip": chip.name,
        "date": DATE,
        "table": "published operator tables",
        "versions": VERSIONS,
        "notes": list(NOTES),
        "families": families,
        "power": power(chip, large_gemm(chip, families["gemm.bf16"]["coefficients"])),
    }


SIZES = {
    "gemm": ("m", "n", "k"),
    "attention": ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim"),
    "moe": ("tokens", "hidden", "inter", "experts", "topk", "skew"),
    "elementwise": ("bytes_read", "bytes_written"),
}


def _fit(kind: str, times: Times, chip: Chip) -> dict[str, Any]:
    """One family, from where the H200's fit ended; its spread grows by what the tables disagree about."""
    sizes = np.array(list(times)).T
    start = _measured()["families"].get(f"{kind}.bf16", {}).get("coefficients")
    columns = dict(zip(SIZES[kind.partition("_")[0]], sizes, strict=True)) | {"time_us": np.array(list(times.values()))}
    found = fit_family(kind, "bf16", columns, chip, start=start).to_dict()
    shared = hypot(found["shared"], SHARED)
    return found | {"spread": round(hypot(found["spread"], SHARED), 4), "shared": round(shared, 4)}


def gemms(folder: Path) -> Times:
    """Vidur's GEMMs."""
    rows = _rows(folder, "gemm", source="vidur", gpu=CHIP, dtype="fp16")
    found = _medians((_sizes(row, "m", "n", "k"), _time(row)) for row in rows if _time(row) >= LEAST_US)
    return _by_octave(found)


def attention(folder: Path, phase: str, framework: str) -> Times:
    """Attention over a whole prompt, or of one token to a context, as a serving framework ran it."""
    match = {"gpu": CHIP, "framework": framework, "phase": phase, "attn_type": "gqa/mha", "window_size": "0"}
    names = ("batch_size", "isl", "kv_len", "num_heads", "num_key_value_heads", "head_dim")
    found = _medians((_sizes(row, *names), _time(row)) for row in _rows(folder, "attention", **match))
    grouped = {sizes: time for sizes, time in found.items() if phase == "prefill" or sizes[3] > sizes[4]}
    return {sizes: time for sizes, time in grouped.items() if sizes[2] >= LEAST_TOKENS}


def experts(folder: Path) -> Times:
    """vLLM's fused experts, all on one chip; a cut of their width is a smaller width."""
    match = {"gpu": CHIP, "framework": "vllm", "dtype": "bfloat16", "distribution": f"power_law_{POWER}"}
    names = ("num_tokens", "hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size")
    rows = _rows(folder, "moe", **match, moe_ep_size="1")
    shapes = ((_sizes(row, *names), _time(row)) for row in rows)
    return _medians(((*sizes[:2], sizes[2] / sizes[5], *sizes[3:5], POWER), time) for sizes, time in shapes)


def streams(folder: Path) -> Times:
    """Residual additions of Vidur (not those of phi-2, which add three), norms and softmax of NeuSight."""
    rows = _rows(folder, "elementwise", source="vidur", gpu=CHIP, op="add")
    plain = ((_moved(row, 4, 2), _time(row)) for row in rows if "phi-2" not in row["model"])
    found = _by_octave(_medians(pair for pair in plain if pair[1] >= LEAST_ADD_US), SHORT_OCTAVE)
    slower = PCIE_BANDWIDTH / catalog.chip(CHIP).memory_bandwidth_bytes_s
    for op in ("ln", "softmax"):
        rows = _rows(folder, "elementwise", source="neusight", gpu="A100-PCIE-80GB", op=op)
        found |= _by_octave(_medians((_moved(row, 4, 4), _time(row) * slower) for row in rows), SHORT_OCTAVE)
    return found


def power(chip: Chip, rate: float | None = None) -> dict[str, float]:
    """An estimate: a large GEMM takes the whole limit; the rest is the H200's, as it was measured.

    `rate` is what such a GEMM reaches, FLOP/s; three quarters of the data sheet's where it is not known.
    """
    measured, side = _measured()["power"], 8192.0
    seconds = 2.0 * side**3 / (rate or USUAL_SHARE * chip.rate(chip.half))
    active = measured["active_w"] / catalog.chip("H200").tdp_w * chip.tdp_w
    left = chip.tdp_w - active - measured["j_per_byte"] * 6.0 * side**2 / seconds
    return {
        "idle_w": chip.idle_w,
        "active_w": float(f"{active:.3g}"),
        "j_per_flop": float(f"{left * seconds / (2.0 * side**3):.3g}"),
        "j_per_byte": measured["j_per_byte"],
    }


def large_gemm(chip: Chip, gemm: Mapping[str, float]) -> float:
    side = 8192.0
    shape = {name: np.array([side]) for name in ("m", "n", "k")}
    return 2.0 * side**3 / float(kernel_model("gemm").seconds(shape, "bf16", chip, gemm)[0])


def _measured() -> Mapping[str, Any]:
    """The shipped profile of the H200, which was measured."""
    return read_yaml(PROFILES / "h200-sxm-141gb.yaml")


def _path(folder: Path, name: str) -> Path:
    return folder / f"kernels_{name}.csv.gz"


def _rows(folder: Path, name: str, **match: str) -> Iterator[Row]:
    """The rows of a table whose columns have these values."""
    path = _path(folder, name)
    reader = csv.reader(io.StringIO(read_text(path, MAX_BYTES), newline=""))
    header = next(reader, [])
    missing = {*match, "time_us"} - set(header)
    if missing:
        raise CalibrationError(f"has no column {sorted(missing)[0]}", where=str(path))
    wanted = [(header.index(column), value) for column, value in match.items()]
    for line, row in enumerate(reader, 2):
        if len(row) != len(header):
            raise CalibrationError("has not as many fields as the header", where=f"{path} line {line}")
        if all(row[at] == value for at, value in wanted):
            yield dict(zip(header, row, strict=True))


def _sizes(row: Row, *names: str) -> tuple[float, ...]:
    try:
        return tuple(float(row[name]) for name in names)
    except (KeyError, TypeError, ValueError) as problem:
        raise CalibrationError(f"a published row has no {', '.join(names)}: {problem}") from None


def _time(row: Row) -> float:
    return _sizes(row, "time_us")[0]


def _moved(row: Row, read: int, written: int) -> tuple[float, ...]:
    """Bytes read and written by an operator over tokens x width values."""
    tokens, width = _sizes(row, "tokens", "width")
    return tokens * width * read, tokens * width * written


def _medians(pairs: Iterable[tuple[tuple[float, ...], float]]) -> Times:
    """One time a shape: models that share a shape were measured each by itself."""
    found: dict[tuple[float, ...], list[float]] = defaultdict(list)
    for sizes, time in pairs:
        found[sizes].append(time)
    return {sizes: median(times) for sizes, times in sorted(found.items())}


def _by_octave(times: Times, most: int = AN_OCTAVE) -> Times:
    """At most so many shapes of each doubling of the work, drawn by their own sizes: the same ones every time."""
    octaves: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for sizes in sorted(times, key=lambda sizes: zlib.crc32(repr(sizes).encode())):
        octaves[int(np.log2(np.prod(sizes)))].append(sizes)
    return {sizes: times[sizes] for each in sorted(octaves) for sizes in octaves[each][:most]}


def main() -> None:
    """Write the profile, or say why it stays as it is."""
    folder = tables()
    if folder is None:
        print(f"kept {CHIP}: the published tables are not here; GNOMON_TRUTH can name their folder")
        return
    write(PROFILES / f"{CHIP.lower()}.yaml", profile(folder))


if __name__ == "__main__":
    main()
