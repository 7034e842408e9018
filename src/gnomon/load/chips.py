"""Chips by name or by file: those that ship, those of the user's folder, and a file named on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.catalog.book import squash
from gnomon.catalog.figures import CONFIDENCES
from gnomon.errors import GnomonError, InputError, named_by
from gnomon.load.fields import Fields, as_number, shown
from gnomon.load.files import as_path, read_yaml
from gnomon.load.plausible import check_chip
from gnomon.paths import home
from gnomon.spec import Chip
from gnomon.spec.chip import FORMATS

SCHEMA = "gnomon.chip/1"
ENDINGS = (".yaml", ".yml")

RANGES = {
    "memory_mib": (256, 2**24),
    "memory_gb_s": (10, 1e6),
    "l2_mib": (0.25, 1e5),
    "boost_mhz": (100, 10_000),
    "tdp_w": (1, 20_000),
    "idle_w": (0.1, 5_000),
    "scaleup_gb_s": (0.1, 1e5),
    "price_usd_h": (1e-4, 1e4),
}
"""Beyond these a figure is in another unit than its name says."""
RATE = (0.001, 1e7)
MOST_PROCESSORS, LARGEST_DOMAIN = 1_000_000, 1_000_000


@dataclass(frozen=True)
class ChipBook:
    """The chips that are known by name, as the user's folder and the catalog have them when it is opened."""

    own: Mapping[str, Chip]
    """Chips of the user's folder."""

    @cached_property
    def _spelled(self) -> dict[str, Chip]:
        return {squash(name): entry for entry in self.own.values() for name in (entry.name, *entry.aliases)}

    def find(self, ref: str, where: str = "") -> Chip:
        """The chip of a name or an alias."""
        own = self._spelled.get(squash(ref))
        if own is not None:
            return own
        found = catalog.find_chip(ref)
        if found is None:
            error = catalog.unknown_chip(ref, chip_spellings())
            error.where = where
            raise error
        return catalog.chip(found)


def chip_book() -> ChipBook:
    return ChipBook(own_chips())


def chip(ref: str, where: str = "") -> Chip:
    """The chip of a name, an alias, or the file that describes one."""
    return read_chip(as_path(ref), given=True) if is_file_name(ref) else chip_book().find(ref, where)


def chips() -> tuple[Chip, ...]:
    """Every chip that is known by name: the user's own first, then the shipped ones they do not replace."""
    own = own_chips()
    return (*own.values(), *map(catalog.chip, _unreplaced(own)))


def chip_names() -> tuple[str, ...]:
    """Names of all known chips, without parsing the shipped ones."""
    own = own_chips()
    return (*own, *_unreplaced(own))


def _unreplaced(own: Mapping[str, Chip]) -> tuple[str, ...]:
    taken = {catalog.find_chip(name) for entry in own.values() for name in (entry.name, *entry.aliases)}
    return tuple(name for name in catalog.chip_names() if name not in taken)


def chip_spellings() -> dict[str, str]:
    own = {alias: entry.name for entry in own_chips().values() for alias in (entry.name, *entry.aliases)}
    return own | {spelling: name for spelling, name in catalog.chip_spellings().items() if spelling not in own}


def is_file_name(text: str) -> bool:
    return text.strip().lower().endswith(ENDINGS)


def own_folder() -> Path:
    """Where a user's chips lie, a file each."""
    return home() / "chips"


def own_chips() -> dict[str, Chip]:
    """The chips of the user's folder by name. A file that cannot be trusted is refused, whatever was asked for."""
    try:
        files = sorted(path for path in own_folder().iterdir() if path.suffix in ENDINGS)
        marks = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    except OSError:
        return {}
    return _own_chips(marks)


@cache
def _own_chips(marks: tuple[tuple[Path, int, int], ...]) -> dict[str, Chip]:
    found: dict[str, Chip] = {}
    taken: dict[str, Path] = {}
    for path, _, _ in marks:
        entry = read_chip(path)
        for spelling in dict.fromkeys(map(squash, (entry.name, *entry.aliases))):
            if spelling in taken:
                field = "name" if spelling == squash(entry.name) else "aliases"
                raise InputError(f"is named like the chip of {taken[spelling]}", where=f"{path}, field {field}")
            taken[spelling] = path
        found[entry.name] = entry
    return found


def read_chip(path: Path, given: bool = False) -> Chip:
    """A chip from a file; one that was `given` by its path is found again by it."""
    return chip_from_dict(read_yaml(path), str(path), given)


