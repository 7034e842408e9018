"""One group of an operator table, whose rows differ only in sizes: checked, then priced in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.cost import clock
from gnomon.cost.machine import COLLECTIVES, GEMM_KINDS, Machine, known_kinds
from gnomon.cost.profile import Profile
from gnomon.cost.rows import BESIDE, COLUMNS, OPTIONAL, SAID, shape_of
from gnomon.engines import OWN, kernel_choices, kernels_of
from gnomon.errors import InputError, UnknownNameError, unknown_name
from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH, gemm_format
from gnomon.planning.operators.ranges import Places, check_range, check_sizes
from gnomon.spec import Pool
from gnomon.spec.workload import Floats

WORDS = ("op", "dtype", "engine", "sustained")
ADDED = ("time_us", "low_us", "high_us", "provenance")
DECIMALS = 4
MOST_RANKS = 10_000_000
TRUTH = {"true": 1.0, "false": 0.0}
FORMATS = tuple(dict.fromkeys((*WIDTH, *GEMM_FORMATS)))

WIDENED = ("int4", "mxfp4", "nvfp4")
"""Weight-only formats on most chips."""
_SPELLED = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_SWITCH = {"": False, "0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True, slots=True)
class _Some:
    """Some of the rows."""

    places: Places
    rows: NDArray[np.int64]

    def __getitem__(self, index: int, /) -> str:
        return self.places[int(self.rows[index])]


@dataclass(frozen=True, slots=True)
class OperatorGroup:
    """What rows have in common."""

    kind: str
    dtype: str
    framework: str
    sustained: bool

    @property
    def needed(self) -> tuple[str, ...]:
        return COLUMNS[self.kind]

    @property
    def optional(self) -> Mapping[str, float]:
        """What stands for the columns that may be empty; for `nan` no number does."""
        return {**OPTIONAL.get(self.kind, {}), **BESIDE.get(self.kind, {})}

    @property
    def unused(self) -> tuple[str, ...]:
        """Columns that would change the time of other operators: who fills one in means something by it."""
        return tuple(name for name in SAID if name not in BESIDE.get(self.kind, {}))

    def refusal(self, column: str, place: str) -> InputError:
        users = ", ".join(kind for kind, names in BESIDE.items() if column in names)
        why = f"does not apply to {self.kind}, only to {users}"
        return InputError(why, where=f"{place}, column {column}", hint="Leave it empty in this row.")


def check_results(columns: Collection[str], where: str) -> None:
    """Refuse a table whose own figures the results would replace; one that has all of these columns was priced before,
    and is priced again."""
    taken = [name for name in ADDED if name in columns]
    if taken and len(taken) < len(ADDED):
        hint = f"Rename it, for example to measured_us; a table with all of {', '.join(ADDED)} is re-priced."
        raise InputError(f"has a column '{taken[0]}', which the results would replace", where=where, hint=hint)


def _kind(text: str) -> str:
    if text not in COLUMNS:
        raise unknown_name("operator", text, known_kinds())
    return text


def _dtype(text: str) -> str:
    lowered = text.lower()
    dtype = _SPELLED.get(lowered, lowered)
    if dtype not in FORMATS:
        raise unknown_name("number format", dtype, FORMATS, hint=f"Known: {', '.join(FORMATS)}.")
    return dtype


def _switch(text: str) -> bool:
    try:
        return _SWITCH[text.lower()]
    except KeyError:
        raise UnknownNameError(f"'{text}' is not 0 or 1, true or false") from None


_MEANINGS: Mapping[str, Callable[[str], str | bool]] = {
    "op": _kind,
    "dtype": _dtype,
    "sustained": _switch,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfiles:
    """What a chip's operators are priced by, by whose kernels run."""

    profiles: Mapping[str, Profile]
    """By framework, those that a table names."""
    chips: Mapping[str, Sequence[str]]
    """Chips that have a profile of a framework's own, by framework."""


