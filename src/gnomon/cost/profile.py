"""Fitted coefficients of a chip: small, dated, with the error they had on data they had not seen.

Coefficients are fractions of the data sheet's figures or absolute times, so that a chip without a profile of
its own can borrow a sibling's and still answer with its own bandwidth and rates. So can a chip whose profile
lacks a family; what no profile holds starts from the formula's own figures. Each family says where it is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import hypot, log
from pathlib import Path
from typing import Any

import numpy as np

from gnomon import catalog
from gnomon.cost.clock import ATTENTION, BURST, BUSY, KEYS, LIMIT, NARROW
from gnomon.cost.kernels import MODELS, UNFITTED, kernel_model
from gnomon.cost.paces import Pace, pace
from gnomon.cost.residual import Residual, residual_from_dict
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.graph.dtypes import PRODUCTS, WIDTH
from gnomon.graph.ops import Shape
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import MIB, parse_yaml, read_text
from gnomon.load.schemas import check_schema
from gnomon.paths import home
from gnomon.spec import Chip, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One operator family in one number format."""

    coefficients: Mapping[str, float]
    spread: float
    """Standard deviation of log(predicted / measured) on held-out shapes: what one operator may be off by."""
    shared: float
    """The part of the spread that all operators of the family share (one chip, one library, one clock)."""
    provenance: Provenance
    source: str
    residual: Residual | None = None
    """What the formula leaves over, where a fit has learnt it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    chip: str
    """The one it was fitted on: whoever borrows it errs as that does."""
    source: str
    date: str
    families: Mapping[str, Family]
    power: Mapping[str, float]
    borrowed: bool = False
    architecture: str = ""
    """Of the chip it prices, where that is settled."""

    def family(self, kind: str, dtype: str, framework: str = "") -> Family:
        """The best evidence for an operator: a framework's own fit, its own format's, else the family's, else that of
        any framework there is."""
        own = (f"{kind}.{dtype}.{framework}", f"{kind}.bf16.{framework}") if framework else ()
        fitted = {f"{kind}.{dtype}", f"{kind}.{dtype}.{framework}"} & self.families.keys()
        paced = None if fitted else pace(kind, dtype, self.architecture)
        if paced:
            return _paced(self.family(kind, paced.base, framework), paced)
        for key in (*own, f"{kind}.{dtype}", kind, f"{kind}.bf16"):
            if key in self.families:
                return self.families[key] if dtype in key or dtype in HALF else _unfitted(self.families[key], dtype)
        others = [key for key in self.families if key.partition(".")[0] == kind]
        if others:
            return self.families[min(others, key=lambda key: (key.split(".")[1] != dtype, key))]
        raise KeyError(f"profile of {self.chip} has no family {kind}.{dtype}")


def _unfitted(family: Family, dtype: str) -> Family:
    """A fit in another format than the one that is asked for."""
    return replace(
        family,
        spread=hypot(family.spread, UNFITTED),
        shared=hypot(family.shared, UNFITTED / 2),
        source=f"{family.source}, none in {dtype}",
    )


def _paced(family: Family, found: Pace) -> Family:
    """A family in a format that nobody has fitted on this chip."""
    c = dict(family.coefficients)
    c |= {"rate": c["rate"] * found.rate, "memory": c["memory"] * found.memory}
    c["launch_us"] += found.launch_us
    return replace(
        family,
        coefficients=c,
        residual=None,
        spread=hypot(family.spread, found.spread),
        shared=hypot(family.shared, found.spread / 2),
        source=f"{family.source}, paced by {found.source}",
    )


SCHEMA = "gnomon.profile/1"
POWER = ("idle_w", "active_w", "j_per_flop", "j_per_byte")
"""Watts of an idle chip, watts of a busy one before it does anything, and joules of a FLOP and of a byte."""
MOST_POWER = {"idle_w": 5e3, "active_w": 5e3, "j_per_flop": 1e-9, "j_per_byte": 1e-6}
WIDEST = 3.0
"""A spread beyond this is no estimate."""
BORROWED = 1.5
"""A sibling's coefficients on another chip spread more: the H200's bf16 GEMM fit spreads by 0.12 on the published
H100 table of vLLM 0.24 (AIConfigurator 0.12, 3,425 shapes), and by 0.08 on the H200's own held-out shapes."""
FOREIGN, FOREIGN_SHARED = 0.35, 0.25
"""What another architecture's fit adds to its spread, and to the part that its operators share: the H200's fits are
off by 0.15 (matrix products) to 0.5 (decode attention) on the published A100 tables, mostly one way."""
FIGURES = (
    "architecture", "rates_flops", "memory_bandwidth_bytes_s", "l2_bytes", "sm_count", "boost_hz",
    "tdp_w", "idle_w",
)  # fmt: skip
"""What operators and watts follow from."""
FORWARD, BACKWARD = "attention_forward", "attention_backward"
LONG: Shape = {
    "sequences": np.array([4.0]), "tokens": np.array([16384.0]), "pairs": np.array([4 * 4096 * 4097 / 2]),
    "context": np.array([16384.0]), "heads": np.array([32.0]), "kv_heads": np.array([8.0]),
    "head_dim": np.array([128.0]),
}  # fmt: skip
"""A shape that fills any chip, by which two fits are compared."""
LENDS = "NVIDIA"
"""Whose chips lend to other architectures first: the published table of an Arc Pro B60 holds host time."""
OF_ANOTHER_KIND = 3.0
"""A processor so many times as fast as the lender's is no such processor but an array of them: a TPU's core has 120
times the rate of an H200's multiprocessor, a B200's multiprocessor twice."""
OF_A_PROCESSOR = {
    "sm_gb_s": 1.0, "step_ns": -1.0, "epilogue_us": -1.0, "block_us": -1.0, "key_tile_us": -1.0, "exp_ps": -1.0,
    "turn_us": -1.0, "tile_us": -1.0, "fill_us": -1.0, "lone_us": -1.0, "lone_ps": -1.0,
}  # fmt: skip
"""Coefficients that are absolute for one processor, and how they follow its size."""
FED = 0.45
"""By which power of the memory bandwidth behind one processor a tile of keys takes it less time: a processor waits for
memory too. From H100 to H200 the fits' tiles fall with a power of 0.46; decodes published for an H20 (InferSim's
bench_data/mha, bf16, 32 heads over 8 and 4, 38 rows of 16 to 512 sequences), whose 78 processors share 4 TB/s, are
priced 18% too slow by the H100's tiles as they are, and off by 7% so. Its rows of an H800 are off by 3%."""
HALF, SIXTEEN = ("bf16", "fp16"), "16"
"""Formats that run alike, and what stands for either."""


