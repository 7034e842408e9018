"""One group of an operator table, its rows alike but for their sizes: checked, then priced in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from gnomon.cost import clock
from gnomon.cost.machine import COLLECTIVES, EXCHANGES, Machine, known_kinds
from gnomon.cost.profile import profile_for
from gnomon.cost.rows import COLUMNS, OPTIONAL, shape_of
from gnomon.engines import kernels_of
from gnomon.engines.vllm.formats import not_widened
from gnomon.errors import InputError, UnknownNameError, unknown_name
from gnomon.graph.dtypes import PRODUCTS, WIDTH, product
from gnomon.spec import Pool
from gnomon.spec.workload import Floats

WORDS = ("op", "dtype", "engine", "sustained")
ADDED = ("time_us", "low_us", "high_us", "provenance")
DECIMALS = 4
MOST_RANKS = 10_000_000
MOST_SIZE, MOST_BYTES = 1e12, 1e15
"""Beyond these a size is a slip: no operator of one chip takes a petabyte."""
TRUTH = {"true": 1.0, "false": 0.0}
FORMATS = tuple(dict.fromkeys((*WIDTH, *PRODUCTS)))
PRODUCT_KINDS = ("gemm", "moe")
"""Operators whose two sides may be in different formats."""
WIDENED = ("int4", "mxfp4", "nvfp4")
"""Formats of weights alone on most chips."""
_FROM_ZERO = frozenset({"bytes_read", "bytes_written", "bytes", "window"})
_BROKEN = frozenset({"bytes_read", "bytes_written", "bytes"})
_SPELLED = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_SWITCH = {"": False, "0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


class Places(Protocol):
    """Where each row stands."""

    def __getitem__(self, index: int, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Group:
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
        return OPTIONAL.get(self.kind, {})


def word(column: str, text: str, place: str) -> str | bool:
    """What a word of the table means; one that means nothing is refused."""
    text = text.strip()
    try:
        return _MEANINGS[column](text)
    except InputError as problem:
        raise InputError(problem.message, where=f"{place}, column {column}", hint=problem.hint) from None


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
    "engine": kernels_of,
    "sustained": _switch,
}


class Pricer:
    """Prices groups on one kind of chip."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool.resized(max(pool.count, pool.node_size))
        self._machine = cache(lambda framework: Machine(self.pool, profile_for(pool.chip, framework), framework))

    def check(self, group: Group, place: str) -> None:
        """Refuse a number format that the operator has no kernels for, or that the chip does not multiply in."""
        where, dtype = f"{place}, column dtype", self._run_in(group)
        if dtype not in WIDTH and group.kind not in PRODUCT_KINDS:
            hint = f"Use one of {', '.join(WIDTH)}."
            raise InputError(f"'{dtype}' is a format of products, which {group.kind} is not", where=where, hint=hint)
        if group.kind in (*PRODUCT_KINDS, "conv"):
            chip, why = self.pool.chip, not_widened(self.pool.chip) if dtype.endswith("-weights") else ""
            if why:
                hint = f"Use one of {', '.join(chip.rates_flops)}."
                raise InputError(f"{dtype} do not run on {chip.name}: {why}", where=where, hint=hint)
            try:
                (chip.matrix_rate if dtype in PRODUCTS else chip.rate)(product(dtype).multiplied)
            except InputError as problem:
                narrow = f" Or {dtype}-weights, which are widened." if f"{dtype}-weights" in PRODUCTS else ""
                raise InputError(problem.message, where=where, hint=problem.hint + narrow) from None

    def _run_in(self, group: Group) -> str:
        """The format a group's products run in: four-bit weights are widened where the chip has no rate for them."""
        widened, chip = f"{group.dtype}-weights", self.pool.chip
        if group.kind not in PRODUCT_KINDS or group.dtype not in WIDENED:
            return group.dtype
        return group.dtype if product(group.dtype).multiplied in chip.rates_flops else widened

    def priced(self, group: Group, columns: Mapping[str, Floats], places: Places) -> dict[str, Any]:
        """The columns that are added; the provenance is one for all rows."""
        for name, values in columns.items():
            _in_range(group.kind, name, values, places)
        _check(group.kind, columns, places, self.pool.per_node)
        machine, dtype = self._machine(group.framework), self._run_in(group)
        with np.errstate(over="ignore", invalid="ignore"):
            shape = shape_of(group.kind, self._on_nodes(group.kind, columns, places))
            seconds = machine.seconds(group.kind, dtype, shape)
            stretch = machine.stretch(group.kind, dtype, shape, seconds) if group.sustained else 1.0
        bad = np.flatnonzero(~np.isfinite(seconds))
        if bad.size:
            raise InputError("is too large to price", where=places[int(bad[0])])
        family = machine.evidence(group.kind, dtype)
        spread = 1.645 * (math.hypot(family.spread, clock.SPREAD) if group.sustained else family.spread)
        micros = seconds * stretch * 1e6
        times = zip(ADDED, (1.0, math.exp(-spread), math.exp(spread)), strict=False)
        added: dict[str, Any] = {name: np.round(micros * factor, DECIMALS) for name, factor in times}
        told = f", {machine.clock_words}" if group.sustained else ""
        told += f", as {dtype}" if dtype != group.dtype else ""
        return added | {"provenance": f"{family.provenance}: {family.source}{told}"}

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
            (uneven, "do not hold as many ranks each"),
        ):
            bad = np.flatnonzero(wrong)
            if bad.size:
                first = int(bad[0])
                told = f"{spanned[first]:g} nodes {why}"
                hint = f"{least[first]:g} hold {ranks[first]:g} ranks."
                raise InputError(told, where=f"{places[first]}, column nodes", hint=hint)
        return dict(columns) | {"nodes": spanned}