def chip_from_dict(data: Mapping[str, Any], where: str, given: bool = False) -> Chip:
    """A chip from a file's fields, each checked. It stands in for a shipped chip only where it says so.

    One that is `given` by its file, and is not known by its name, remembers where that stands.
    """
    fields = Fields(data, where)
    fields.check_schema(SCHEMA)
    entry: dict[str, Any] = {name: fields.text(name) for name in ("name", "vendor", "architecture", "source")}
    entry |= {name: fields.text(name, "") for name in ("memory", "note")}
    entry["aliases"] = _names(fields, "aliases")
    entry["date"] = str(fields.raw("date"))
    entry["year"] = fields.whole("year", 0, least=0, most=2200)
    entry |= {name: _figure(fields, name) for name in RANGES if name != "scaleup_gb_s"}
    entry["processors"] = fields.whole("processors", most=MOST_PROCESSORS)
    entry |= _domain(fields)
    entry["rates_tflops"] = _rates(fields, "rates_tflops")
    entry["sparse_tflops"] = _rates(fields, "sparse_tflops", needed=False)
    entry["node"] = _node(fields)
    entry |= _bridge(fields) | _confidence(fields) | _sources(fields)
    replaced, like = _shipped(fields, "replaces"), _shipped(fields, "like")
    fields.done()
    if entry["idle_w"] >= entry["tdp_w"]:
        raise InputError(f"{entry['idle_w']:g} W idle is not below the limit of {entry['tdp_w']:g} W", where=where)
    _check_names(entry, replaced, where)
    if replaced:
        spellings = [spelling for spelling, name in catalog.chip_spellings().items() if name == replaced]
        entry["aliases"] = [*entry["aliases"], *spellings]
    found = catalog.chip_from_entry(entry, str(Path(where).resolve()) if given else "")
    check_chip(found, where, [name for name in (like, replaced) if name])
    return found


def _figure(fields: Fields, name: str) -> float:
    low, high = RANGES[name]
    value = fields.number(name)
    if not low <= value <= high:
        raise InputError(f"{shown(value)} is not between {low:g} and {high:g}", where=fields.spot(name))
    return value


def _domain(fields: Fields) -> dict[str, Any]:
    """The chip's own links, where they differ from those of its node."""
    found: dict[str, Any] = {}
    if fields.raw("scaleup_gb_s", None) is not None:
        found["scaleup_gb_s"] = _figure(fields, "scaleup_gb_s")
    if fields.raw("scaleup_size", None) is not None:
        found["scaleup_size"] = fields.whole("scaleup_size", most=LARGEST_DOMAIN)
    return found


def _rates(fields: Fields, name: str, needed: bool = True) -> dict[str, float]:
    inner = fields.inner(name)
    given = inner.items()
    for dtype, value in given.items():
        value = as_number(value)
        if dtype not in FORMATS:
            known = f"Known: {', '.join(FORMATS)}."
            raise InputError(f"'{dtype}' is not a number format", where=fields.spot(name), hint=known)
        low, high = RATE
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise InputError(f"{shown(value)} is not between {low:g} and {high:g}", where=inner.spot(dtype))
    if needed and not given:
        raise InputError("names no rate", where=fields.spot(name), hint="As in {fp32: 67, bf16: 989}.")
    return {dtype: float(as_number(value)) for dtype, value in given.items()}


def _names(fields: Fields, name: str) -> list[str]:
    listed = fields.list(name)
    wrong = next((item for item in listed if not isinstance(item, str) or not squash(item)), None)
    if wrong is not None:
        raise InputError(f"{shown(wrong)} is not a name", where=fields.spot(name))
    return listed


def _node(fields: Fields) -> str:
    with named_by(fields.spot("node")):
        return catalog.node(fields.text("node")).name


def _bridge(fields: Fields) -> dict[str, Any]:
    if fields.raw("bridge", None) is None:
        return {}
    inner = fields.inner("bridge")
    with named_by(inner.spot("link")):
        link = catalog.link(inner.text("link")).name
    found = {"link": link, "gb_s": inner.number("gb_s"), "size": inner.whole("size", least=2, most=LARGEST_DOMAIN)}
    inner.done()
    return {"bridge": found}


def _confidence(fields: Fields) -> dict[str, str]:
    said = fields.text("confidence", "read")
    if said not in CONFIDENCES:
        hint = f"Known: {', '.join(CONFIDENCES)}."
        raise InputError(f"{shown(said)} is not how a figure is known", where=fields.spot("confidence"), hint=hint)
    return {"confidence": said}


def _sources(fields: Fields) -> dict[str, Any]:
    """Sources of single figures: a text each, or a mapping of source, date and confidence."""
    inner = fields.inner("sources")
    found: dict[str, Any] = {}
    for name, said in inner.items().items():
        if isinstance(said, str):
            found[name] = {"source": said}
            continue
        parts = Fields(said, inner.spot(name))
        given = {key: parts.raw(key, None) for key in ("source", "date")}
        found[name] = {key: str(value) for key, value in given.items() if value is not None} | _confidence(parts)
        parts.done()
    return {"sources": found}


def _shipped(fields: Fields, name: str) -> str:
    """The shipped chip that a field names, if any."""
    said = fields.text(name, "")
    if not said:
        return ""
    with named_by(fields.spot(name)):
        return catalog.chip(said).name


def _check_names(entry: Mapping[str, Any], replaced: str, where: str) -> None:
    for field, spelling in (("name", entry["name"]), *(("aliases", alias) for alias in entry["aliases"])):
        found = catalog.find_chip(spelling)
        if found is not None and found != replaced:
            hint = f"Choose another name, or add `replaces: {found}` to take its place."
            raise InputError(f"'{spelling}' is already the name of {found}", where=f"{where}, field {field}", hint=hint)
    if not squash(entry["name"]) or ":" in entry["name"] or "," in entry["name"]:
        raise InputError(f"{shown(entry['name'])} cannot be a chip's name", where=f"{where}, field name")


def try_names() -> tuple[str, ...]:
    """Names to complete a word with; a broken file of the user's is no reason to offer none."""
    try:
        return tuple(chip_spellings())
    except GnomonError:
        return tuple(catalog.chip_spellings())
