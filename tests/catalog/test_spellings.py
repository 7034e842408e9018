"""Chips answer to the names that drivers, clouds and publications give them."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon import catalog

STORED = [
    line
    for line in Path(__file__).with_name("spellings.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
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


@pytest.mark.parametrize("name", STORED)
def test_a_stored_spelling_finds_a_chip(name: str) -> None:
    assert catalog.find_chip(name) is not None


def test_every_published_spelling_finds_a_chip() -> None:
    if not truth().is_dir():
        pytest.skip("the published tables are not here; GNOMON_TRUTH can name their folder")
    names = set(published()) - NO_CHIP_OF_THIS_KIND
    assert len(names) > 100
    assert [name for name in sorted(names) if catalog.find_chip(name) is None] == []
    assert names <= set(STORED)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100-SXM 80GB", "A100-SXM-80GB"),
        ("a100_sxm4_80gb", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("RTX6000", "Quadro-RTX-6000"),
        ("RTX6000Ada", "RTX-6000-Ada"),
        ("B200 (power limited)", "B200-SXM-180GB"),
        ("tpu-v5litepod-4", "TPU-v5e"),
        ("MI250X GCD", "MI250X-GCD"),
    ],
)
def test_the_right_one(spelling: str, name: str) -> None:
    assert catalog.chip(spelling).name == name
