"""What a chip is made of gives its rates and bandwidth; a slip of the pen, or a sparse rate taken as dense, shows.

A rate is processors x operations a cycle x clock. Operations a cycle are those of each architecture's white paper or
instruction-set manual, a multiply-add counted as two, dense, with fp32 accumulation.
"""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gnomon import catalog
from gnomon.spec import Chip

CLOSE = 0.03
OPERATIONS: dict[str, dict[str, float]] = {
    "Kepler": {"fp32": 384},
    "Maxwell": {"fp32": 256},
    "Pascal GP100": {"fp32": 128, "fp16": 256},
    "Pascal": {"fp32": 256, "int8": 1024},
    "Volta": {"fp32": 128, "fp16": 1024},
    "Turing": {"fp32": 128, "fp16": 1024, "int8": 2048},
    "Turing GeForce": {"fp32": 128, "fp16": 512, "int8": 2048},
    "Ampere GA100": {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048, "int8": 4096},
    "Ampere Orin": {"fp32": 256, "bf16": 2048, "fp16": 2048, "int8": 4096},
    "Ampere, Ada": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048},
    "Ampere, Ada GeForce": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 2048},
    "Ampere, Ada halved": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "int8": 1024},
    "Hopper": {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192},
    "Blackwell": {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 32768, "int8": 16384},
    "Blackwell Ultra": {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 49152},
    "Blackwell RTX PRO": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "fp4": 4096, "int8": 2048},
    "Blackwell GeForce": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp8": 1024, "fp4": 4096, "int8": 2048},
    "Vega, RDNA1": {"fp32": 128, "fp16": 256},
    "CDNA1": {"fp32": 256, "bf16": 512, "fp16": 1024, "int8": 1024},
    "CDNA2": {"fp32": 256, "bf16": 1024, "fp16": 1024, "int8": 1024},
    "CDNA3": {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048, "fp8": 4096, "int8": 4096},
    "CDNA4": {"fp32": 256, "bf16": 4096, "fp16": 4096, "fp8": 8192, "fp4": 16384, "int8": 8192},
    "RDNA3": {"fp32": 256, "bf16": 512, "fp16": 512, "int8": 512},
    "RDNA4": {"fp32": 256, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048},
    "Xe-HPC": {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "int8": 8192},
    "Xe-HPG, Xe2": {"fp32": 256, "bf16": 2048, "fp16": 2048, "int8": 4096},
    "Apple": {"fp32": 256, "fp16": 256},
    "TPU of one 128 x 128 array": {"bf16": 2 * 128**2},
    "TPU of two": {"bf16": 4 * 128**2},
    "TPU of four": {"bf16": 8 * 128**2, "int8": 16 * 128**2},
    "TPU of four 256 x 256 arrays": {"bf16": 8 * 256**2, "fp8": 8 * 256**2, "int8": 16 * 256**2},
    "the same with fp8": {"bf16": 8 * 256**2, "fp8": 16 * 256**2, "int8": 16 * 256**2},
}
MADE_OF = {
    "Kepler": "K80", "Maxwell": "M60 Quadro-M4000", "Pascal GP100": "P100-*", "Pascal": "P4 P40 Quadro-P4000",
    "Volta": "V100* Titan-V", "Turing": "T4 T4G Titan-RTX Quadro-RTX-*", "Turing GeForce": "RTX-20*Ti",
    "Ampere GA100": "A100-* A800-* A30", "Ampere Orin": "Jetson-AGX-Orin-*",
    "Ampere, Ada": "A10 A16 A2 A40 RTX-A* L4 L40S RTX-*-Ada",
    "Ampere, Ada GeForce": "RTX-30* RTX-40[6-9]0*", "Ampere, Ada halved": "A10G L20 L40",
    "Hopper": "H100-* H800-* H200-* GH200-*", "Blackwell": "B200-* GB200 Jetson-AGX-Thor-*",
    "Blackwell Ultra": "B300-* GB300", "Blackwell RTX PRO": "RTX-PRO-* DGX-Spark-GB10",
    "Blackwell GeForce": "RTX-50[6-9]0*", "Vega, RDNA1": "MI25 Radeon-Pro-V520", "CDNA1": "MI100",
    "CDNA2": "MI210 MI250*", "CDNA3": "MI300* MI325X", "CDNA4": "MI35*",
    "RDNA3": "Radeon-7900XTX Radeon-W7900 Ryzen-AI-Max-395", "RDNA4": "Radeon-R9700", "Xe-HPC": "Max-1*",
    "Xe-HPG, Xe2": "Arc-*", "Apple": "Apple-*", "TPU of one 128 x 128 array": "TPU-v2", "TPU of two": "TPU-v3",
    "TPU of four": "TPU-v4 TPU-v5?", "TPU of four 256 x 256 arrays": "TPU-v6e", "the same with fp8": "TPU-v7x",
}  # fmt: skip
NOT_COUNTED = {
    "H20-*": "its maker cut the rates, not the units",
    "B100-SXM-192GB Rubin-SXM MI455X Ascend-950DT": "announced",
    "Gaudi? Trainium? Inferentia? Cloud-AI-100 Ascend-910? SN40L": "no clock or array is published",
}
TENSOR_CLOCK = {"Hopper": 0.86, "Blackwell": 0.94, "Blackwell Ultra": 0.94, "Xe-HPG, Xe2": 0.95}
"""Where data sheets quote tensor rates at a lower clock than the highest: the least share of it."""
ODD = {
    ("Titan-V", "fp16"): "its page says 110 TFLOP/s, at less than its boost clock",
    ("TPU-v4", "int8"): "no faster than bf16 in this one",
    ("B300-SXM-288GB", "int8"): "cut to make room for fp4",
    ("GB300", "int8"): "cut to make room for fp4",
}
IN_FP32 = frozenset({"Kepler", "Maxwell", "Pascal"})
"""Have no fast fp16: values are widened, and run at the rate of fp32."""


