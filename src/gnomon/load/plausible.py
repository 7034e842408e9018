"""Figures that a user writes down, set against those of the hardware that ships: what nothing built comes near is
refused, with the figure it was compared to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from math import inf, log

from gnomon import catalog
from gnomon.errors import InputError
from gnomon.spec import Chip

LEEWAY = 2.0
"""A figure may be so many times the most, or the least, that known hardware has: a what-if stays possible, a wrong
unit does not."""
DOMAIN_LEEWAY = 32
"""Leeway of the chips in one scale-up domain: a DGX GH200 joined 256 by NVLink 4, of which usual boards have eight."""
ROUNDING = 0.95
"""Share of the least ratio of two rates on known chips: data sheets round."""
WIDTHS = {"fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
SAME_DIE, SAME_MEMORY = 0.05, 0.001
"""Chips whose processors, clock and rate differ by less are one design under two names; and those whose memories do,
too, one model."""
_KIND = re.compile(r"[A-Z]+")


def check_chip(chip: Chip, where: str, like: Sequence[str] = ()) -> None:
    """Raise for a chip that cannot be built as its figures say, or whose power limit is not that of the shipped chips
    that it is `like` or stands in for: those it names, else the nearest of its architecture."""
    for dtype in chip.rates_flops:
        _check_rate(chip, dtype, f"{where}, field rates_tflops.{dtype}")
    _check_narrower(chip, where)
    _check_memory(chip, f"{where}, field memory_gb_s")
    check_domain(chip.scaleup_size, chip.scaleup.name, f"{where}, field scaleup_size")
    _check_watts(chip, f"{where}, field tdp_w")
    for named in like or ("",):
        _check_limit(chip, named, f"{where}, field tdp_w")


def check_domain(chips: int, link: str, where: str) -> None:
    """Raise for more chips in one scale-up domain than its links, or any known ones, join."""
    nodes = [catalog.bare_node(name) for name in catalog.node_names()]
    similar = [node for node in nodes if node.scaleup.name == link]
    largest = max(similar or nodes, key=lambda node: node.chips)
    most = largest.chips * (DOMAIN_LEEWAY if similar else 1)
    if chips > most:
        over = f" over {link}" if similar else ""
        message = f"{chips:,} chips in one node{over}: the largest known has {largest.chips:,} ({largest.name})"
        hint = f"Use at most {most:,}; beyond a node, chips are joined by its adapters."
        raise InputError(message, where=where, hint=hint)


def check_known(value: float, known: Mapping[str, float], where: str, *, below: float, above: float = LEEWAY) -> None:
    """Raise for a figure beyond `above` times the most that named hardware has, or the least divided by `below`."""
    _within(value, known, where=where, claim=f"{value:,g}", reference="known ones", below=below, above=above)


def _check_rate(chip: Chip, dtype: str, where: str) -> None:
    """What a processor does in a clock, beside known chips of its architecture, else beside all."""
    having = [one for one in catalog.chips() if dtype in one.rates_flops]
    similar = [one for one in having if one.architecture == chip.architecture]
    if not having:
        return
    each = _each_clock(chip, dtype)
    source = f"{chip.sm_count:,} processor{'s' if chip.sm_count > 1 else ''} at {chip.boost_hz / 1e6:,g} MHz"
    claim = f"{chip.rate(dtype) / 1e12:,g} TFLOP/s of {source} are {_figure(each)} operations per clock on each"
    reference = f"known {chip.architecture} chips" if similar else "known chips"
    _within(
        each,
        {one.name: _each_clock(one, dtype) for one in similar or having},
        where=where,
        claim=claim,
        reference=reference,
    )


def _each_clock(chip: Chip, dtype: str) -> float:
    return chip.rate(dtype) / chip.sm_count / chip.boost_hz


def _check_narrower(chip: Chip, where: str) -> None:
    """A narrower format is no slower than a wider one, but as far as known chips are so."""
    for wide, narrow in combinations(WIDTHS, 2):
        if WIDTHS[wide] == WIDTHS[narrow] or not {wide, narrow} <= set(chip.rates_flops):
            continue
        of, least = _least_ratio(wide, narrow)
        ratio = chip.rate(narrow) / chip.rate(wide)
        if ratio < ROUNDING * min(least, 1.0):
            reference = f"the least of known chips is {least:.3g} ({of})" if of else "a narrower format is no slower"
            message = f"{narrow} has {ratio:.3g} of the rate of {wide}; {reference}"
            hint = "Rates are in TFLOP/s, dense; leave out formats that it does not have."
            raise InputError(message, where=f"{where}, field rates_tflops.{narrow}", hint=hint)


@cache
def _least_ratio(wide: str, narrow: str) -> tuple[str, float]:
    """The known chip whose narrower format is slowest beside a wider one, and how slow."""
    having = [one for one in catalog.chips() if {wide, narrow} <= set(one.rates_flops)]
    known = {one.name: one.rate(narrow) / one.rate(wide) for one in having}
    return min(known.items(), key=lambda item: item[1], default=("", 1.0))


def _check_memory(chip: Chip, where: str) -> None:
    """Bandwidth beside that of known memory of its kind, and how often per second all of it is read."""
    kind, similar = _memory_like(chip)
    if not similar:
        return
    rate = chip.memory_bandwidth_bytes_s / 1e9
    rates = {one.name: one.memory_bandwidth_bytes_s / 1e9 for one in similar}
    reference = f"known chips with {kind}"
    _within(rate, rates, where=where, claim=f"{rate:,g} GB/s of {kind}", reference=reference, below=inf)
    turns = chip.memory_bandwidth_bytes_s / chip.memory_bytes
    claim = f"{rate:,g} GB/s read {chip.memory_bytes / 2**20:,.0f} MiB {_figure(turns)} times per second"
    each = {one.name: one.memory_bandwidth_bytes_s / one.memory_bytes for one in similar}
    _within(turns, each, where=where, claim=claim, reference=reference)


def _memory_like(chip: Chip) -> tuple[str, list[Chip]]:
    """Known chips with memory of the same kind, else of the same sort (HBM, GDDR), else none; all where none is named.

    What is named and of no known sort, such as SRAM, has nothing to be compared with.
    """
    known, kind = catalog.chips(), chip.memory.upper()
    if not kind:
        return "memory", list(known)
    sort = _KIND.match(kind)
    same = [one for one in known if one.memory.upper() == kind]
    like = [one for one in known if sort and (own := _KIND.match(one.memory.upper())) and own[0] == sort[0]]
    return chip.memory, same or like


def _check_watts(chip: Chip, where: str) -> None:
    """What a watt buys, beside known chips."""
    known = {one.name: one.rate(one.half) / one.tdp_w / 1e12 for one in catalog.chips()}
    each, rate = chip.rate(chip.half) / chip.tdp_w / 1e12, chip.rate(chip.half) / 1e12
    claim = f"{rate:,g} TFLOP/s in {chip.half} at {chip.tdp_w:g} W are {_figure(each)} per watt"
    _within(each, known, where=where, claim=claim, reference="known chips", below=inf)


def nearest_like(chip: Chip) -> str:
    """The shipped chip of the same architecture and power limit with the nearest figures, where there is one."""
    same = [one for one in _related(chip) if one.tdp_w == chip.tdp_w]
    return min(same, key=lambda one: sum(_distances(chip, one))).name if same else ""


def _check_limit(chip: Chip, like: str, where: str) -> None:
    """Raise where watts would follow the limit and times would not: a lower limit would save energy for nothing."""
    others = [catalog.chip(like)] if like else _nearest(chip)
    if not others or chip.tdp_w in [one.tdp_w for one in others]:
        return
    other = others[0]
    message = (
        f"{chip.tdp_w:g} W is not the {other.tdp_w:g} W of {other.name}, the chip it is {'' if like else 'most '}like: "
        "another power limit is not modelled, it would change the energy and leave the time as it is"
    )
    own = "a chip of another design has figures and an architecture of its own, and no `like`."
    hint = f"Use {other.tdp_w:g}{'' if like else ', or say which shipped chip it is `like`'}; {own}"
    raise InputError(message, where=where, hint=hint)


def _nearest(chip: Chip) -> list[Chip]:
    """Related chips with the nearest figures."""
    far = {one.name: sum(_distances(chip, one)) for one in _related(chip)}
    return [one for one in _related(chip) if far[one.name] <= min(far.values()) + SAME_MEMORY]


def _related(chip: Chip) -> list[Chip]:
    """Shipped chips of the same architecture, else of the same design under another name."""
    similar = [one for one in catalog.chips() if one.architecture == chip.architecture]
    return similar or [one for one in catalog.chips() if max(_distances(chip, one)[:3]) < SAME_DIE]


def _distances(chip: Chip, other: Chip) -> list[float]:
    pairs = (
        (chip.sm_count, other.sm_count),
        (chip.boost_hz, other.boost_hz),
        (chip.rate(chip.half), other.rate(other.half)),
        (chip.memory_bandwidth_bytes_s, other.memory_bandwidth_bytes_s),
        (chip.memory_bytes, other.memory_bytes),
    )
    return [abs(log(ours / theirs)) for ours, theirs in pairs]


def _within(
    value: float,
    known: Mapping[str, float],
    *,
    where: str,
    claim: str,
    reference: str,
    below: float = LEEWAY,
    above: float = LEEWAY,
) -> None:
    """Raise where a figure is beyond `above` times the most, or the least divided by `below`."""
    least, most = min(known.items(), key=lambda item: item[1]), max(known.items(), key=lambda item: item[1])
    if least[1] / below <= value <= most[1] * above:
        return
    ends = f"{_figure(least[1])} ({least[0]}) to {_figure(most[1])} ({most[0]})"
    raise InputError(f"{claim}; {reference} have {ends}", where=where, hint="Check the figure and its unit.")


def _figure(value: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
