"""Which profile a chip gets: the user's own, the shipped one, or what is transferred from its nearest siblings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import log
from pathlib import Path

from gnomon import catalog
from gnomon.cost.card import CARD_SPREAD, CardFactors
from gnomon.cost.efficiencies import CARD
from gnomon.cost.kernels import MODELS
from gnomon.cost.profile import HALF, PROMPT_SPREAD, SYSTEM_SPREAD, Profile
from gnomon.cost.transfer import BACKWARD, FORWARD, Donor, as_forward, of_kind, transferred, transferred_profile
from gnomon.engines import kernel_choices
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.load.cards import own_cards
from gnomon.load.chips import ChipBook, own_chips
from gnomon.load.files import read_yaml
from gnomon.load.profile_file import profile_from_dict
from gnomon.paths import home
from gnomon.spec import Chip

FIGURES = (
    "architecture", "rates_flops", "memory_bandwidth_bytes_s", "l2_bytes", "sm_count", "boost_hz",
    "tdp_w", "idle_w",
)  # fmt: skip
"""What operators and watts follow from."""
DONOR_VENDOR = "NVIDIA"
"""Whose chips are donors to other architectures first: the published table of an Arc Pro B60 holds host time."""
ONE_KIND = 1.3
"""How much more arithmetic a multiprocessor may do per cycle than a donor's of its generation: cards for games sum up
in 32 bits at half the rate of the others, and come closer to it."""
LOOSE = 0.5
"""A table of its generation that spreads as much says less of a chip than one of another, which adds 0.35."""
EXPERTS = "moe"
SIXTEEN = "16"
"""Stands for either format of 16 bits."""


def user_profiles() -> Path:
    """The folder of profiles that `gnomon calibrate` made on this machine."""
    return home() / "profiles"


@dataclass(frozen=True, eq=False)
class Profiles:
    """The shipped profiles, and in their place the user's own of the same chip and framework."""

    own: Path | None
    """The folder of the user's own, where there is one."""
    chips: ChipBook

    @cached_property
    def files(self) -> Mapping[str, Mapping[str, Path]]:
        """By chip: the file of each framework that has one there, "" for what serving engines run."""
        found: dict[str, dict[str, Path]] = {}
        for path in (*catalog.profile_paths(), *sorted(self.own.glob("*.yaml") if self.own else ())):
            name, _, framework = path.stem.partition(".")
            try:
                found.setdefault(self.chips.find(name).name, {})[framework] = path
            except UnknownNameError as problem:
                raise CalibrationError(f"is named after no chip ({problem.message})", where=str(path)) from None
        return {chip: dict(sorted(files.items())) for chip, files in found.items()}

    def is_own(self, name: str) -> bool:
        """Whether the user measured a profile of the chip."""
        return any(path.parent == self.own for path in self.files.get(name, {}).values())

    @cached_property
    def _found(self) -> dict[tuple[Chip, str], Profile]:
        return {}

    def of(self, name: str, framework: str = "") -> Profile | None:
        """What was fitted on a chip itself, with a framework's own families where it has a file of its own."""
        files = self.files.get(name, {})
        wanted = [files[each] for each in dict.fromkeys(("", framework)) if each in files]
        read = [self._read(path, name) for path in wanted or list(files.values())[:1]]
        families = {key: family for one in read for key, family in one.families.items()}
        if not read:
            return None
        first = read[0]
        if framework and first.prompt_spread:  # what served deployments say of a chip says nothing of trainers
            first = replace(first, system_spread=SYSTEM_SPREAD, prompt_spread=0.0)
        elif not framework and "" not in files:  # no served deployment was compared with a table of kernels alone
            first = replace(first, prompt_spread=PROMPT_SPREAD)
        return replace(first, families=families)

    def _read(self, path: Path, chip: str) -> Profile:
        profile, framework = _read(path, path.parent == self.own)
        inside = profile.chip if profile.chip == chip else self._named(profile.chip, path)
        if (inside, framework) != (chip, path.stem.partition(".")[2]):
            content = " ".join(filter(None, (inside, framework)))
            raise CalibrationError(f"is named '{path.name}', and holds a profile of {content}", where=str(path))
        return replace(profile, chip=chip)

    def _named(self, name: str, path: Path) -> str:
        try:
            return self.chips.find(name).name
        except UnknownNameError as problem:
            raise CalibrationError(f"is not a whole profile ({problem})", where=str(path)) from None

    def resolve(self, chip: Chip, framework: str = "") -> Profile:
        """The chip's own profile; what it lacks, or all, is its nearest sibling's with wider bands, which says so."""
        if (chip, framework) not in self._found:
            self._found[chip, framework] = self._resolved(chip, framework)
        return self._found[chip, framework]

    def on_card(self, chip: Chip, framework: str, card: CardFactors | None) -> Profile:
        """The profile for one card: with its factors where they are known, or else with what cards of one kind differ
        by."""
        known = (chip, framework, card.source if card else "", tuple(sorted(card.factors.items())) if card else ())
        if known not in self._cards:
            profile = self.resolve(chip, framework)
            wider = replace(profile, system_spread=max(profile.system_spread, CARD_SPREAD))
            self._cards[known] = card.applied(profile) if card else wider
        return self._cards[known]

    @cached_property
    def _cards(self) -> dict[tuple[object, ...], Profile]:
        return {}

    def _resolved(self, chip: Chip, framework: str) -> Profile:
        donors = self._nearest(chip)
        own = self.of(chip.name, framework) or self._twin(chip, donors, framework) or self._whole(chip, donors[0])
        donors = [donor for donor in donors if own.transferred or donor.name != own.chip]
        kin = [one for one in self._kin(chip, donors) if one.name != own.chip]
        families = dict(own.families)
        for kind in MODELS:
            known = {_format(key) for key in of_kind(own, kind)}
            near = [donor for donor in donors if SIXTEEN not in known or donor.generation == chip.generation]
            if SIXTEEN not in known and (alike := list(self._with(kind, kin, framework, any_framework=True))):
                theirs = transferred(kind, chip, alike).items()
                more = {key: one for key, one in theirs if one.spread < LOOSE and _format(key) not in known}
                families, known = families | more, known | {_format(key) for key in more}
            found = transferred(kind, chip, self._run(kind, chip, near, framework)) if near or not known else {}
            families |= {key: family for key, family in found.items() if _format(key) not in known}
        if not of_kind(own, BACKWARD) and of_kind(own, FORWARD):
            families |= as_forward(chip, families, self._with(BACKWARD, donors, framework))
        card = chip.generation == "Blackwell" and not chip.memory.startswith("HBM")
        return replace(own, families=families, architecture=CARD if card else chip.architecture)

    def _whole(self, chip: Chip, donor: Chip) -> Profile:
        found = self.of(donor.name)
        assert found is not None  # only chips with plain profiles are donors
        return transferred_profile(chip, donor, found)

    def _run(self, kind: str, chip: Chip, donors: Iterable[Chip], framework: str) -> Iterator[Donor]:
        """Donors of a kind of operator, with the kernels that run on a chip."""
        for donor, profile in self._with(kind, donors, framework):
            yield donor, kernel_choices().as_run(chip, donor, profile) if kind == EXPERTS else profile

    def _kin(self, chip: Chip, donors: Iterable[Chip]) -> list[Chip]:
        """Chips of the same generation whose multiprocessors do as much per cycle and that only have profiles of a
        framework, where none of those has a plain one: the nearest in rate first."""
        measured = [self.chips.find(name) for name in self.files if name != chip.name]
        alike = [one for one in measured if (one.vendor, one.generation) == (chip.vendor, chip.generation)]
        alike = [one for one in alike if abs(log(_each_cycle(one) / _each_cycle(chip))) < log(ONE_KIND)]
        if any(one in donors for one in alike):
            return []
        return sorted(alike, key=lambda one: (abs(log(one.rate(one.half) / chip.rate(chip.half))), one.name))

    def _with(
        self, kind: str, donors: Iterable[Chip], framework: str, *, any_framework: bool = False
    ) -> Iterator[Donor]:
        """The chips whose profiles have a kind of operator; profiles are read on demand."""
        for donor in donors:
            files = self.files[donor.name]
            held = [files[each] for each in ("", framework) if each in files]
            held = held or (list(files.values())[:1] if any_framework else [])
            if any(self._has(kind, path) for path in held) and (found := self.of(donor.name, framework)):
                yield donor, found

    def _has(self, kind: str, path: Path) -> bool:
        """Whether a file has families of a kind of operator; of shipped ones that is known unread."""
        if path.parent != self.own:
            return kind in catalog.profile_kinds(path)
        return any(key.partition(".")[0] == kind for key in _read(path, True)[0].families)

    def _twin(self, chip: Chip, donors: Iterable[Chip], framework: str) -> Profile | None:
        """The profile of a chip that differs in nothing but its name, and where and for how much it is bought."""

        def figures(one: Chip) -> tuple[object, ...]:
            return tuple(getattr(one, name) for name in FIGURES)

        alike = (donor.name for donor in donors if figures(donor) == figures(chip))
        return self.of(next(alike, ""), framework)

    def _nearest(self, chip: Chip) -> list[Chip]:
        """Chips with plain profiles: of the same generation first, then of the maker with the best tables, then by how
        like their rates and memories are. Where none is of its generation, all chips of that have the same donors, so
        that they keep their order: those of its fastest."""
        donors = [self.chips.find(name) for name, files in self.files.items() if "" in files]
        if all(donor.generation != chip.generation for donor in donors):
            alike = [one for one in catalog.chips() if (one.vendor, one.generation) == (chip.vendor, chip.generation)]
            chip = max(alike, key=lambda one: one.rate(one.half), default=chip)

        def distance(other: Chip) -> tuple[bool, bool, float, float]:
            rates = log(other.rate(other.half) / chip.rate(chip.half))
            memory = log(other.memory_bandwidth_bytes_s / chip.memory_bandwidth_bytes_s)
            foreign = other.generation != chip.generation
            return foreign, foreign and other.vendor != DONOR_VENDOR, abs(rates), abs(memory)

        return sorted(donors, key=distance)