def profile_from_dict(data: Mapping[str, Any], where: str, whose: str = "") -> Profile:
    """A profile file's content, with the families it holds. Other schemas and incomplete files are refused. What is
    not shipped says `whose` it is."""
    check_schema(data.get("schema"), SCHEMA, where)
    try:
        source = f"{whose}{data['chip']} {data['date']}"
        end = f".{data['framework']}" if "framework" in data else ""
        profile = Profile(
            chip=find_chip(str(data["chip"])).name,
            source=source,
            date=str(data["date"]),
            families={f"{key}{end}": _family(key, it, source) for key, it in _mapping(data, "families").items()},
            power=_power(_mapping(data, "power")),
        )
        if not profile.families:
            raise ValueError(f"it holds none of {', '.join(MODELS)}")
        return profile
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UnknownNameError) as problem:
        told = f"it has no {problem}" if isinstance(problem, KeyError) else problem
        raise CalibrationError(f"is not a whole profile ({told})", where=where) from None


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data[name]
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no mapping of fields")
    return found


def _power(data: Mapping[str, Any]) -> dict[str, float]:
    """All of the board's figures, and those of its clock under the limit where they were measured."""
    needed = {name: _number(data[name], name, 0.0, MOST_POWER[name]) for name in POWER}
    if none := [name for name, value in needed.items() if value == 0]:
        raise ValueError(f"{none[0]} is not above 0")
    limits = {LIMIT: (0.2, 1.2), BURST: (0.0, 1e-9), ATTENTION: (0.2, 5.0)}
    given = {name: _number(data[name], name, *limits[name]) for name in KEYS if name in data}
    beside = {BUSY: (0.0, 5e3), NARROW: (0.2, 5.0)}
    more = {name: _number(data[name], name, *ends) for name, ends in beside.items() if name in data}
    return needed | (given | more if len(given) == len(KEYS) else {})


