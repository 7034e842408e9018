"""Figures outside physics are refused beside the figure they were compared to, whatever chip they are written for."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon import catalog, load
from gnomon.errors import InputError
from gnomon.load.chip_file import template
from gnomon.load.chips import chip_from_dict
from gnomon.spec import Chip

Entry = dict[str, Any]
Slip = Callable[[Entry], Entry]


@cache
def written(name: str) -> Entry:
    found: Entry = yaml.load(template("mine", catalog.chip(name)), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def entry(name: str) -> Entry:
    return deepcopy(written(name))


def rates(factor: float) -> Slip:
    return lambda chip: {"rates_tflops": {dtype: factor * rate for dtype, rate in chip["rates_tflops"].items()}}


def slowest(narrow: str) -> Slip:
    """The narrow format below the slowest other one that is wider."""
    wide = {"fp8": ("fp32", "tf32", "bf16", "fp16"), "fp4": ("fp32", "bf16", "fp8"), "bf16": ("fp32", "tf32")}[narrow]

    def slip(chip: Entry) -> Entry:
        found = chip["rates_tflops"]
        least = min((found[dtype] for dtype in wide if dtype in found), default=0)
        return {"rates_tflops": found | {narrow: 0.6 * least}} if narrow in found and least else {}

    return slip


SLIPS: dict[str, Slip] = {
    "PFLOP/s": rates(1e-3),
    "GFLOP/s": rates(1e3),
    "one rate in PFLOP/s": lambda chip: {"rates_tflops": {d: r / (1e3 if d != "fp32" else 1) for d, r in
                                         chip["rates_tflops"].items()}} if len(chip["rates_tflops"]) > 1 else {},
    "fp8 slower": slowest("fp8"),
    "fp4 slower": slowest("fp4"),
    "bf16 slower": slowest("bf16"),
    "one processor": lambda chip: {"processors": 1} if chip["processors"] >= 10 else {},
    "a hundredth of the processors": lambda chip: {"processors": chip["processors"] // 100}
    if chip["processors"] >= 100 else {},
    "kHz": lambda chip: {"boost_mhz": chip["boost_mhz"] / 12},
    "Gbit/s and more": lambda chip: {"memory_gb_s": 20 * chip["memory_gb_s"]},
    "a twentieth of the bandwidth": lambda chip: {"memory_gb_s": chip["memory_gb_s"] / 20},
    "KiB": lambda chip: {"memory_mib": 1024 * chip["memory_mib"]},
    "GiB": lambda chip: {"memory_mib": chip["memory_mib"] / 1024},
    "a million a node": lambda chip: {"scaleup_size": 1_000_000},
    "half the power limit": lambda chip: {"tdp_w": chip["tdp_w"] / 2, "idle_w": chip["idle_w"] / 2},
    "twice the power limit": lambda chip: {"tdp_w": 2 * chip["tdp_w"]},
    "one watt less": lambda chip: {"tdp_w": chip["tdp_w"] - 1},
    "two watts of another design": lambda chip: {"tdp_w": 2, "idle_w": 1, "like": None, "architecture": "Own",
                                                 "processors": 3 * chip["processors"]}
    if chip["rates_tflops"].get("bf16", 0) > 15 else {},
}  # fmt: skip
"""What people write for what they mean; nothing where a chip cannot have it."""


@pytest.mark.battery(6)
@pytest.mark.parametrize("slip", SLIPS)
def test_slips_are_refused_for_every_chip(slip: str) -> None:
    tried = 0
    for name in catalog.chip_names():
        chip = entry(name)
        wrong = SLIPS[slip](chip)
        if not wrong:
            continue
        fields = {key: value for key, value in (chip | wrong).items() if value is not None}
        with pytest.raises(InputError) as caught:
            chip_from_dict(fields, "mine.yaml")
        assert "mine.yaml, field " in str(caught.value), name
        assert any(character.isdigit() for character in caught.value.message), name
        tried += 1
    assert tried > 20


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", ["H100", "B200", "MI300X", "RTX-4090", "L40S", "A100-PCIe-40GB", "TPU-v6e", "V100"])
@pytest.mark.parametrize(
    "change",
    [
        {"memory_gb_s": 2.0}, {"memory_gb_s": 0.5}, {"memory_mib": 2.0}, {"memory_mib": 0.5}, {"l2_mib": 4.0},
        {"boost_mhz": 1.2}, {"processors": 1.2}, {"price_usd_h": 3.0}, {"idle_w": 0.5}, {"rates_tflops": 1.5},
        {"rates_tflops": 0.6},
    ],
    ids=str,
)  # fmt: skip
def test_what_ifs_stay_possible(name: str, change: dict[str, float]) -> None:
    chip = entry(name)
    ((field, factor),) = change.items()
    if field == "rates_tflops":
        chip |= rates(factor)(chip)
    else:
        chip[field] = type(chip[field])(factor * chip[field])
    assert chip_from_dict(chip, "mine.yaml").name == "mine"


def test_the_message_has_both_figures() -> None:
    with pytest.raises(InputError) as caught:
        chip_from_dict(entry("H100") | {"processors": 1}, "mine.yaml")
    assert str(caught.value) == (
        "mine.yaml, field rates_tflops.fp32: 67 TFLOP/s of 1 processor at 1,980 MHz are 33,838 operations per clock on "
        "each; known Hopper chips have 255 (H100-NVL-94GB) to 285 (H20-96GB). Check the figure and its unit."
    )
    with pytest.raises(InputError) as caught:
        chip_from_dict(entry("H100") | {"tdp_w": 350}, "mine.yaml")
    assert str(caught.value) == (
        "mine.yaml, field tdp_w: 350 W is not the 700 W of H100-SXM-80GB, the chip it is like: another power limit is "
        "not modelled, it would change the energy and leave the time as it is. Use 700; a chip of another design has "
        "figures and an architecture of its own, and no `like`."
    )


@pytest.mark.parametrize("gone", [[], ["like"], ["like", "architecture"]], ids=["like", "architecture", "same die"])
@pytest.mark.parametrize("way", ["file", "cluster", "folder", "replaces"])
def test_another_power_limit_does_not_get_through(way: str, gone: list[str], tmp_path: Path, own_history: Path) -> None:
    chip = entry("H100") | {"tdp_w": 350}
    chip |= {"replaces": "H100"} if way == "replaces" else {}
    chip |= {"architecture": "Hopper but not really"} if "architecture" in gone else {}
    if "like" in gone:
        del chip["like"]
    folder = own_history / "chips" if way in ("folder", "replaces") else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.yaml").write_text(yaml.safe_dump(chip))
    (tmp_path / "cluster.yaml").write_text("schema: gnomon.cluster/1\nchip: mine.yaml\ncount: 8\n")
    on = {"file": tmp_path / "mine.yaml", "cluster": tmp_path / "cluster.yaml", "folder": "mine", "replaces": "H100"}
    with pytest.raises(InputError, match=r"field tdp_w: 350 W is not the 700 W of H100-SXM-80GB"):
        load.parse_pool(str(on[way]))


def test_a_chip_of_its_own_design_has_its_own_limit() -> None:
    own = entry("H100") | {"architecture": "Own", "tdp_w": 450, "processors": 96}
    own |= {"rates_tflops": {dtype: 0.6 * rate for dtype, rate in own["rates_tflops"].items()}}
    del own["like"]
    assert chip_from_dict(own, "mine.yaml").tdp_w == 450
    with pytest.raises(InputError, match="field tdp_w: 450 W is not the 700 W of H100-SXM-80GB, the chip it is like"):
        chip_from_dict(own | {"like": "H100"}, "mine.yaml")


@pytest.mark.parametrize("kind", ["SRAM", "wafer"])
def test_memory_of_no_known_sort_is_not_compared(kind: str) -> None:
    own = entry("H100") | {"memory": kind, "memory_mib": 4096, "memory_gb_s": 80_000}
    assert chip_from_dict(own, "mine.yaml").memory == kind
    for known in ("HBM3", "HBM5", "LPDDR5", ""):
        named = {key: value for key, value in (own | {"memory": known or None}).items() if value is not None}
        with pytest.raises(InputError, match=r"field memory_gb_s: 80,000 GB/s of .*known chips with"):
            chip_from_dict(named, "mine.yaml")


@pytest.mark.battery(8)
@pytest.mark.parametrize("like", catalog.chips(), ids=lambda chip: chip.name)
def test_a_variant_of_a_variant_keeps_its_limit(like: Chip) -> None:
    """`gnomon chips new --like` of one's own chip writes a file that is read."""
    first = chip_from_dict(entry(like.name) | {"memory_gb_s": 1.3 * like.memory_bandwidth_bytes_s / 1e9}, "a.yaml")
    second = chip_from_dict(yaml.safe_load(template("another", first)), "b.yaml")
    assert second.tdp_w == like.tdp_w