@cache
def _profiles(own: Path | None, chips: tuple[Chip, ...]) -> Profiles:
    return Profiles(own, ChipBook({chip.name: chip for chip in chips}))


def profiles() -> Profiles:
    """The profiles of this user; read once for as long as the chips of the user's folder stay as they are."""
    own = user_profiles()
    return _profiles(own if own.is_dir() else None, tuple(own_chips().values()))


@cache
def _read(path: Path, own: bool) -> tuple[Profile, str]:
    """A file's profile and its framework."""
    data = read_yaml(path) if own else catalog.profile_data(path)
    profile = profile_from_dict(data, str(path), f"your profile {path}, " if own else "")
    return profile, str(data.get("framework", ""))


def forget_profiles() -> None:
    """Read them again: a file has changed."""
    catalog.forget_profiles()
    for held in (_profiles, _read):
        held.cache_clear()


def profile_of(name: str, framework: str = "") -> Profile | None:
    """What was fitted on a chip itself; see `Profiles.of`."""
    return profiles().of(name, framework)


def profile_for(chip: Chip, framework: str = "") -> Profile:
    """What a chip is priced by: the profile that `Profiles.resolve` finds, with the factors of the user's own card on
    it where a short calibration found them, or else with what cards of one kind differ by. A profile that was measured
    on that card needs neither."""
    return profile_on(chip, own_cards(chip.name).get(chip.name), framework)


def profile_on(chip: Chip, card: CardFactors | None, framework: str = "") -> Profile:
    """The same, with the factors of a card."""
    found = profiles()
    return found.resolve(chip, framework) if found.is_own(chip.name) else found.on_card(chip, framework, card)


def shipped_profile(chip: Chip) -> Profile:
    """What a chip is priced by where the user has measured nothing."""
    return _profiles(None, tuple(own_chips().values())).resolve(chip, "")


def _each_cycle(chip: Chip) -> float:
    """FLOPs of a multiprocessor in a cycle."""
    return chip.rate(chip.half) / (chip.sm_count * chip.boost_hz)


def _format(key: str) -> str:
    """The number format of a family; those of 16 bits run alike."""
    dtype = key.split(".")[1]
    return SIXTEEN if dtype in HALF else dtype
