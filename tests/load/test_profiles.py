"""A profile need not hold every kind of operator: what it lacks is lent, with wider bands, and says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.cost.machines import machine, seconds

import gnomon
from gnomon import catalog
from gnomon.cost.kernels import MODELS
from gnomon.cost.transfer import FOREIGN
from gnomon.load.chips import ChipBook
from gnomon.load.profile_file import SCHEMA
from gnomon.load.profiles import Profiles, profile_for
from gnomon.spec import Provenance


@pytest.fixture
def only_products(own_history: Path) -> None:
    """The user has measured an A100's matrix products and nothing else."""
    start = {name: first for name, (first, _, _) in MODELS["gemm"].ranges.items()}
    content = {
        "schema": SCHEMA,
        "chip": "A100-SXM-80GB",
        "date": "2026-01-01",
        "families": {"gemm.bf16": {"coefficients": start, "spread": 0.1, "shared": 0.01, "source": "by hand"}},
        "power": {"idle_w": 60.0, "active_w": 90.0, "j_per_flop": 1e-12, "j_per_byte": 1e-10},
    }
    folder = own_history / "profiles"
    folder.mkdir(parents=True)
    (folder / "a100.yaml").write_text(yaml.safe_dump(content))


@pytest.mark.usefixtures("only_products")
def test_what_is_measured_is_kept() -> None:
    found = profile_for(catalog.chip("A100"))
    assert not found.transferred
    assert found.family("gemm", "fp16").spread == 0.1
    source = found.family("gemm", "fp16").source
    assert source.startswith("your profile ")
    assert source.endswith("a100.yaml, A100-SXM-80GB 2026-01-01, by hand")


@pytest.mark.usefixtures("only_products")
def test_what_is_missing_is_lent_by_the_nearest() -> None:
    own = profile_for(catalog.chip("H100")).family("moe", "bf16")
    lent = profile_for(catalog.chip("A100")).family("moe", "bf16")
    assert lent.coefficients == own.coefficients
    assert lent.spread > max(own.spread, FOREIGN)
    assert lent.source == f"{own.source}, scaled by the data sheet of A100-SXM-80GB"


def test_what_nobody_has_is_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "never", replace(MODELS["gemm"], kind="never"))
    profiles = Profiles(None, ChipBook({}))
    for chip in catalog.chips():
        never = profiles.resolve(chip).family("never", "bf16")
        assert never.provenance is Provenance.FORMULA
        assert never.coefficients["rate"] == MODELS["gemm"].ranges["rate"][0]
        assert "not measured" in never.source


def test_a_sibling_lends_before_another_architecture() -> None:
    assert "H100" in profile_for(catalog.chip("H800")).source
    assert "H200" in profile_for(catalog.chip("GH200-144GB")).source
    ampere = replace(catalog.chip("A100"), name="A200", sm_count=100)
    assert "A100" in profile_for(ampere).source
    assert profile_for(ampere).transferred


def test_watts_follow_the_board() -> None:
    h200, t4 = profile_for(catalog.chip("H200")).power, profile_for(catalog.chip("T4")).power
    assert t4["idle_w"] == 10
    assert t4["active_w"] < 20 < 100 < h200["active_w"]
    assert t4["j_per_byte"] == h200["j_per_byte"]
    assert 50 < t4["j_per_flop"] * 65e12 < 80


def test_a_sibling_of_the_same_rate_and_limit_borrows_as_it_is() -> None:
    h200, h100 = (profile_for(catalog.chip(name)).power for name in ("H200", "H100"))
    assert {name: value for name, value in h100.items() if name != "idle_w"} == {
        name: value for name, value in h200.items() if name != "idle_w"
    }
    h100 = profile_for(catalog.chip("H100")).family("gemm", "bf16").coefficients
    assert profile_for(catalog.chip("H800")).family("gemm", "bf16").coefficients == h100


