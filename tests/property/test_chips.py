"""Every chip of the catalog, measured or not, gives sane predictions in a format it has."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cost.machines import machine, seconds
from tests.estimates import check_band

import gnomon
from gnomon import catalog
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip

CHIPS = pytest.mark.parametrize("chip", catalog.chips(), ids=lambda chip: chip.name)
MODEL = "llama-3.2-1b"
SETTINGS = {"max_model_len": 4096}
FARTHEST = {"decode": 4.0, "prefill": 4.0}
"""A step's device time over its roofline: nothing here is more than this far from it beyond fixed overheads."""
FIXED_S = {"decode": 4e-3, "prefill": 20e-3}
"""What an engine and its launches cost on the machine they were measured on, whatever the chip."""


@pytest.mark.battery(8)
@CHIPS
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_step_is_finite_and_above_the_roofline(chip: Chip, phase: str) -> None:
    work = {"batch": 8, "context": 512} if phase == "decode" else {"batch": 1, "tokens": 1024}
    found = gnomon.predict(MODEL, on=chip.name, phase=phase, settings=SETTINGS, **work)
    assert found.inputs["dtype"] == chip.half
    flops = sum(row.flops for row in found.breakdown)
    # What was just written streams from L2, `cached` times as fast as the memory at most.
    cached = profile_for(chip).family("elementwise", chip.half).coefficients["cached"]
    moved = sum(row.bytes / (1.0 if row.flops else max(cached, 1.0)) for row in found.breakdown)
    roof = max(flops / chip.rate(chip.half), moved / chip.memory_bandwidth_bytes_s)
    for value in (found.time_s, found.energy_j, found.cost_usd, found.memory_bytes):
        check_band(value)
    assert roof < found.time_s.value < FARTHEST[phase] * roof + FIXED_S[phase]
    assert chip.idle_w < found.energy_j.value / found.time_s.value <= chip.tdp_w * 1.001


@pytest.mark.battery(8)
@CHIPS
def test_every_format_it_has_prices_products(chip: Chip) -> None:
    on = machine(chip)
    for dtype, rate in chip.rates_flops.items():
        times = seconds(on, "gemm", dtype, m=[1, 64, 4096], n=8192, k=8192)
        rows = np.array([1.0, 64.0, 4096.0])
        least = np.maximum(2 * rows * 8192**2 / rate, 8192**2 * width(dtype) / chip.memory_bandwidth_bytes_s)
        assert np.all(times > least * (1 - 1e-9))  # an RTX 3090 is measured beyond its data sheet, which bounds it
        assert np.all(times < 5 * least + 100e-6), dtype


@pytest.mark.battery(8)
@CHIPS
def test_a_borrowed_profile_is_the_chips_own_size(chip: Chip) -> None:
    profile = profile_for(chip)
    if profile.transferred:
        assert profile.power["idle_w"] == chip.idle_w
        assert profile.power["active_w"] < chip.tdp_w
        assert "transferred from" in profile.source
        # Arithmetic at full rate takes about what the board may draw.
        assert 0.3 < profile.power["j_per_flop"] * chip.rate(chip.half) / chip.tdp_w < 2
    for key, family in profile.families.items():
        assert family.spread < (1.0 if key.startswith(("conv_", "algebra", "mla_backward")) else 0.6), key


def test_a_wider_band_on_a_stranger() -> None:
    def relative(on: str) -> float:
        time = gnomon.predict(MODEL, on=on, phase="prefill", tokens=4096, settings={"max_model_len": 8192}).time_s
        return time.high / time.low

    assert relative("RTX-4090") > relative("H100") > 1


@pytest.mark.parametrize("name", ["V100", "T4", "P100", "M2-Ultra"])
def test_chips_without_bf16(name: str) -> None:
    """vLLM turns to fp16 there by itself, and refuses bf16 when it is asked for."""
    assert gnomon.predict(MODEL, on=name, settings=SETTINGS).inputs["dtype"] == "fp16"
    with pytest.raises(InputError, match=r"'bf16' is not priced for vllm on .* What runs there: fp16"):
        gnomon.predict(MODEL, on=name, dtype="bf16", settings=SETTINGS)


@pytest.mark.parametrize("name", ["V100", "P100", "M2-Ultra"])
def test_chips_without_narrow_formats(name: str) -> None:
    for dtype in ("fp8", "int4", "nvfp4"):
        with pytest.raises(InputError, match=rf"weights in {dtype} do not run on .* What runs there: fp16\."):
            gnomon.predict(MODEL, on=name, dtype=dtype, settings=SETTINGS)


@pytest.mark.heavy
def test_a_fleet_of_chips_without_bf16_is_planned_in_fp16() -> None:
    found = gnomon.plan_serving(MODEL, fleet="T4:4", rate=1, input=128, output=32, requests=100, settings=SETTINGS)
    assert found.best.plan.dtype == "fp16"
