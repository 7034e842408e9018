"""What is transferred to a chip without a fit of its own: a donor's coefficients on its data sheet, with wider bands.

What no profile holds starts from the formula's own figures. Each family says where it is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import hypot

import numpy as np

from gnomon.cost.clock import BURST, BUSY
from gnomon.cost.kernels import kernel_model
from gnomon.cost.profile import HALF, PROMPT_SPREAD, SYSTEM_SPREAD, Family, Profile
from gnomon.graph.dtypes import GEMM_FORMATS
from gnomon.graph.ops import Shape
from gnomon.spec import Chip, Provenance

TRANSFER_SPREAD = 1.5
"""A sibling's coefficients on another chip spread more: the H200's bf16 GEMM fit spreads by 0.12 on the published
H100 table of vLLM 0.24 (AIConfigurator 0.12, 3,425 shapes), and by 0.08 on the H200's own held-out shapes."""
FOREIGN, FOREIGN_SHARED = 0.35, 0.25
"""What another architecture's fit adds to its spread, and to the part that its operators share: the H200's fits are
off by 0.15 (GEMMs) to 0.5 (decode attention) on the published A100 tables, mostly one way."""
NARROWED = ("gemm", "moe")
"""Kinds whose operands may be narrow."""
FORWARD, BACKWARD = "attention_forward", "attention_backward"
LONG: Shape = {
    "sequences": np.array([4.0]), "tokens": np.array([16384.0]), "pairs": np.array([4 * 4096 * 4097 / 2]),
    "context": np.array([16384.0]), "heads": np.array([32.0]), "kv_heads": np.array([8.0]),
    "head_dim": np.array([128.0]),
}  # fmt: skip
"""A shape that fills any chip, by which two fits are compared."""
OF_ANOTHER_KIND = 3.0
"""A processor so many times as fast as the donor's is an array of processors: a TPU's core has 120
times the rate of an H200's multiprocessor, a B200's multiprocessor twice."""
OF_A_PROCESSOR = {
    "sm_gb_s": 1.0, "step_ns": -1.0, "epilogue_us": -1.0, "block_us": -1.0, "key_tile_us": -1.0, "exp_ps": -1.0,
    "turn_us": -1.0, "tile_us": -1.0, "fill_us": -1.0, "lone_us": -1.0, "lone_ps": -1.0,
}  # fmt: skip
"""Coefficients that are absolute for one processor, and how they follow its size."""

Donor = tuple[Chip, Profile]
"""A chip that was measured, and its profile."""
BANDWIDTH_EXPONENT = 0.45
"""By which power of the memory bandwidth behind one processor a tile of keys takes it less time: a processor waits for
memory too. From H100 to H200 the fits' tiles fall with a power of 0.46; decodes published for an H20 (InferSim's
bench_data/mha, bf16, 32 heads over 8 and 4, 38 rows of 16 to 512 sequences), whose 78 processors share 4 TB/s, are
priced 18% too slow by the H100's tiles as they are, and off by 7% so. Its rows of an H800 are off by 3%."""


def of_kind(profile: Profile, kind: str) -> dict[str, Family]:
    return {key: family for key, family in profile.families.items() if key.partition(".")[0] == kind}


def transferred(kind: str, chip: Chip, donors: Iterable[Donor]) -> dict[str, Family]:
    """A kind of operator from the chips that run the same kernels, each format from the nearest that has it; else from
    the first of another generation; else from the formula's own figures."""
    found: dict[str, Family] = {}
    for donor, profile in donors:
        theirs = of_kind(profile, kind)
        if donor.generation != chip.generation:
            if found:
                break
            if chip.year <= donor.year or chip.vendor != donor.vendor:  # `efficiencies` knows more of these formats
                theirs = {key: one for key, one in theirs.items() if key.partition(".")[2] not in GEMM_FORMATS}
        more = {key: family for key, family in theirs.items() if key not in found}
        found |= {
            key: _kept(key, _widen(_fed(kind, family, chip, donor), chip, donor), chip, donor)
            for key, family in more.items()
        }
    return found or {f"{kind}.bf16": _formula(kind)}


def _kept(key: str, family: Family, chip: Chip, other: Chip) -> Family:
    """Another generation's kernel of a narrow format has cliffs of its own: it is no slower than the wide format's."""
    kind, dtype = key.split(".")[:2]
    own = other.generation == chip.generation or dtype in HALF or kind not in NARROWED
    return family if own else replace(family, no_slower_than=HALF[0])


