"""Laws of single operators: every kind, on every chip of the catalog, in every format it multiplies in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.property.tables import MULTIPLY, Columns, Draw, columns, formats

from gnomon import catalog
from gnomon.cost import host_rows, passes
from gnomon.cost.attention import HEAD_STEP, KEY_TILE, QUERY_TILE
from gnomon.cost.experts import reached, width_of
from gnomon.cost.machine import COLLECTIVES, EXCHANGES, Machine
from gnomon.cost.profile import Profile
from gnomon.cost.rows import COLUMNS, shape_of
from gnomon.cost.work import work
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Link, Pool
from gnomon.spec.cluster import Node
from gnomon.spec.workload import Floats

pytestmark = pytest.mark.battery(10)

ROUNDING = 1e-9
SPLIT = {"attention_decode": 0.5, "attention_prefill": 0.5, "mla_decode": 0.5, "attention_forward": 0.2}
"""Kinds that are split along their keys, and what part of their time that may save at most."""
KINDS = pytest.mark.parametrize("kind", COLUMNS)


def on(chip: Chip, like: Chip | None = None) -> Machine:
    """A full node of a chip with its usual host, under the profile of the one it is made from, its collectives by
    NCCL."""
    size, host = chip.scaleup_size, catalog.node_of(chip).host
    links = {"scaleup": chip.scaleup, "adapter": chip.scaleout}
    pool = Pool(chip=chip, count=size, per_node=size, node=Node(name="", chips=size, adapters=size, host=host, **links))
    return Machine(pool, profile((like or chip).name), "nccl")


@cache
def profile(name: str) -> Profile:
    return profile_for(catalog.chip(name))


def cases(kind: str) -> Iterator[tuple[Machine, str, Columns]]:
    for chip in catalog.chips():
        machine, drawn = on(chip), columns(kind, Draw(f"{kind} {chip.name}"))
        if kind in host_rows.KINDS and machine.pool.host is None:
            continue  # a TPU, say, is rented without one that is known
        for dtype in formats(kind, chip):
            yield machine, dtype, drawn


def seconds(machine: Machine, kind: str, dtype: str, drawn: Columns) -> Floats:
    found = machine.seconds(kind, dtype, shape_of(kind, drawn))
    assert np.isfinite(found).all()
    assert (found > 0).all()
    return found


def least_seconds(machine: Machine, kind: str, dtype: str, drawn: Columns) -> Floats:
    """What the data sheet's best figures would take."""
    chip = machine.chip
    if kind in COLLECTIVES:
        # A rank at least sends, or gets, all that it does not keep; across nodes the links inside are quicker.
        share = 1.0 if kind in ("broadcast", "send_recv") else (drawn["ranks"] - 1) / drawn["ranks"]
        return share * drawn["bytes"] / max(chip.scaleup.bandwidth_bytes_s, chip.scaleout.bandwidth_bytes_s)
    if kind in EXCHANGES:
        copies = drawn["tokens"] * reached(drawn["ranks"], drawn["experts"], drawn["topk"])
        sent = copies * (drawn["ranks"] - 1) / drawn["ranks"]
        return sent * drawn["hidden"] * width_of(kind, dtype) / chip.scaleup.bandwidth_bytes_s
    if kind in host_rows.KINDS:
        return drawn["rows"] * drawn["row_bytes"] / machine.host.link.bandwidth_bytes_s
    if kind == passes.INSTRUCTION:
        flops = 2 * drawn["count"] * drawn["warps"] * drawn["m"] * drawn["n"] * drawn["k"]
        return flops / (chip.rate(dtype) / chip.sm_count)
    if kind == passes.SORT:
        once = drawn["keys"] * (drawn["key_bytes"] + drawn["value_bytes"])
        digits = np.ceil(8 * drawn["key_bytes"] / drawn["digit_bits"])
        return np.where(once > 100 * chip.l2_bytes, 2 * digits * once, 0.0) / chip.memory_bandwidth_bytes_s
    flops, moved = work(kind, dtype, shape_of(kind, drawn))
    rate = chip.matrix_rate(dtype) if kind in MULTIPLY else chip.half_rate(dtype)
    if kind == "index_scores":
        rate = chip.rates_flops.get(dtype, rate)
    if kind.startswith("conv"):
        rate = max(rate, chip.rates_flops.get("fp32", 0.0))
    if kind == "elementwise":
        # What was just written is still in L2; tables far beyond it are not.
        moved = np.where(moved > 100 * chip.l2_bytes, moved, 0.0)
    return np.maximum(flops / rate, moved / chip.memory_bandwidth_bytes_s)