CLUSTERS: dict[str, tuple[Entry, str]] = {
    "a million a node": (
        {"per_node": 1_000_000},
        "field per_node: 1,000,000 chips in one node over NVLink4: the large",
    ),
    "own links": (
        {"per_node": 10_000, "scaleup": {"name": "own", "gb_s": 100, "latency_us": 1}},
        "field per_node: 10,000 chips in one node: the largest known has 9,216 (TPU v7x pod)",
    ),
    "adapters": ({"adapters": 1000}, "field adapters: 1,000 adapters for 8 chips; known nodes have at most 4 a chip"),
    "Gbit/s": (
        {"scaleout": {"name": "own", "gb_s": 400, "latency_us": 5}},
        "field scaleout.gb_s: 400; known ones have 1.25 (Ethernet 10) to 100 (InfiniBand XDR)",
    ),
    "scale-up": (
        {"scaleup": {"name": "own", "gb_s": 90_000, "latency_us": 1}},
        "field scaleup.gb_s: 90,000; known ones have 15.8 (PCIe 3.0 x16) to 1,800",
    ),
    "latency": (
        {"scaleout": {"name": "own", "gb_s": 50, "latency_us": 0.005}},
        "field scaleout.latency_us: 0.005; known ones have 5",
    ),
    "host": (
        {"host": {"memory_gib": 1e9, "memory_gb_s": 300, "adam_gparam_s": 4, "nvme_write_gb_s": 3}},
        "field host.memory_gib: 1e+09; known ones have 128 (Workstation) to 17,280 (GB200 NVL72)",
    ),
    "unknown region": (
        {"cloud": "aws", "region": "mars-1"},
        "field region: no on-demand price of H100-SXM-80GB at aws in mars-1 is known. Known: us-east-1.",
    ),
    "unknown region, no cloud": ({"region": "nowhere-9"}, "field region: unknown grid 'nowhere-9'"),
    "region beside a grid": ({"region": "us-east-1", "grid": "FR"}, "field region: 'us-east-1' says nothing beside a"),
    "spot without a cloud": ({"spot": True}, "field spot: true says nothing where no cloud is named"),
    "spot at a price": (
        {"spot": True, "price_usd_h": 2},
        "field spot: true says nothing where price_usd_h is the price",
    ),
    "pods at full bandwidth": ({"pod_nodes": 4}, "field pod_nodes: says nothing where the network has full bandwidth"),
    "empty": ({"cloud": ""}, "field cloud: is empty"),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_clusters_that_cannot_be(case: str, tmp_path: Path) -> None:
    fields, message = CLUSTERS[case]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"schema": "gnomon.cluster/1", "chip": "H100", "count": 16} | fields))
    with pytest.raises(InputError) as caught:
        load.parse_pool(str(path))
    assert f"{path}, {message}" in str(caught.value)