def test_formats_that_a_chip_was_not_measured_in_come_from_its_sibling() -> None:
    """And no others: what was measured in 16 bits on the chip itself stays."""
    h100, h200 = (profile_for(catalog.chip(name)) for name in ("H100", "H200"))
    assert "H200" in h100.family("gemm", "int4-weights").source
    assert "scaled by the data sheet of H100" in h100.family("gemm", "int4-weights").source
    assert "H100" in h200.family("moe", "int4-weights").source
    assert h200.family("moe", "bf16").source == h200.source


def test_a_chip_measured_in_one_format_only_borrows_the_others() -> None:
    pcie = profile_for(catalog.chip("A100-PCIe-80GB"))
    assert "neusight" in pcie.family("gemm", "fp32", "torch").source
    assert "A100-SXM-80GB" in pcie.family("gemm", "bf16").source


@pytest.mark.parametrize(
    ("name", "donor"),
    [("V100-SXM2-32GB", "V100-PCIe-16GB"), ("RTX-3090Ti", "RTX-3090"), ("A10", "A40"), ("A30", "A100-SXM-80GB")],
)
def test_a_chip_whose_siblings_run_pytorch_alone_borrows_their_kernels(name: str, donor: str) -> None:
    """Of the same generation and as wide a multiprocessor, where none of those has a profile of an engine."""
    found = profile_for(catalog.chip(name), "torch")
    assert found.family("gemm", "fp16", "torch").source.startswith(f"{donor} ")
    assert found.family("gemm", "fp16", "torch").spread < FOREIGN


def test_a_loose_table_of_a_sibling_is_not_lent() -> None:
    """That of a P4 spreads more than another generation's adds."""
    assert all(" P4 " not in f" {one.source}" for one in profile_for(catalog.chip("P100"), "torch").families.values())


def test_a_few_large_cores_are_not_priced_as_multiprocessors() -> None:
    """Published products on a TPU v6e: 1,122 rows by 4096 x 14336 take 168 us, 163 rows 80 us."""
    on = machine("TPU-v6e")
    many, few = seconds(on, "gemm", m=[1122, 163], n=14336, k=4096)
    assert many == pytest.approx(168e-6, rel=0.35)
    assert few == pytest.approx(80e-6, rel=0.35)
    lent = profile_for(on.chip).family("gemm", "bf16").coefficients
    assert lent["sm_gb_s"] > 50 * profile_for(catalog.chip("H200")).family("gemm", "bf16").coefficients["sm_gb_s"]


H20_DECODES = {
    8: ((16, 4096, 106.17), (32, 1024, 65.47), (64, 4096, 363.81), (128, 8192, 1514.86), (256, 4096, 1524.0)),
    4: ((16, 16384, 186.204), (32, 4096, 97.209), (64, 4096, 190.055), (128, 8192, 691.538), (256, 8192, 1296.013)),
}
"""Sequences, their cached tokens, and microseconds, in bf16 with 32 heads of 128 channels over so many: FlashInfer on
an H20, by alibaba/InferSim (bench_data/mha/decode/h20)."""


def test_a_sibling_of_fewer_processors_waits_less_for_its_memory() -> None:
    """An H20 has more memory bandwidth than an H100 behind 59% of its processors."""
    common = {"op": "attention_decode", "dtype": "bf16", "heads": 32, "head_dim": 128}
    ratios = []
    for kv_heads, rows in H20_DECODES.items():
        given = [common | {"kv_heads": kv_heads, "batch": batch, "kv_len": keys} for batch, keys, _ in rows]
        found = gnomon.ops(given, on="H20")
        ratios += [row["time_us"] / us for row, (_, _, us) in zip(found, rows, strict=True)]
    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.09
    assert np.mean(ratios) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("name", ["H800", "H100-PCIe-80GB"])
def test_siblings_with_no_more_memory_a_processor_have_equal_tiles(name: str) -> None:
    own, lent = (profile_for(catalog.chip(chip)).family("attention_decode", "bf16") for chip in ("H100", name))
    assert lent.coefficients == own.coefficients