@KINDS
def test_never_below_the_roofline(kind: str) -> None:
    for machine, dtype, drawn in cases(kind):
        found, least = seconds(machine, kind, dtype, drawn), least_seconds(machine, kind, dtype, drawn)
        assert (found >= least * (1 - ROUNDING)).all(), (machine.chip.name, dtype)


def better(chip: Chip, memory: float, rate: float, link: float) -> Chip:
    def quicker(old: Link) -> Link:
        return replace(old, bandwidth_bytes_s=old.bandwidth_bytes_s * link)

    return replace(
        chip,
        memory_bandwidth_bytes_s=chip.memory_bandwidth_bytes_s * memory,
        rates_flops={name: value * rate for name, value in chip.rates_flops.items()},
        scaleup=quicker(chip.scaleup),
        scaleout=quicker(chip.scaleout),
    )


@KINDS
@pytest.mark.parametrize("times", [(2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.0, 2.0), (1.3, 1.1, 3.0)])
def test_a_better_chip_is_never_slower(kind: str, times: tuple[float, float, float]) -> None:
    for machine, dtype, drawn in cases(kind):
        quick = on(better(machine.chip, *times), like=machine.chip)
        slow, quicker = (seconds(each, kind, dtype, drawn) for each in (machine, quick))
        assert (quicker <= slow * (1 + ROUNDING)).all(), (machine.chip.name, dtype)


def growths(kind: str, drawn: Columns, draw: Draw) -> Iterator[tuple[str, Columns]]:
    """The same rows with more of one size: by one, and by some."""
    if kind in COLLECTIVES:
        names: tuple[str, ...] = ("bytes",)
    elif kind == "attention_decode":
        names = ("batch", "kv_len")
    elif kind.startswith("attention") or kind == "index_scores":
        names = ("batch", "kv_len", "q_len")
    elif kind.startswith("scan"):
        names = ("sequences",) if "decode" in kind else ("tokens",)
    else:
        names = {
            "moe": ("tokens", "hidden", "inter"),
            **dict.fromkeys(EXCHANGES, ("tokens", "hidden", "topk")),
            "conv": ("m",),
            "conv_few": ("m",),
            "conv_depthwise": ("m",),
            "gemm_unaligned": ("m", "n", "k", "batch"),
            # More bits of a digit are fewer passes, and more instructions in flight no more work.
            passes.SORT: ("keys", "key_bytes", "value_bytes"),
            passes.INSTRUCTION: ("m", "n", "k", "warps", "count"),
            # Rows that end with a sector are quicker than a byte less.
            host_rows.IN_PLACE: ("rows", "readers"),
            host_rows.COLLECTED: ("rows", "row_bytes", "readers"),
        }.get(kind, COLUMNS[kind])
    for name in names:
        for more in (np.ones(draw.rows), draw(1, 300), drawn[name]):
            longer = {"kv_len": drawn["kv_len"] + more} if name == "q_len" else {}
            if name == "sequences":
                longer = {"tokens": drawn["tokens"] + more}
            yield name, drawn | longer | {name: drawn[name] + more}