def _in_range(kind: str, name: str, values: Floats, places: Places) -> None:
    """Sizes are whole numbers from 1; bytes are any from 0, those of a collective and what a strided convolution sums
    over are any from 1."""
    if name == "causal":
        bad, what = np.flatnonzero((values != 0) & (values != 1)), "0 or 1"
    else:
        broken = name in _BROKEN or (kind, name) == ("conv", "k")
        from_zero = (name in _FROM_ZERO and kind not in COLLECTIVES) or name == "rows"
        least = 0.0 if from_zero or name == "nodes" else 1.0
        good = np.isfinite(values) & (values >= least)
        bad = np.flatnonzero(~(good if broken else good & (values == np.floor(values))))
        what = f"a {'number' if broken else 'whole number'} of at least {least:g}"
    if bad.size:
        first = int(bad[0])
        raise InputError(f"'{values[first]:.12g}' is not {what}", where=f"{places[first]}, column {name}")
    most = MOST_BYTES if name in _BROKEN else MOST_SIZE
    large = np.flatnonzero(values > most)
    if large.size:
        first = int(large[0])
        raise InputError(f"'{values[first]:.12g}' is more than {most:g}", where=f"{places[first]}, column {name}")


def _check(kind: str, columns: Mapping[str, Any], places: Places, node: int) -> None:
    def refuse(bad: Any, column: str, why: str) -> None:
        found = np.flatnonzero(bad)
        if found.size:
            raise InputError(why, where=f"{places[int(found[0])]}, column {column}")

    if kind in EXCHANGES:
        refuse(
            columns["ranks"] > node, "ranks", f"beyond a node, which holds {node}, no exchange with experts is priced"
        )
        refuse(columns["ranks"] > columns["experts"], "ranks", "there are more ranks than experts")
    if kind == "moe" or kind in EXCHANGES:
        refuse(columns["topk"] > columns["experts"], "topk", "more experts are chosen than there are")
    if kind.startswith("attention"):
        if "q_len" in columns:
            why = "new tokens are more than the keys they attend to"
            refuse(columns["q_len"] > columns["kv_len"], "q_len", why)
        refuse(columns["heads"] % columns["kv_heads"] != 0, "kv_heads", "heads do not divide by kv_heads")
