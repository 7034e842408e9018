"""Prices and grids: of known chips, dated, found by place."""

from __future__ import annotations

import re

import pytest

from gnomon import catalog
from gnomon.errors import InputError, UnknownNameError


def test_prices_are_of_known_chips_and_dated() -> None:
    found = catalog.prices()
    assert len(found) > 200
    assert {price.chip for price in found} <= set(catalog.chip_names())
    for price in found:
        assert 0.02 < price.usd_h < 50
        assert price.kind in ("on-demand", "spot")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.date)
        assert price.source
    keys = [(price.chip, price.cloud, price.region, price.kind) for price in found]
    assert len(keys) == len(set(keys))


def test_cheapest_first_and_cut() -> None:
    found = catalog.prices("H100-SXM-80GB")
    assert [price.usd_h for price in found] == sorted(price.usd_h for price in found)
    assert {price.cloud for price in catalog.prices("H100-SXM-80GB", cloud="aws")} == {"aws"}
    assert len({price.cloud for price in found}) > 10


def test_a_region_where_it_is_known_else_all_of_them() -> None:
    assert catalog.price_at("H100-SXM-80GB", "aws", "us-east-1").usd_h == 6.88
    assert catalog.price_at("H100-SXM-80GB", "aws", "ap-south-2").region == "any"
    assert catalog.price_at("H100-SXM-80GB", "aws", spot=True).usd_h < 2


def test_no_such_offer() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown cloud 'awz'. Near: aws"):
        catalog.price_at("H100-SXM-80GB", "awz")
    with pytest.raises(InputError, match=r"no on-demand price of MI300X at aws is known. Known: runpod"):
        catalog.price_at("MI300X", "aws")
    with pytest.raises(InputError, match="Give a price_usd_h of your own"):
        catalog.price_at("MI100", "aws")


@pytest.mark.parametrize("name", catalog.grid_names())
def test_grids_are_sane(name: str) -> None:
    grid = catalog.grid(name)
    assert 1 < grid.g_co2_kwh < 1000
    assert "(20" in grid.source
    assert grid.place
    for spelling in (name, *grid.aliases):
        assert catalog.grid(spelling.upper()) is grid


def test_places() -> None:
    assert catalog.grid("us-east-1").name == "us-virginia"
    assert catalog.grid("us-east1").name == "us-south-carolina"
    assert catalog.grid("europe-west9").g_co2_kwh == 16.3
    assert catalog.grid("France").g_co2_kwh == catalog.grid("FR").g_co2_kwh == 56
    assert catalog.grid("no").place == "Norway"
    with pytest.raises(UnknownNameError, match=r"unknown grid 'us-east-9'. Near: us-east-1"):
        catalog.grid("us-east-9")
