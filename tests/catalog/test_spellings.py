"""Chips answer to the names that drivers, clouds and publications give them."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon import catalog

STORED = dict(
    line.rsplit(" = ", 1)
    for line in Path(__file__).with_name("spellings.txt").read_text().splitlines()
    if not line.startswith("#")
)
NO_CHIP_OF_THIS_KIND = {"Virtex UltraScale+ (VU47P)"}
"""A field-programmable array: it has no rate before it is programmed."""
COLUMNS = ("gpu", "accelerator")


def truth() -> Path:
    """The folder of published measurements: GNOMON_TRUTH, or beside the repository."""
    return Path(os.environ.get("GNOMON_TRUTH", Path(__file__).parents[3] / "shared" / "truth"))


def published() -> Iterator[str]:
    for path in sorted(truth().glob("*.csv*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            rows = csv.DictReader(file)
            columns = [name for name in rows.fieldnames or () if name in COLUMNS]
            for name in {row[column].strip() for row in rows for column in columns} - {""}:
                yield from name.removeprefix("mixed:").split("+") if name.startswith("mixed:") else [name]


@pytest.mark.parametrize(("spelling", "name"), STORED.items())
def test_a_spelling_finds_the_chip_that_is_meant(spelling: str, name: str) -> None:
    assert catalog.chip(spelling).name == name


@pytest.mark.heavy
def test_every_published_spelling_is_stored() -> None:
    if not truth().is_dir():
        pytest.skip("the published tables are not here; GNOMON_TRUTH can name their folder")
    names = set(published()) - NO_CHIP_OF_THIS_KIND
    assert len(names) > 100
    assert sorted(names - set(STORED)) == []
