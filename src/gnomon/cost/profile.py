"""Which profile a chip gets: the user's own, the shipped one, or what its nearest siblings lend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path

from gnomon import catalog
from gnomon.cost.kernels import MODELS
from gnomon.cost.lending import BACKWARD, FORWARD, as_forward, borrowed, lent, of_kind
from gnomon.cost.profile_file import HALF, Profile, profile_from_dict
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import MIB, parse_yaml, read_text
from gnomon.paths import home
from gnomon.spec import Chip

FIGURES = (
    "architecture", "rates_flops", "memory_bandwidth_bytes_s", "l2_bytes", "sm_count", "boost_hz",
    "tdp_w", "idle_w",
)  # fmt: skip
"""What operators and watts follow from."""
LENDS = "NVIDIA"
"""Whose chips lend to other architectures first: the published table of an Arc Pro B60 holds host time."""
SIXTEEN = "16"
"""Stands for either format of 16 bits."""


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
    own = profile_of(chip.name, framework) or _twin(chip, names, framework) or borrowed(chip, _plain(names[0]))
    names = [name for name in names if own.borrowed or name != own.chip]
    families = dict(own.families)
    for kind in MODELS:
        known = {_format(key) for key in of_kind(own, kind)}
        near = [name for name in names if SIXTEEN not in known or find_chip(name).architecture == chip.architecture]
        found = lent(kind, chip, _lenders(near, kind, framework)) if near or not known else {}
        families |= {key: family for key, family in found.items() if _format(key) not in known}
    if not of_kind(own, BACKWARD) and of_kind(own, FORWARD):
        families |= as_forward(chip, families, _lenders(names, BACKWARD, framework))
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