def _family(key: str, data: Mapping[str, Any], source: str) -> Family:
    kind, _, rest = str(key).partition(".")
    if rest.partition(".")[0] not in (*WIDTH, *PRODUCTS):
        raise ValueError(f"the family '{key}' is not an operator and its number format, as in gemm.bf16")
    if not isinstance(data, Mapping):
        raise ValueError(f"{key} is no mapping of fields")
    model, given = kernel_model(kind), _mapping(data, "coefficients")
    spread = _number(data["spread"], f"{key} spread", 0.0, WIDEST)
    ranges = {**model.ranges, **{name: ends for name, ends in model.some.items() if name in given}}
    return Family(
        coefficients={
            name: _number(given[name], f"{key} {name}", low, high) for name, (_, low, high) in ranges.items()
        },
        spread=spread,
        shared=_number(data["shared"], f"{key} shared, a part of its spread,", 0.0, spread),
        provenance=Provenance.FITTED,
        source=f"{source}, {data['source']}" if "source" in data else source,
        residual=residual_from_dict(data["residual"], model.axes) if "residual" in data else None,
    )


def _number(value: Any, what: str, low: float, high: float) -> float:
    """A number within its range; fits that end at the edge were rounded."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} is not a number")
    if not low * (1 - 1e-3) <= value <= high * (1 + 1e-3):
        raise ValueError(f"{what} is not between {low:g} and {high:g}")
    return float(value)


def user_profiles() -> Path:
    """The folder of profiles that `gnomon calibrate` made on this machine."""
    return home() / "profiles"


Files = Mapping[str, tuple[tuple[str, Path], ...]]
"""By chip: the frameworks that have a profile there, "" for what serving engines run, and the file of each."""


@cache
def _files(own: Path) -> Files:
    """The shipped profiles, and in their place the user's own of the same chip and framework."""
    found: dict[str, dict[str, Path]] = {}
    for path in (*catalog.profile_paths(), *sorted(own.glob("*.yaml"))):
        name, _, framework = path.stem.partition(".")
        try:
            found.setdefault(find_chip(name).name, {})[framework] = path
        except UnknownNameError as problem:
            raise CalibrationError(f"is named after no chip ({problem.message})", where=str(path)) from None
    return {chip: tuple(sorted(files.items())) for chip, files in found.items()}


def chips_with(framework: str) -> list[str]:
    """Chips that have a profile of a framework's own."""
    return [chip for chip, files in _files(user_profiles()).items() if framework in dict(files)]


def frameworks() -> list[str]:
    """Those that profiles are of."""
    return sorted({name for files in _files(user_profiles()).values() for name, _ in files if name})


@cache
def _text(path: Path) -> str:
    return read_text(path, MIB)


@cache
def _read(path: Path) -> Profile:
    data = parse_yaml(_text(path), str(path))
    profile = profile_from_dict(data, str(path), f"your profile {path}, " if path.parent == user_profiles() else "")
    name, _, framework = path.stem.partition(".")
    inside = (profile.chip, str(data.get("framework", "")))
    if inside != (find_chip(name).name, framework):
        told = " ".join(filter(None, inside))
        raise CalibrationError(f"is named '{path.name}', and holds a profile of {told}", where=str(path))
    return profile


def forget_profiles() -> None:
    """Read them again: a file has changed."""
    _files.cache_clear()
    _text.cache_clear()
    _read.cache_clear()