def _fed(kind: str, family: Family, chip: Chip, other: Chip) -> Family:
    """Decodes of a sibling with more memory bandwidth behind each processor; of less nothing is known."""
    if kind != "attention_decode" or other.generation != chip.generation:
        return family
    theirs, ours = (one.memory_bandwidth_bytes_s / one.sm_count for one in (other, chip))
    sooner = {
        name: family.coefficients[name] * min(theirs / ours, 1.0) ** BANDWIDTH_EXPONENT
        for name in ("tile_us", "key_tile_us")
    }
    return replace(family, coefficients={**family.coefficients, **sooner})


def as_forward(chip: Chip, families: Mapping[str, Family], donors: Iterable[Donor]) -> dict[str, Family]:
    """A transferred backward attention, as much slower or faster than its donor's as the chip's own forward is."""
    donor = next((profile for _, profile in donors if of_kind(profile, BACKWARD)), None)
    if donor is None:
        return {}
    price = kernel_model(FORWARD).seconds
    theirs = next(iter(of_kind(donor, FORWARD).values()), None)
    own = next(family for key, family in families.items() if key.startswith(FORWARD))
    if theirs is None:
        return {}
    seconds = (float(price(LONG, "bf16", chip, family.coefficients)[0]) for family in (theirs, own))
    efficiency = next(seconds) / next(seconds)
    ranges = kernel_model(BACKWARD).ranges

    def scaled(family: Family) -> Family:
        c = dict(family.coefficients)
        for name, value in (("rate", c["rate"] * efficiency), ("exp_ps", c["exp_ps"] / efficiency)):
            c[name] = min(max(value, ranges[name][1]), ranges[name][2])
        return replace(family, coefficients=c, source=f"{family.source}, efficiency by its forward")

    return {key: scaled(family) for key, family in families.items() if key.startswith(BACKWARD)}


def transferred_profile(chip: Chip, donor: Chip, profile: Profile) -> Profile:
    """A profile without families of its own."""
    power = transferred_power(chip, donor, profile.power)
    source = f"transferred from {profile.source}"
    wide = replace(profile, system_spread=SYSTEM_SPREAD, prompt_spread=PROMPT_SPREAD)
    return replace(wide, source=source, families={}, power=power, transferred=True)


def transferred_power(chip: Chip, other: Chip, power: Mapping[str, float]) -> dict[str, float]:
    """Watts are the donor's share of its limit, joules per FLOP follow from the limit and the rate; joules per byte
    are the donor's. One die takes as many watts and joules under whatever limit, which then slows it the more the
    lower it is."""
    die = ("architecture", "sm_count", "rates_flops")
    same = all(getattr(chip, name) == getattr(other, name) for name in die)
    share = 1.0 if same else chip.tdp_w / other.tdp_w
    per_flop = share * other.rate(other.half) / chip.rate(chip.half)
    factors = {"active_w": share, BUSY: share, "j_per_flop": per_flop, BURST: per_flop}
    return {name: value * factors.get(name, 1.0) for name, value in power.items()} | {"idle_w": chip.idle_w}


def _formula(kind: str) -> Family:
    model = kernel_model(kind)
    return Family(
        coefficients={name: start for name, (start, _, _) in model.ranges.items()},
        spread=model.spread,
        shared=model.spread / 2,
        provenance=Provenance.FORMULA,
        source=f"{kind} by the data sheet, not measured on any chip yet",
    )


def _widen(family: Family, chip: Chip, other: Chip) -> Family:
    spread, shared, residual = family.spread * TRANSFER_SPREAD, family.shared + 0.05, family.residual
    if other.generation != chip.generation:
        spread, shared, residual = hypot(family.spread, FOREIGN), hypot(family.shared, FOREIGN_SHARED), None
    return replace(
        family,
        residual=residual,
        coefficients=_resized(family.coefficients, chip, other),
        spread=spread,
        shared=min(spread, shared),
        source=f"{family.source}, scaled by the data sheet of {chip.name}",
    )


def _resized(coefficients: Mapping[str, float], chip: Chip, donor: Chip) -> Mapping[str, float]:
    """Coefficients of one processor, where a chip has a few very large ones."""
    larger = chip.rate(chip.half) / chip.sm_count / (donor.rate(donor.half) / donor.sm_count)
    if larger <= OF_ANOTHER_KIND:
        return coefficients
    return {name: value * larger ** OF_A_PROCESSOR.get(name, 0.0) for name, value in coefficients.items()}
