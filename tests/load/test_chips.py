"""Chips of the user's own: found by name and by file, checked field by field, never hiding a shipped one unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon import catalog, load
from gnomon.errors import InputError, UnknownNameError
from gnomon.load.chip_file import template
from gnomon.load.chips import chip_from_dict, chip_spellings
from gnomon.spec import Chip

BASE = yaml.safe_load(template("my-chip", catalog.chip("L40S")))


def write(folder: Path, file: str = "mine.yaml", **changes: Any) -> Path:
    """A chip's file; a change to None leaves the field out."""
    fields = {key: value for key, value in (BASE | changes).items() if value is not None}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text(yaml.safe_dump(fields))
    return path


@pytest.mark.battery(8)
@pytest.mark.parametrize("like", catalog.chips(), ids=lambda chip: chip.name)
def test_a_template_reads_back_with_the_figures_it_began_with(like: Chip) -> None:
    mine = chip_from_dict(yaml.safe_load(template("my-chip", like)), "my-chip.yaml")
    for name in ("rates_flops", "sparse_flops", "memory_bandwidth_bytes_s", "sm_count", "tdp_w", "idle_w", "scaleup",
                 "scaleup_size", "scaleout", "bridge", "price_usd_h", "architecture", "node"):  # fmt: skip
        assert getattr(mine, name) == getattr(like, name), name
    assert mine.memory_bytes == pytest.approx(like.memory_bytes, rel=1e-4)
    assert mine.name == "my-chip"
    assert set(mine.sources) == set(like.sources)


def test_a_file_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path, memory_gb_s=1000, aliases=["Mine"])
    pool = load.parse_pool(f"{path}:4")
    assert (pool.chip.name, pool.count, pool.chip.memory_bandwidth_bytes_s) == ("my-chip", 4, 1e12)
    assert load.parse_pool(str(path)).count == 1
    assert load.chip(str(path)).reference == str(path)
    slow, quick = (gnomon.predict("llama-3.2-1b", on=on, batch=64).time_s.value for on in ("L40S", str(path)))
    assert quick < slow
    with pytest.raises(UnknownNameError):
        load.chip("my-chip")


def test_a_file_in_the_users_folder(own_history: Path) -> None:
    write(own_history / "chips", aliases=["Mine 48"])
    assert load.parse_pool("mine-48:2").chip.name == "my-chip"
    assert load.chip("MY CHIP").reference == "my-chip"
    assert load.chip_names()[0] == "my-chip"
    assert load.chips()[0].name == "my-chip"
    assert len(load.chips()) == len(catalog.chips()) + 1
    assert gnomon.predict("llama-3.2-1b", on="my-chip:2").time_s.value > 0
    with pytest.raises(UnknownNameError, match=f"unknown chip 'my-ship'. Near: my-chip.*lists {len(load.chips())};"):
        load.chip("my-ship")


def test_a_changed_file_is_read_again(own_history: Path) -> None:
    write(own_history / "chips", idle_w=30)
    assert load.chip("my-chip").idle_w == 30
    write(own_history / "chips", idle_w=123)
    assert load.chip("my-chip").idle_w == 123


def test_a_shipped_name_is_not_hidden_by_accident(own_history: Path) -> None:
    path = write(own_history / "chips", name="H100")
    with pytest.raises(InputError) as caught:
        load.chip("A100")
    assert str(caught.value) == (
        f"{path}, field name: 'H100' is already the name of H100-SXM-80GB. "
        "Choose another name, or add `replaces: H100-SXM-80GB` to take its place."
    )


@pytest.mark.parametrize("aliases", [["H100"], ["H100", "H100"], ["mine", "nvidia h100"]])
def test_an_alias_that_is_taken_is_blamed_as_one(own_history: Path, aliases: list[str]) -> None:
    path = write(own_history / "chips", aliases=aliases)
    with pytest.raises(InputError) as caught:
        load.chip("A100")
    said = f"{path}, field aliases: '{aliases[-1]}' is already the name of H100-SXM-80GB"
    assert str(caught.value).startswith(said)


def test_a_file_that_says_so_takes_the_place(own_history: Path) -> None:
    file = own_history / "chips" / "ours.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        template("our H100", catalog.chip("H100"), "H100-SXM-80GB").replace("memory_gb_s: 3352", "memory_gb_s: 3500")
    )
    for name in ("H100", "H100-SXM-80GB", "nvidia h100", "our-h100"):
        assert load.chip(name).memory_bandwidth_bytes_s == 3.5e12
    assert load.chip("H100-PCIe").memory_bandwidth_bytes_s == 2.039e12
    assert catalog.chip("H100").memory_bandwidth_bytes_s == 3.352e12
    assert "H100-SXM-80GB" not in load.chip_names()
    assert len(load.chips()) == len(catalog.chips())
    assert chip_spellings()["H100"] == "our H100"
    assert gnomon.chips("H100").chips[0]["memory_bandwidth_bytes_s"] == 3.5e12