def profile_of(name: str, framework: str = "") -> Profile | None:
    """What was fitted on a chip itself, with a framework's own families where it has a file of its own."""
    files = dict(_files(user_profiles()).get(name, ()))
    wanted = [files[each] for each in dict.fromkeys(("", framework)) if each in files]
    read = [_read(path) for path in wanted or list(files.values())[:1]]
    return replace(read[0], families={key: it for one in read for key, it in one.families.items()}) if read else None


def profile_for(chip: Chip, framework: str = "") -> Profile:
    """The chip's own profile; what it lacks, or all, is its nearest sibling's with wider bands, which says so."""
    names = _nearest(chip)
    own = profile_of(chip.name, framework) or _twin(chip, names, framework) or _borrowed(chip, _plain(names[0]))
    names = [name for name in names if own.borrowed or name != own.chip]
    families = dict(own.families)
    for kind in MODELS:
        known = {_format(key) for key in _of_kind(own, kind)}
        near = [name for name in names if SIXTEEN not in known or find_chip(name).architecture == chip.architecture]
        lent = _lent(kind, chip, _lenders(near, kind, framework)) if near or not known else {}
        families |= {key: family for key, family in lent.items() if _format(key) not in known}
    if not _of_kind(own, BACKWARD) and _of_kind(own, FORWARD):
        families |= _as_forward(chip, families, _lenders(names, BACKWARD, framework))
    return replace(own, families=families, architecture=chip.architecture)


def _plain(name: str) -> Profile:
    found = profile_of(name)
    assert found is not None  # only chips with plain profiles are named
    return found


def _lenders(names: Iterable[str], kind: str, framework: str) -> Iterator[Profile]:
    """Profiles of these chips that have a kind of operator, read as they are asked for."""
    for name in names:
        files = dict(_files(user_profiles())[name])
        held = [files[each] for each in ("", framework) if each in files]
        if any(f"\n  {kind}." in _text(path) for path in held) and (found := profile_of(name, framework)):
            yield found


def _format(key: str) -> str:
    """The number format of a family; those of 16 bits run alike."""
    dtype = key.split(".")[1]
    return SIXTEEN if dtype in HALF else dtype


def _twin(chip: Chip, names: Iterable[str], framework: str) -> Profile | None:
    """The profile of a chip that differs in nothing but its name, and where and for how much it is bought."""

    def figures(one: Chip) -> tuple[object, ...]:
        return tuple(getattr(one, name) for name in FIGURES)

    alike = (name for name in names if figures(find_chip(name)) == figures(chip))
    return profile_of(next(alike, ""), framework)


def _as_forward(chip: Chip, families: Mapping[str, Family], lenders: Iterable[Profile]) -> dict[str, Family]:
    """A lent backward attention, as much slower or quicker than its lender's as the chip's own forward is."""
    lender = next((profile for profile in lenders if _of_kind(profile, BACKWARD)), None)
    if lender is None:
        return {}
    price = kernel_model(FORWARD).seconds
    theirs = next(iter(_of_kind(lender, FORWARD).values()), None)
    own = next(family for key, family in families.items() if key.startswith(FORWARD))
    if theirs is None:
        return {}
    seconds = (float(price(LONG, "bf16", chip, family.coefficients)[0]) for family in (theirs, own))
    pace = next(seconds) / next(seconds)
    ranges = kernel_model(BACKWARD).ranges

    def paced(family: Family) -> Family:
        c = dict(family.coefficients)
        for name, value in (("rate", c["rate"] * pace), ("exp_ps", c["exp_ps"] / pace)):
            c[name] = min(max(value, ranges[name][1]), ranges[name][2])
        return replace(family, coefficients=c, source=f"{family.source}, paced by its forward")

    return {key: paced(family) for key, family in families.items() if key.startswith(BACKWARD)}


def _borrowed(chip: Chip, lender: Profile) -> Profile:
    """A profile without families of its own."""
    power = lent_power(chip, lender)
    return replace(lender, source=f"borrowed from {lender.source}", families={}, power=power, borrowed=True)