def test_the_grid_is_in_the_answers(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    step: dict[str, Any] = {"model": "llama-3.2-1b", "on": str(path)}
    for place, grams in (("FR", 56.0), ("us-virginia", 323.05)):
        path.write_text(f"schema: gnomon.cluster/1\nchip: H100\ncount: 1\ngrid: {place}\n")
        found = gnomon.predict(**step)
        assert found.co2_g is not None
        assert found.co2_g.value == pytest.approx(found.energy_j.value / 3.6e6 * grams)
        assert found.co2_g.low < found.co2_g.value < found.co2_g.high
        assert f"{grams:g} g/kWh" in found.co2_g.source
        trained = gnomon.simulate_training(**step, seq=512, global_batch=2, tokens=1e6)
        assert trained.co2_g == pytest.approx(trained.energy_j / 3.6e6 * grams)
        assert trained.run["co2_kg"] == pytest.approx(trained.run["energy_kwh"] * grams / 1e3)
        served = gnomon.simulate_serving(**step, input=64, output=8, requests=5)
        assert served.co2_g == pytest.approx(served.energy_j / 3.6e6 * grams)
        assert served.grid["g_co2_kwh"] == trained.grid["g_co2_kwh"] == grams
    assert gnomon.predict("llama-3.2-1b", on="H100").co2_g is None


@pytest.mark.heavy
def test_fields_of_a_host_that_nothing_reads_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    host = {"cores": 8, "memory_gib": 512, "memory_gb_s": 300, "adam_gparam_s": 4, "nvme_tb": 2, "nvme_write_gb_s": 3}
    path.write_text(yaml.safe_dump({"schema": "gnomon.cluster/1", "chip": "H100", "count": 2, "host": host}))
    on = str(path)
    answers = [
        gnomon.predict("llama-3.2-1b", on=on),
        gnomon.fit("llama-3.2-1b", on=on),
        gnomon.simulate_training("llama-3.2-1b", on=on, seq=512, global_batch=4),
        gnomon.simulate_serving("llama-3.2-1b", on=on, input=64, output=8, requests=5),
        gnomon.plan_serving("llama-3.2-1b", fleet=on, rate=1, input=64, output=8),
    ]
    for found in answers:
        assert [one.option for one in found.not_modelled] == [f"{on}, field host.cores", f"{on}, field host.nvme_tb"]