def test_two_files_of_one_name(own_history: Path) -> None:
    write(own_history / "chips", "a.yaml")
    write(own_history / "chips", "b.yaml", name="MY-CHIP")
    with pytest.raises(InputError, match=r"b.yaml, field name: is named like the chip of .*a.yaml"):
        load.chip("H100")
    write(own_history / "chips", "b.yaml", name="other", aliases=["my chip"])
    with pytest.raises(InputError, match=r"b.yaml, field aliases: is named like the chip of .*a.yaml"):
        load.chip("H100")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "schema": ({"schema": "gnomon.plan/1"}, "field schema: 'gnomon.plan/1' is not gnomon.chip/1"),
    "no schema": ({"schema": None}, "field schema: is missing"),
    "missing": ({"memory_gb_s": None}, "field memory_gb_s: is missing"),
    "misspelt": (
        {"memory_gb_s": None, "memory_gbs": 864},
        "field memory_gb_s: is missing. There is 'memory_gbs': did you mean 'memory_gb_s'?",
    ),
    "exponent": ({"memory_gb_s": "8.64e11"}, "field memory_gb_s: 864000000000.0 is not between 10 and 1e+06"),
    "no source": ({"source": None}, "field source: is missing"),
    "no date": ({"date": None}, "field date: is missing"),
    "unit": ({"memory_gb_s": 8.64e11}, "field memory_gb_s: 864000000000.0 is not between 10 and 1e+06"),
    "bytes": ({"memory_mib": 48e9}, "field memory_mib: 48000000000.0 is not between 256 and"),
    "zero": ({"tdp_w": 0}, "field tdp_w: 0 is not a number above zero"),
    "text": ({"tdp_w": "350"}, "field tdp_w: '350' is not a number above zero"),
    "nan": ({"idle_w": float("nan")}, "field idle_w: nan is not a number above zero"),
    "idle": ({"idle_w": 400}, "400 W idle is not below the limit of 350 W"),
    "half": ({"processors": 1.5}, "field processors: 1.5 is not a positive whole number"),
    "no rates": ({"rates_tflops": {}}, "field rates_tflops: names no rate"),
    "format": ({"rates_tflops": {"fp17": 1}}, "field rates_tflops: 'fp17' is not a number format. Known: fp32"),
    "rate": ({"rates_tflops": {"bf16": 3.6e14}}, "field rates_tflops.bf16: 360000000000000.0 is not between"),
    "negative": ({"rates_tflops": {"bf16": -1}}, "field rates_tflops.bf16: -1 is not between 0.001 and 1e+07"),
    "node": ({"node": "DGX-H1000"}, "field node: unknown node 'DGX-H1000'. Near: DGX-H100"),
    "unknown": ({"tpd_w": 3}, "field tpd_w: unknown field. Did you mean 'tdp_w'?"),
    "confidence": ({"confidence": "sure"}, "field confidence: 'sure' is not how a figure is known. Known: read"),
    "sources": ({"sources": {"tdp_w": 3}}, "field sources.tdp_w: 3 is not a mapping of fields"),
    "bridge": ({"bridge": {"link": "NVLink9", "gb_s": 3, "size": 2}}, "unknown link 'NVLink9'. Near: NVLink"),
    "bridge size": (
        {"bridge": {"link": "NVLink4", "gb_s": 3, "size": 1}},
        "size: 1 is not a whole number of at least 2",
    ),
    "name": ({"name": "a:4"}, "'a:4' cannot be a chip's name"),
    "maker": ({"name": "nvidia"}, "'nvidia' cannot be a chip's name"),
    "alias": ({"aliases": [3]}, "field aliases: 3 is not a name"),
    "taken alias": ({"aliases": ["A100"]}, "'A100' is already the name of A100-SXM-80GB"),
    "replaces": ({"replaces": "H1000"}, "unknown chip 'H1000'"),
    "replaces another": ({"name": "A100", "replaces": "H100"}, "'A100' is already the name of A100-SXM-80GB"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_place(case: str, tmp_path: Path) -> None:
    changes, message = WRONG[case]
    path = write(tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        load.chip(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_numbers_that_yaml_takes_for_texts(tmp_path: Path) -> None:
    path = write(tmp_path, memory_gb_s="1e3", processors="1.2e2", rates_tflops={"bf16": "3.6e2"})
    found = load.chip(str(path))
    assert (found.memory_bandwidth_bytes_s, found.sm_count, found.rate("bf16")) == (1e12, 120, 3.6e14)


def test_sources_of_single_figures(tmp_path: Path) -> None:
    said = {"tdp_w": "the label on the board", "idle_w": {"source": "measured", "date": 2026, "confidence": "read"}}
    chip = load.chip(str(write(tmp_path, sources=said, date="2026-10")))
    assert chip.sources["tdp_w"] == "the label on the board (2026-10)"
    assert chip.sources["idle_w"] == "measured (2026)"
    assert chip.confidence["tdp_w"] == "estimated"
    assert "idle_w" not in chip.confidence


@pytest.mark.parametrize(
    "text", ["", "- a\n", "{", "!!python/object:os.system {}", "a: &x 1\nb: *x\n", "x" * 2_000_000]
)
def test_files_that_are_no_chip(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    for on in (str(path), f"{path}:4"):
        with pytest.raises(InputError, match=r"bad\.yaml"):
            load.parse_pool(on)


def test_no_such_file() -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        load.parse_pool("none.yaml:4")
