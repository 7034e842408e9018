"""Siblings keep their order: over all chips of the catalog, more of everything is never slower; two cards of one die
differ by their bandwidth where memory binds; a narrower format is no slower unless a measured kernel says so.

What was measured on a chip itself wins over all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.cost.profile import Family
from gnomon.cost.rows import shape_of
from gnomon.load.profiles import profile_for, profile_of
from gnomon.spec import Chip, Pool
from gnomon.spec.workload import Floats

ROWS = np.array([1.0, 8, 64, 256, 1024, 4096, 16384])
BATCH = np.array([1.0, 8, 32, 128, 256])
PROMPTS = np.array([128.0, 512, 2048, 8192])
ONE_FIT, TWO_FITS = 1.04, 1.25
"""How much longer the better chip may take by the same fit, where a few processors more make decodes split another way,
and by the fits of two chips that were measured apart: an H100's and an H200's are up to 16% apart on the shapes here
that are not bound by memory, a B200's and a GB200's up to 20%."""
NEEDS = {"fp8": "fp8", "fp8-blocks": "fp8", "nvfp4": "fp4"}
NARROWER = (("bf16", "fp8"), ("bf16", "fp8-blocks"), ("bf16", "nvfp4"), ("fp8", "nvfp4"))
ENOUGH = 1.2
"""By how much two estimates of the same chip may be off beside each other, each from tables of its own."""


def _sizes(first: str, values: Floats, **others: float) -> dict[str, Floats]:
    return {first: values} | {name: np.full(values.shape, value) for name, value in others.items()}


HEADS = {"heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0}
SHAPES = {
    "gemm": [_sizes("m", ROWS, n=n, k=k) for n, k in ((4096.0, 4096.0), (28672.0, 8192.0))],
    "moe": [
        _sizes("tokens", ROWS, hidden=h, inter=i, experts=e, topk=t)
        for h, i, e, t in ((4096.0, 14336.0, 8.0, 2.0), (2048.0, 768.0, 128.0, 8.0))
    ],
    "attention_decode": [_sizes("batch", BATCH, q_len=1.0, kv_len=c, **HEADS) for c in (1024.0, 8192.0)],
    "attention_prefill": [_sizes("q_len", PROMPTS, batch=1.0, **HEADS) | {"kv_len": PROMPTS}],
    "mla_decode": [_sizes("batch", BATCH, heads=128.0, kv_len=4096.0, kv_rank=512.0, rope_dim=64.0)],
    "elementwise": [{name: np.array([1e4, 1e6, 1e8, 1e9]) for name in ("bytes_read", "bytes_written")}],
}
FORMATS = {
    "gemm": ("bf16", "fp8", "fp8-blocks", "nvfp4", "int4-weights"),
    "moe": ("bf16", "fp8", "fp8-blocks", "nvfp4", "mxfp4-weights", "int4-weights"),
    "attention_decode": ("bf16", "fp8"),
    "attention_prefill": ("bf16", "fp8"),
}


@cache
def machine(name: str) -> Machine:
    chip = catalog.chip(name)
    return Machine(Pool(chip=chip, count=1, per_node=chip.scaleup_size), profile_for(chip))


@cache
def seconds(name: str, kind: str, dtype: str) -> Floats | None:
    """All shapes of a kind on a chip; None where it does not multiply in the format."""
    if kind in ("gemm", "moe") and NEEDS.get(dtype, "bf16") not in machine(name).chip.rates_flops:
        return None
    return np.concatenate([machine(name).seconds(kind, dtype, shape_of(kind, one)) for one in SHAPES[kind]])


def better(one: Chip, other: Chip) -> bool:
    """Whether a chip has at least as much of everything as another of its generation, and as much in each processor:
    fewer, faster ones win where there is little to do."""
    names = ("memory_bandwidth_bytes_s", "memory_bytes", "l2_bytes", "sm_count", "boost_hz")
    more = all(getattr(one, name) >= getattr(other, name) for name in names)
    kind = (one.vendor, one.generation, one.memory[:3]) == (other.vendor, other.generation, other.memory[:3])
    return one.name != other.name and kind and more and _faster(one, other)


def _faster(one: Chip, other: Chip) -> bool:
    rates = [(one.rates_flops.get(name, 0.0), rate) for name, rate in other.rates_flops.items() if name != "int8"]
    rates.append((one.memory_bandwidth_bytes_s, other.memory_bandwidth_bytes_s))
    each = all(ours / one.sm_count >= theirs / other.sm_count for ours, theirs in rates)
    return each and all(ours >= theirs for ours, theirs in rates)


def pairs() -> Iterator[tuple[Chip, Chip]]:
    """The better chip first. One that was measured itself is what it was measured to be."""
    chips = list(catalog.chips())
    for one in chips:
        if profile_of(one.name) is None:
            yield from ((one, other) for other in chips if better(one, other))


def evidence(name: str, kind: str, dtype: str) -> Family:
    return machine(name).evidence(kind, dtype)


def donor(name: str, kind: str, dtype: str) -> str:
    """The chip whose fit prices an operator, and the day: how its source begins."""
    return evidence(name, kind, dtype).source.partition(",")[0]


def test_there_are_siblings_to_compare() -> None:
    assert len(list(pairs())) > 100


@pytest.mark.parametrize("kind", SHAPES)
def test_a_better_sibling_is_never_slower(kind: str) -> None:
    for one, other in pairs():
        for dtype in FORMATS.get(kind, ("bf16",)):
            quick, slow = (seconds(chip.name, kind, dtype) for chip in (one, other))
            if quick is None or slow is None:
                continue
            same = donor(one.name, kind, dtype) == donor(other.name, kind, dtype)
            most = ONE_FIT if same else TWO_FITS
            assert (quick <= slow * most).all(), (one.name, other.name, dtype, float((quick / slow).max()))


DIES = [("H100-SXM-80GB", "H200-SXM-141GB"), ("B200-SXM-180GB", "B300-SXM-288GB"), ("A100-SXM-40GB", "A100-SXM-80GB")]
STREAMS = {
    "gemm": _sizes("m", np.array([8.0]), n=57344.0, k=8192.0),
    "attention_decode": _sizes("batch", np.array([128.0]), q_len=1.0, kv_len=8192.0, **HEADS),
    "elementwise": {name: np.array([4e9]) for name in ("bytes_read", "bytes_written")},
    "moe": _sizes("tokens", np.array([64.0]), hidden=4096.0, inter=14336.0, experts=8.0, topk=2.0),
}
"""Operators that wait for memory on any chip."""


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("slow", "quick"), DIES)
def test_one_die_differs_by_its_bandwidth(slow: str, quick: str, kind: str) -> None:
    shape = shape_of(kind, STREAMS[kind])
    times = [float(machine(name).seconds(kind, "bf16", shape)[0]) for name in (slow, quick)]
    widths = [catalog.chip(name).memory_bandwidth_bytes_s for name in (slow, quick)]
    assert times[0] / times[1] == pytest.approx(widths[1] / widths[0], rel=0.12)


@pytest.mark.parametrize("kind", ["gemm", "moe"])
def test_a_narrower_format_is_no_slower_unless_measured(kind: str) -> None:
    for chip in catalog.chips():
        for wide, narrow in NARROWER:
            slow, quick = seconds(chip.name, kind, wide), seconds(chip.name, kind, narrow)
            if slow is None or quick is None or _measured(chip, kind, narrow):
                continue
            most = 1.0 + 1e-9 if wide == "bf16" else ENOUGH
            assert (quick <= slow * most).all(), (chip.name, wide, narrow, float((quick / slow).max()))


@pytest.mark.parametrize("bits", [6, 5, 3, 2, 1])
def test_weights_of_another_width_are_ordered_as_their_bytes(bits: int) -> None:
    """They are priced as the kernel of four bits, which is slower than bf16 from some rows on where a table has it."""
    for name in (chip.name for chip in catalog.chips()):
        for sizes in SHAPES["gemm"]:
            four, other = (machine(name).seconds("gemm", f"int{width}-weights", sizes) for width in (4, bits))
            wide, narrow = (other, four) if bits > 4 else (four, other)
            assert (narrow <= wide * (1 + 1e-9)).all(), (name, bits)


def _measured(chip: Chip, kind: str, dtype: str) -> bool:
    """Whether a chip of the same generation was measured in the format."""
    whose = catalog.chip(donor(chip.name, kind, dtype).split(" ")[0])
    return whose.generation == chip.generation and not evidence(chip.name, kind, dtype).no_slower_than
