"""What an hour of a chip costs at clouds, and what a kilowatt-hour emits where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gnomon.catalog.base import DATA, fold
from gnomon.catalog.book import Book
from gnomon.catalog.figures import SheetFigures
from gnomon.errors import InputError, unknown_name
from gnomon.spec import PowerGrid, Price

ON_DEMAND, SPOT = "on-demand", "spot"
ANY = "any"
"""The region of a price that stands for all of a cloud's: their median, the least for a spot price, or a list price."""


def prices(chip: str | None = None, *, cloud: str | None = None, region: str | None = None) -> tuple[Price, ...]:
    """Prices of a chip (by its own name), at a cloud and in a region, where those are given; cheapest first."""
    found = [
        price
        for price in _prices()
        if chip in (None, price.chip) and cloud in (None, price.cloud) and region in (None, price.region)
    ]
    return tuple(sorted(found, key=lambda price: (price.usd_h, price.cloud, price.region)))


def cloud_names() -> tuple[str, ...]:
    return tuple(sorted({price.cloud for price in _prices()}))


def price_at(chip: str, cloud: str, region: str = "", *, spot: bool = False) -> Price:
    """A cloud's price of a chip in a region, or over all its regions."""
    if cloud not in cloud_names():
        raise unknown_name("cloud", cloud, cloud_names())
    kind = SPOT if spot else ON_DEMAND
    offers = {price.region: price for price in prices(chip, cloud=cloud) if price.kind == kind}
    wanted = region or ANY
    if wanted in offers:
        return offers[wanted]
    if not offers:
        raise InputError(f"no {kind} price of {chip} at {cloud} is known", hint=_clouds_with(chip, kind))
    raise InputError(f"no {kind} price of {chip} at {cloud} in {wanted} is known", hint=_regions(offers))


def _regions(offers: Mapping[str, Price]) -> str:
    """Where prices are known, and what is known of all regions together."""
    named = [region for region in offers if region != ANY]
    known = f"Known: {', '.join(sorted(named))}." if named else ""
    over = offers.get(ANY)
    every = f"Without a region it is ${over.usd_h:g} an hour, over all of them." if over else ""
    return " ".join(filter(None, [known, every]))


def _clouds_with(chip: str, kind: str) -> str:
    clouds = sorted({price.cloud for price in prices(chip) if price.kind == kind})
    return f"Known: {', '.join(clouds)}." if clouds else "Give the price as price_usd_h."


def grid_names() -> tuple[str, ...]:
    return _grids().names


def grid(name: str) -> PowerGrid:
    """The grid of a place, a country or a cloud's region (`FR`, `us-east-1`, `europe-west4`, `Sweden`)."""
    found = _grids().find(name)
    if found is None:
        raise unknown_name("grid", name, _grids().spellings)
    return _grid(found)


@cache
def _grids() -> Book:
    return Book("grids", fold)  # us-east-1 and us-east1 are two places


@cache
def _grid(name: str) -> PowerGrid:
    entry = _grids().entry(name)
    figures = SheetFigures(entry)
    return PowerGrid(
        name=name,
        place=entry["place"],
        g_co2_kwh=figures.take("g_co2_kwh", "g_co2_kwh"),
        aliases=tuple(map(str, entry["aliases"])),
        source=figures.sources["g_co2_kwh"],
        confidence=figures.confidence.get("g_co2_kwh", "read"),
    )


@cache
def _prices() -> tuple[Price, ...]:
    import csv

    with (DATA / "prices.csv").open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return tuple(Price(**row | {"usd_h": float(row["usd_h"])}) for row in rows)