def spared(machine: Machine, kind: str, dtype: str, name: str, drawn: Columns) -> Floats | float:
    """What more work really may save.

    Attention of few sequences is split along its keys and summed up by a kernel of its own, which more work does
    without. FlashAttention-3 splits a cache so that a few parts may start a wave of their own; with a sequence or a
    tile more there are fewer parts, in one wave, in as little as half the time. And the idle rows of a prompt's last
    tile are computed along all keys, those that fill it up only as far as they see: half a tile at most, or all of it
    under a window.
    """
    if not kind.startswith("attention") and kind != "mla_decode":
        return 0.0
    c = machine.evidence(kind, dtype).coefficients
    summed = seconds(machine, kind, dtype, drawn) * SPLIT.get(kind, 0.0) + c.get("combine_us", 0.0) * 1e-6
    if kind == "attention_decode":
        rows = drawn["batch"] * drawn["heads"] * drawn["q_len"]
        summed = summed + 2 * rows * drawn["head_dim"] * c["part_ps"] * 1e-12
    if name != "q_len" or kind == "attention_backward":
        return summed
    rate = machine.chip.half_rate(dtype) * c["rate"]
    depth = drawn["head_dim"]
    if kind == "attention_forward":
        depth = np.ceil(depth / HEAD_STEP) * HEAD_STEP
    tile = QUERY_TILE * KEY_TILE * (4.0 * depth / rate + c["exp_ps"] * 1e-12 / machine.chip.sm_count)
    return summed + np.where(drawn["window"] > 0, 1.0, 0.5) * drawn["batch"] * drawn["heads"] * tile


def fallen(machine: Machine, kind: str, dtype: str, drawn: Columns, larger: Columns) -> Floats | float:
    """The part that a learnt residual may leave of a time where sizes grow: see `Axis.most_fall`. A narrow format that
    takes no longer than a wide one has the time of either."""
    family = machine.evidence(kind, dtype)
    wide = fallen(machine, kind, family.no_slower_than, drawn, larger) if family.no_slower_than else 1.0
    if family.residual is None:
        return wide
    small, large = shape_of(kind, drawn), shape_of(kind, larger)
    axes = family.residual.axes
    falls = [axis.most_fall * np.maximum(np.log2(axis.of(large) / axis.of(small)), 0.0) for axis in axes]
    return np.minimum(np.exp(-sum(falls)), wide)


@KINDS
def test_more_work_is_never_quicker(kind: str) -> None:
    for machine, dtype, drawn in cases(kind):
        before = seconds(machine, kind, dtype, drawn)
        for name, larger in growths(kind, drawn, Draw(f"{machine.chip.name} more")):
            after = seconds(machine, kind, dtype, larger)
            least = before - spared(machine, kind, dtype, name, drawn)
            least = least * fallen(machine, kind, dtype, drawn, larger)
            worst = int(np.argmin(after / np.maximum(least, 1e-12)))
            told = {key: values[worst] for key, values in larger.items()}
            assert (after >= least * (1 - ROUNDING)).all(), (machine.chip.name, dtype, name, told)


@KINDS
def test_a_table_is_priced_as_its_rows_are(kind: str) -> None:
    """One call for many rows, and one for each."""
    for machine, dtype, drawn in cases(kind):
        together = seconds(machine, kind, dtype, drawn)
        for row in range(0, 150, 75):
            alone = seconds(machine, kind, dtype, {name: values[row : row + 1] for name, values in drawn.items()})
            assert together[row] == pytest.approx(alone[0], rel=1e-12)
        break


@pytest.mark.parametrize("chip", ["H200-SXM-141GB", "H100-SXM-80GB", "MI300X", "RTX-4090"])
@KINDS
def test_sustained_is_never_quicker_than_a_burst(kind: str, chip: str) -> None:
    machine, drawn = on(catalog.chip(chip)), columns(kind, Draw(kind))
    for dtype in formats(kind, machine.chip):
        shape = shape_of(kind, drawn)
        clock_slowdown = machine.clock_slowdown(kind, dtype, shape, machine.seconds(kind, dtype, shape))
        assert (clock_slowdown >= 1).all()
        assert (clock_slowdown < 2.5).all(), dtype