def lent_power(chip: Chip, lender: Profile) -> dict[str, float]:
    """Watts are the lender's share of its limit, joules a FLOP follow from the limit and the rate; joules a byte are
    taken as they are."""
    other = find_chip(lender.chip)
    share = chip.tdp_w / other.tdp_w
    per_flop = share * other.rate(other.half) / chip.rate(chip.half)
    factors = {"active_w": share, BUSY: share, "j_per_flop": per_flop, BURST: per_flop}
    return {name: value * factors.get(name, 1.0) for name, value in lender.power.items()} | {"idle_w": chip.idle_w}


def _nearest(chip: Chip) -> list[str]:
    """Chips with plain profiles: of the same architecture first, then of
    the maker with the best tables, then by how like their rates and memories are."""

    def distance(name: str) -> tuple[bool, bool, float, float]:
        other = find_chip(name)
        rates = log(other.rate(other.half) / chip.rate(chip.half))
        memory = log(other.memory_bandwidth_bytes_s / chip.memory_bandwidth_bytes_s)
        foreign = other.architecture != chip.architecture
        return foreign, foreign and other.vendor != LENDS, abs(rates), abs(memory)

    return sorted((name for name, files in _files(user_profiles()).items() if "" in dict(files)), key=distance)


def _of_kind(profile: Profile, kind: str) -> dict[str, Family]:
    return {key: family for key, family in profile.families.items() if key.partition(".")[0] == kind}


def _lent(kind: str, chip: Chip, lenders: Iterable[Profile]) -> dict[str, Family]:
    """A kind of operator from the first who has it, else from the formula's own figures."""
    for lender in lenders:
        found = _of_kind(lender, kind)
        if find_chip(lender.chip).architecture != chip.architecture:  # `paces` knows more of these formats' kernels
            found = {key: family for key, family in found.items() if key.partition(".")[2] not in PRODUCTS}
        if found:
            return {key: _widen(_fed(kind, family, chip, lender), chip, lender) for key, family in found.items()}
    return {f"{kind}.bf16": _formula(kind)}


def _fed(kind: str, family: Family, chip: Chip, lender: Profile) -> Family:
    """Decodes of a sibling with more memory bandwidth behind each processor; of less nothing is known."""
    other = find_chip(lender.chip)
    if kind != "attention_decode" or other.architecture != chip.architecture:
        return family
    theirs, ours = (one.memory_bandwidth_bytes_s / one.sm_count for one in (other, chip))
    sooner = {name: family.coefficients[name] * min(theirs / ours, 1.0) ** FED for name in ("tile_us", "key_tile_us")}
    return replace(family, coefficients={**family.coefficients, **sooner})


def _formula(kind: str) -> Family:
    model = kernel_model(kind)
    return Family(
        coefficients={name: start for name, (start, _, _) in model.ranges.items()},
        spread=model.spread,
        shared=model.spread / 2,
        provenance=Provenance.FORMULA,
        source=f"{kind} by the data sheet, not measured on any chip yet",
    )


def _widen(family: Family, chip: Chip, lender: Profile) -> Family:
    other = find_chip(lender.chip)
    spread, shared, learnt = family.spread * BORROWED, family.shared + 0.05, family.residual
    if other.architecture != chip.architecture:
        spread, shared, learnt = hypot(family.spread, FOREIGN), hypot(family.shared, FOREIGN_SHARED), None
    return replace(
        family,
        residual=learnt,
        coefficients=_resized(family.coefficients, chip, other),
        spread=spread,
        shared=min(spread, shared),
        source=f"{family.source}, scaled by the data sheet of {chip.name}",
    )


def _resized(coefficients: Mapping[str, float], chip: Chip, lender: Chip) -> Mapping[str, float]:
    """Coefficients of one processor, where a chip has a few very large ones."""
    larger = chip.rate(chip.half) / chip.sm_count / (lender.rate(lender.half) / lender.sm_count)
    if larger <= OF_ANOTHER_KIND:
        return coefficients
    return {name: value * larger ** OF_A_PROCESSOR.get(name, 0.0) for name, value in coefficients.items()}