class Pricer:
    """Prices groups on one kind of chip."""

    def __init__(self, pool: Pool, kernels: KernelProfiles) -> None:
        self.pool = pool.resized(max(pool.count, pool.node_size))
        self._kernels = kernels
        self._machine = cache(lambda framework: Machine(self.pool, kernels.profiles[framework], framework))

    def word(self, column: str, text: str, place: str) -> str | bool:
        """What a word of the table means; one that means nothing is refused."""
        text = text.strip()
        try:
            return kernels_of(text, sorted(self._kernels.chips)) if column == "engine" else _MEANINGS[column](text)
        except InputError as problem:
            raise InputError(problem.message, where=f"{place}, column {column}", hint=problem.hint) from None

    def check(self, group: OperatorGroup, place: str) -> None:
        """Refuse a number format that the operator has no kernels for, or that the chip does not multiply in."""
        where, dtype = f"{place}, column dtype", self._run_in(group)
        known = self._kernels.chips.get(group.framework, ())
        if group.framework not in OWN and self.pool.chip.name not in known:
            why = f"no profile has {group.framework}'s kernels on {self.pool.chip.name}"
            raise InputError(why, where=f"{place}, column engine", hint=f"There are some of {', '.join(known)}.")
        if dtype not in WIDTH and group.kind not in GEMM_KINDS:
            hint = f"Use one of {', '.join(WIDTH)}."
            raise InputError(f"'{dtype}' is a GEMM format, and {group.kind} is not a GEMM", where=where, hint=hint)
        if group.kind in (*GEMM_KINDS, "conv"):
            chip = self.pool.chip
            why = kernel_choices().not_widened(chip) if dtype.endswith("-weights") else ""
            if why:
                hint = f"Use one of {', '.join(chip.rates_flops)}."
                raise InputError(f"{dtype} do not run on {chip.name}: {why}", where=where, hint=hint)
            try:
                (chip.matrix_rate if dtype in GEMM_FORMATS else chip.rate)(gemm_format(dtype).compute_dtype)
            except InputError as problem:
                narrow = f" Or {dtype}-weights, which are widened." if f"{dtype}-weights" in GEMM_FORMATS else ""
                raise InputError(problem.message, where=where, hint=problem.hint + narrow) from None

    def _run_in(self, group: OperatorGroup) -> str:
        """The format a group's GEMMs run in: four-bit weights are dequantized where the chip has no rate for them."""
        widened, chip = f"{group.dtype}-weights", self.pool.chip
        if group.kind not in GEMM_KINDS or group.dtype not in WIDENED:
            return group.dtype
        return group.dtype if gemm_format(group.dtype).compute_dtype in chip.rates_flops else widened

    def priced(self, group: OperatorGroup, columns: Mapping[str, Floats], places: Places) -> dict[str, Any]:
        """The columns that are added; the provenance is one for all rows. Rows that leave out what others say are
        priced apart: no number means the same."""
        partial = [name for name, usual in group.optional.items() if usual != usual and name in columns]
        lacking = {name: np.isnan(columns[name]) for name in partial if np.isnan(columns[name]).any()}
        if not lacking:
            return self._alike(group, columns, places)
        code = np.asarray(sum(lacks * 2**place for place, lacks in enumerate(lacking.values())))
        added: dict[str, Any] = {name: np.empty(code.shape) for name in ADDED[:3]}
        for each in np.unique(code):
            rows = np.flatnonzero(code == each)
            none = [name for name, lacks in lacking.items() if lacks[rows[0]]]
            said = {name: values[rows] for name, values in columns.items() if name not in none}
            found = self._alike(group, said, _Some(places, rows))
            for name in ADDED[:3]:
                added[name][rows] = found[name]
        return added | {"provenance": found["provenance"]}

    def _alike(self, group: OperatorGroup, columns: Mapping[str, Floats], places: Places) -> dict[str, Any]:
        for name, values in columns.items():
            check_range(group.kind, name, values, places)
        check_sizes(group.kind, columns, places, self.pool.per_node)
        machine, dtype = self._machine(group.framework), self._run_in(group)
        family = machine.evidence(group.kind, dtype)
        self._check_narrowing(dtype, columns, "quantised" in family.coefficients, places)
        with np.errstate(over="ignore", invalid="ignore"):
            shape = shape_of(group.kind, self._on_nodes(group.kind, columns, places))
            seconds = machine.seconds(group.kind, dtype, shape)
            clock_slowdown = machine.clock_slowdown(group.kind, dtype, shape, seconds) if group.sustained else 1.0
        bad = np.flatnonzero(~np.isfinite(seconds))
        if bad.size:
            raise InputError("is too large to price", where=places[int(bad[0])])
        spread = 1.645 * (math.hypot(family.spread, clock.SPREAD) if group.sustained else family.spread)
        micros = seconds * clock_slowdown * 1e6
        times = zip(ADDED, (1.0, math.exp(-spread), math.exp(spread)), strict=False)
        added: dict[str, Any] = {name: np.round(micros * factor, DECIMALS) for name, factor in times}
        floor = machine.floor(group.kind, dtype, shape, seconds) * 1e6
        np.maximum(added["low_us"], np.round(floor, DECIMALS), out=added["low_us"])
        told = f", {machine.clock_note}" if group.sustained else ""
        told += f", as {dtype}" if dtype != group.dtype else ""
        if group.framework not in OWN and f"{group.kind}.{dtype}.{group.framework}" not in machine.profile.families:
            told += f", none of {group.framework}"
        return added | {"provenance": f"{family.provenance}: {family.source}{told}"}

    def _check_narrowing(self, dtype: str, columns: Mapping[str, Floats], fitted: bool, places: Places) -> None:
        """Refuse activation quantisation that the fitted GEMM times do not cover."""
        asked = np.flatnonzero(columns.get("quantised", np.zeros(1)) > 0)
        if not asked.size:
            return
        narrow = gemm_format(dtype).inputs < WIDTH["bf16"]
        why = f"how long narrowing takes beside {dtype} GEMMs on {self.pool.chip.name} is not fitted"
        if not (narrow and fitted):
            raise InputError(
                why if narrow else f"activations of {dtype} GEMMs are not quantised",
                where=f"{places[int(asked[0])]}, column quantised",
                hint="Leave it empty, and give the quantisation as an elementwise operator." if narrow else "",
            )

    def _on_nodes(self, kind: str, columns: Mapping[str, Floats], places: Places) -> Mapping[str, Floats]:
        """A collective's rows with the nodes their ranks span: as few as hold them where none are given."""
        if kind not in COLLECTIVES:
            return columns
        ranks, size = columns["ranks"], self.pool.per_node
        bad = np.flatnonzero(ranks > MOST_RANKS)
        if bad.size:
            where = f"{places[int(bad[0])]}, column ranks"
            raise InputError(f"'{ranks[bad[0]]:.12g}' is more than {MOST_RANKS:,}", where=where)
        least = np.ceil(ranks / size)
        nodes = columns.get("nodes", np.zeros(1))
        spanned = np.where(nodes > 0, nodes, least)
        uneven = (spanned > least) & (ranks % spanned != 0)
        for wrong, why in (
            (spanned < least, f"are too few for the ranks: a node holds {size}"),
            (spanned > ranks, "are more than the ranks"),
            (uneven, "do not hold equal numbers of ranks"),
        ):
            bad = np.flatnonzero(wrong)
            if bad.size:
                first = int(bad[0])
                told = f"{spanned[first]:g} nodes {why}"
                hint = f"{least[first]:g} hold {ranks[first]:g} ranks."
                raise InputError(told, where=f"{places[first]}, column nodes", hint=hint)
        return dict(columns) | {"nodes": spanned}