def families(name: str) -> list[str]:
    """What a chip is made of, by its name."""
    return [made for made, names in MADE_OF.items() if any(fnmatchcase(name, like) for like in names.split())]


def test_every_chip_is_counted_or_said_why_not() -> None:
    left_out = [like for names in NOT_COUNTED for like in names.split()]
    for name in catalog.chip_names():
        known = families(name) + [like for like in left_out if fnmatchcase(name, like)]
        assert len(known) == 1, f"{name}: {known or 'add it to MADE_OF'}"


@pytest.mark.parametrize("chip", [chip for chip in catalog.chips() if families(chip.name)], ids=lambda chip: chip.name)
def test_rates_are_processors_times_operations_times_clock(chip: Chip) -> None:
    (made,) = families(chip.name)
    for dtype, rate in chip.rates_flops.items():
        if (chip.name, dtype) in ODD:
            continue
        unit = "fp32" if made in IN_FP32 and dtype == "fp16" else dtype
        share = rate / (chip.sm_count * chip.boost_hz * OPERATIONS[made][unit])
        least = TENSOR_CLOCK.get(made, 1.0) if dtype != "fp32" else 1.0
        assert least * (1 - CLOSE) < share < 1 + CLOSE, f"{dtype}: {share:.3f} of {made}'s"


def buses() -> list[tuple[str, float, float]]:
    with Path(__file__).with_name("memory_buses.csv").open(newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [(row["chip"], float(row["bits"]), float(row["gbit_s"])) for row in rows]


@pytest.mark.parametrize(("name", "bits", "gbit_s"), buses())
def test_bandwidth_is_the_bus_times_its_rate(name: str, bits: float, gbit_s: float) -> None:
    assert catalog.chip(name).memory_bandwidth_bytes_s == pytest.approx(bits / 8 * gbit_s * 1e9, rel=CLOSE)


def test_most_buses_are_known() -> None:
    assert len({name for name, _, _ in buses()} & set(catalog.chip_names())) > 0.8 * len(catalog.chip_names())
