"""Operator tables as rows: each with its times added, in place."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.planning.operators.price import ADDED, TRUTH, WORDS, OperatorGroup, Pricer
from gnomon.planning.operators.ranges import SWITCHES
from gnomon.spec.workload import Floats


def price_rows(pricer: Pricer, rows: Sequence[dict[str, Any]], places: Sequence[str], columns: Collection[str]) -> None:
    """Add `ADDED` to every row; `places` say where each stands, and `columns` what the table has."""
    for group, members in _groups(pricer, rows, places).items():
        told = [places[i] for i in members]
        pricer.check(group, told[0])
        _price(pricer, group, [rows[i] for i in members], told, columns)


def _groups(pricer: Pricer, rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> dict[OperatorGroup, list[int]]:
    """The rows of each group, by their places in the table."""
    known: dict[tuple[Any, ...], OperatorGroup] = {}
    groups: dict[OperatorGroup, list[int]] = {}
    for index, row in enumerate(rows):
        texts = tuple("" if (value := row.get(column)) is None else str(value) for column in WORDS)
        if texts not in known:
            words = (pricer.word(column, text, told[index]) for column, text in zip(WORDS, texts, strict=True))
            known[texts] = OperatorGroup(*words)  # type: ignore[arg-type]
        groups.setdefault(known[texts], []).append(index)
    return groups


def _price(
    pricer: Pricer,
    group: OperatorGroup,
    rows: Sequence[dict[str, Any]],
    places: Sequence[str],
    columns: Collection[str],
) -> None:
    sizes = {name: _numbers(name, rows, places) for name in group.needed}
    for name, usual in group.optional.items():
        if name in columns and any(not _empty(row.get(name)) for row in rows):
            sizes[name] = _numbers(name, rows, places, usual, some=True)
    for name in set(group.unused).intersection(columns):
        said = next((place for row, place in zip(rows, places, strict=True) if not _empty(row.get(name))), None)
        if said is not None:
            raise group.refusal(name, said)
    priced = pricer.priced(group, sizes, places)
    told = priced.pop("provenance")
    times = (values.tolist() for values in priced.values())
    for row, *values in zip(rows, *times, strict=True):
        row.update(zip(ADDED, (*values, told), strict=True))


def _empty(value: Any) -> bool:
    return value is None or value == "" or value != value


def _numbers(
    name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str], usual: float = math.nan, some: bool = False
) -> Floats:
    """A column of the rows; `usual` stands where nothing does, which only some columns allow."""
    values = []
    for i, row in enumerate(rows):
        text: Any = row.get(name)
        try:
            value = float(text) if text not in (None, "") else usual
        except (TypeError, ValueError, OverflowError):
            value = _truth(text, f"{places[i]}, column {name}")
        if value != value:
            if some != _empty(text):
                why = f"'{text}' is not a number" if some else "is missing"
                raise InputError(why, where=f"{places[i]}, column {name}")
            value = usual
        values.append(value)
    return np.array(values)


def _truth(text: Any, where: str) -> float:
    value = TRUTH.get(str(text).strip().lower()) if where.endswith(SWITCHES) else None
    if value is None:
        raise InputError(f"'{text}' is not a number", where=where)
    return value
