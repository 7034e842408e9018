"""Draws, bounds and evidence of a machine; profiles read and refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.cost.machines import CHIPS, machine

import gnomon
from gnomon import catalog
from gnomon.cost.draws import normals
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.cost.machine import Machine, known_kinds
from gnomon.cost.rows import COLUMNS, shape_of
from gnomon.cost.transfer import OF_A_PROCESSOR, TRANSFER_SPREAD
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.graph.ops import TOKENS, Collective, Elementwise, Gemm
from gnomon.load.chips import ChipBook
from gnomon.load.profile_file import SCHEMA, profile_from_dict
from gnomon.load.profiles import Profiles, forget_profiles, profile_for
from gnomon.spec import Batch, Pool
from gnomon.spec.estimate import DRAWS, Estimate

PRODUCT = {"op": "gemm", "dtype": "bf16", "m": 128, "n": 4096, "k": 4096}


def test_draws_repeat() -> None:
    first, again = (machine().factors("ffn.up", "gemm", "bf16") for _ in range(2))
    assert first.shape == (DRAWS,)
    assert first.tolist() == again.tolist()
    assert first.tolist() != machine().factors("ffn.down", "gemm", "bf16").tolist()
    assert first.tolist() != machine("H100").factors("ffn.up", "gemm", "bf16").tolist()


@pytest.mark.parametrize("name", ["module", "networks", "host"])
def test_even_draws_have_the_quantiles_of_a_normal_distribution(name: str) -> None:
    draws = normals(name)
    assert np.quantile(draws, [0.05, 0.5, 0.95]) == pytest.approx([-1.645, 0.0, 1.645], abs=0.04)
    assert draws.tolist() == normals(name).tolist() != normals(f"{name} of another").tolist()


@pytest.mark.parametrize("kind", known_kinds())
def test_draws_are_centred_and_as_wide_as_the_evidence(kind: str) -> None:
    chip = catalog.chip("H200")
    on = Machine(Pool.of(chip, 8, catalog.node_of(chip)), profile_for(chip))
    many = np.log([on.factors(f"op {i}", kind, "bf16") for i in range(200)])
    spread = np.hypot(on.evidence(kind, "bf16").spread, on.profile.system_spread)
    assert abs(np.median(many)) < 0.35 * spread
    assert many.std() == pytest.approx(spread, rel=0.25)


def test_only_steps_with_prompts_are_wider_by_the_spread_of_prompts() -> None:
    plain = machine("H100")
    wide = replace(plain, profile=replace(plain.profile, prompt_spread=2 * plain.profile.prompt_spread))
    op = Gemm(name="ffn.up", dtype="bf16", count=1, m=TOKENS, n=4096, k=4096)
    assert plain.profile.prompt_spread > 0
    for batch, wider in ((Batch.prefill([1], 2048), True), (Batch.decode(64, 1000), False)):
        seconds = plain.op_seconds(op, batch)
        before, after = (np.ptp(one.op_draws(op, batch, seconds)) for one in (plain, wide))
        assert bool(after > before) == wider
    assert machine().profile.prompt_spread == 0  # measured by ourselves


def test_a_family_shares_a_part_of_its_draws() -> None:
    on = machine(count=8)
    one, two = (np.log(on.factors(name, "all_reduce", "bf16")) for name in ("a", "b"))
    family = on.evidence("all_reduce", "bf16")
    assert 0 < family.shared < family.spread
    many = np.log([on.factors(f"op {i}", "all_reduce", "bf16") for i in range(300)])
    # What is left when the operators' own parts average out.
    assert many.mean(axis=0).std() == pytest.approx(np.hypot(family.shared, on.profile.system_spread), rel=0.4)
    assert one.tolist() != two.tolist()


@pytest.mark.parametrize(
    ("flops", "moved", "bound"), [(1e15, 1e9, "compute"), (1e9, 4.8e12, "memory"), (1e9, 1e9, "efficiency")]
)
def test_bounds(flops: float, moved: float, bound: str) -> None:
    one = np.ones(1)
    assert machine().bound(flops * one, moved * one, one, "gemm", "bf16")[0] == bound
    small = machine().bound(flops * one, moved * one, one, "gemm", "bf16", runs=1_000_000)[0]
    assert small == ("latency" if bound == "efficiency" else bound)
    assert machine().bound(flops * one, moved * one, one, "all_reduce", "bf16")[0] == "network"


@pytest.mark.parametrize(
    ("kind", "dtype", "arithmetic"),
    [
        ("gemm", "fp8", "fp8"),
        ("gemm", "int4-weights", "bf16"),
        ("moe", "mxfp4-weights", "bf16"),
        ("moe", "fp8-blocks", "fp8"),
        ("attention_decode", "fp8", "bf16"),
        ("attention_prefill", "fp16", "fp16"),
        ("attention_forward", "fp32", "fp32"),
        ("mla_decode", "fp8", "bf16"),
        ("index_scores", "fp8", "fp8"),
        ("scan_prefill_mamba2", "fp8", "bf16"),
        ("scan_decode_mamba2", "bf16", "fp32"),
    ],
)
def test_an_operator_is_set_against_the_rate_its_kernel_has(kind: str, dtype: str, arithmetic: str) -> None:
    on, one = machine(), np.ones(1)
    assert on.arithmetic(kind, dtype) == arithmetic
    rate = on.chip.rate(arithmetic)
    assert on.bound(0.41 * rate * one, one, one, kind, dtype)[0] == "compute"
    assert on.bound(0.39 * rate * one, one, one, kind, dtype)[0] == "efficiency"


@pytest.mark.parametrize(
    ("ranks", "stride", "said"),
    [(8, 1, "NVLink4"), (16, 1, "NVLink4, and InfiniBand NDR beyond a node"), (2, 8, "InfiniBand NDR")],
)
def test_a_collective_names_the_links_it_crosses(ranks: int, stride: int, said: str) -> None:
    op = Collective(name="sum", op="all_reduce", rows=TOKENS, bytes_per_row=2.0, ranks=ranks, stride=stride)
    assert machine(count=16).source(op) == said


def test_kinds_and_their_columns_agree() -> None:
    assert set(known_kinds()) == set(COLUMNS)
    for kind, model in MODELS.items():
        ones = {name: np.ones(3) for name in (*COLUMNS[kind], "batch")}
        start = {name: first for name, (first, _, _) in model.ranges.items()}
        assert np.all(model.seconds(shape_of(kind, ones), "bf16", catalog.chip("H200"), start) > 0), kind
    with pytest.raises(UnknownNameError, match="gemm"):
        kernel_model("gem")


@pytest.mark.parametrize("chip", CHIPS)
def test_coefficients_keep_to_their_range(chip: str) -> None:
    families = profile_for(catalog.chip(chip)).families
    assert {key.partition(".")[0] for key in families} == set(MODELS)
    for key, family in families.items():
        model = kernel_model(key.partition(".")[0])
        for name, value in family.coefficients.items():
            _, least, most = (model.ranges | model.some)[name]
            assert least <= value <= most or name in OF_A_PROCESSOR, (key, name)
        assert (
            0 <= family.shared <= family.spread < (1.0 if key.startswith(("conv_", "algebra", "mla_backward")) else 0.5)
        )


def test_a_chip_without_a_profile_borrows_and_says_so() -> None:
    own = profile_for(catalog.chip("H200"))
    stranger = replace(catalog.chip("H200"), name="H300", l2_bytes=64e6)
    transferred = profile_for(stranger)
    assert transferred.transferred
    assert not own.transferred
    assert "H200" in transferred.source
    measured = [key for key, family in own.families.items() if family.source == own.source]
    assert {"gemm.bf16", "moe.bf16", "attention_decode.bf16"} <= set(measured)
    assert "gemm.bf16" in measured
    for key in measured:
        family = transferred.families[key]
        assert family.coefficients == own.families[key].coefficients
        assert family.spread == pytest.approx(own.families[key].spread * TRANSFER_SPREAD)
        assert "H300" in family.source


def test_a_chip_of_the_same_figures_has_the_same_profile() -> None:
    own = catalog.chip("H200")
    twin, known = profile_for(replace(own, name="H300", price_usd_h=1.0, memory_bytes=1e11)), profile_for(own)
    for key, family in known.families.items():
        assert twin.families[key] == replace(
            family, source=family.source.replace(f"sheet of {own.name}", "sheet of H300")
        )
    assert replace(twin, families={}) == replace(known, families={})
    assert profile_for(replace(own, name="H300", tdp_w=own.tdp_w + 1)).transferred


def test_formats_without_a_fit_of_their_own() -> None:
    profile = profile_for(catalog.chip("H200"))
    assert profile.family("conv", "fp16") is profile.family("conv", "bf16")
    assert profile.family("gemm", "fp16") is not profile.family("gemm", "bf16")
    assert profile.family("gemm", "fp8") is not profile.family("gemm", "bf16")
    assert profile.family("attention_forward", "fp16") is profile.family("attention_forward", "bf16", "torch")
    with pytest.raises(KeyError, match="sorting"):
        profile.family("sorting", "bf16")


def small_profile() -> dict[str, Any]:
    families = {}
    for kind, model in MODELS.items():
        start = {name: first for name, (first, _, _) in model.ranges.items()}
        families[f"{kind}.bf16"] = {"coefficients": start, "spread": 0.1, "shared": 0.01}
    power = {"idle_w": 75.0, "active_w": 100.0, "j_per_flop": 1e-13, "j_per_byte": 1e-11}
    return {"schema": SCHEMA, "chip": "H200", "date": "2026-01-01", "families": families, "power": power}


def test_a_profile_is_read() -> None:
    profile = profile_from_dict(small_profile(), "x.yaml")
    assert profile.chip == "H200"
    assert profile.family("gemm", "bf16").spread == 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "gnomon.profile/2"}, "gnomon.profile/2"),
        ({"families": {"gemm.bf16": {"spread": 0.1, "shared": 0.1}}}, "coefficients"),
        ({"families": {"gemm.bf16": {"coefficients": {"rate": 1.0}, "spread": 0.1, "shared": 0.1}}}, "x.yaml"),
        ({"families": {"gem.bf16": {"coefficients": {}, "spread": 0.1, "shared": 0.1}}}, "gem"),
        ({"power": {"idle_w": 1}}, "it has no 'active_w'"),
        ({"power": None}, "power is no mapping"),
        ({"families": []}, "families is no mapping"),
        ({"families": {"gemm": {}}}, "the family 'gemm' is not an operator and its number format"),
        ({"families": {"gemm.bf61": {}}}, "the family 'gemm.bf61' is not"),
        ({"families": {5: {}}}, "the family '5' is not"),
        ({"families": {"gemm.bf16": None}}, "gemm.bf16 is no mapping"),
        (
            {"power": {"idle_w": 75.0, "active_w": 100.0, "j_per_flop": 0, "j_per_byte": 1e-11}},
            "j_per_flop is not a",
        ),
        ({"families": {}}, "attention|gemm|moe"),
        ({"power": {"idle_w": -1.0, "active_w": 1.0, "j_per_flop": 0.0, "j_per_byte": 0.0}}, "idle_w"),
    ],
)
def test_broken_profiles_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrationError, match=message) as caught:
        profile_from_dict(small_profile() | changes, "x.yaml")
    assert caught.value.where == "x.yaml"


@pytest.mark.parametrize(
    ("chip", "message"), [("H200", ""), ("X1", "unknown chip 'X1'"), ("H100", "holds a profile of H100-SXM-80GB")]
)
def test_a_profile_is_of_the_chip_its_file_is_named_after(chip: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "h200.yaml").write_text(yaml.safe_dump(small_profile() | {"chip": chip}))
    profiles = Profiles(tmp_path, ChipBook({}))
    if message:
        with pytest.raises(CalibrationError, match=message):
            profiles.of("H200-SXM-141GB")
    else:
        found = profiles.of("H200-SXM-141GB")
        assert found is not None
        assert (found.chip, found.family("gemm", "bf16").spread) == ("H200-SXM-141GB", 0.1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e308, True, "0.7", None])
def test_no_coefficient_is_out_of_its_range(value: Any) -> None:
    broken = small_profile()
    broken["families"]["gemm.bf16"]["coefficients"]["rate"] = value
    with pytest.raises(CalibrationError, match=r"gemm\.bf16 rate"):
        profile_from_dict(broken, "x.yaml")


@pytest.mark.parametrize("name", ["spread", "shared"])
@pytest.mark.parametrize("value", [float("nan"), -0.1, 1e308])
def test_no_spread_is_nonsense(name: str, value: float) -> None:
    broken = small_profile()
    broken["families"]["gemm.bf16"][name] = value
    with pytest.raises(CalibrationError, match=name):
        profile_from_dict(broken, "x.yaml")


def test_no_part_of_a_spread_is_more_than_all_of_it() -> None:
    broken = small_profile()
    broken["families"]["gemm.bf16"]["shared"] = 0.2
    with pytest.raises(CalibrationError, match=r"gemm\.bf16 shared, a part of its spread, is not between 0 and 0\.1"):
        profile_from_dict(broken, "x.yaml")


def test_numbers_beyond_all_numbers_are_refused() -> None:
    broken = small_profile()
    residual = {"axes": {"m": [0, 10, 2]}, "thousandths": "1 " + "9" * 400}
    broken["families"]["gemm.bf16"]["residual"] = residual
    with pytest.raises(CalibrationError, match="is not a whole profile"):
        profile_from_dict(broken, "x.yaml")


@pytest.fixture
def own_profiles(own_history: Path) -> Iterator[Path]:
    folder = own_history / "profiles"
    folder.mkdir(parents=True)
    forget_profiles()
    yield folder
    forget_profiles()


def test_a_source_stands_once_in_a_sum() -> None:
    one, two = Estimate.exact(1.0, "a"), Estimate.exact(1.0, "b; c")
    assert (one + two + one + two + Estimate.exact(1.0, "c") + Estimate.exact(1.0)).source == "a; b; c"


def test_a_profile_of_ones_own_is_called_that(own_profiles: Path) -> None:
    path = own_profiles / "h200-sxm-141gb.yaml"
    path.write_text(yaml.safe_dump(small_profile()))
    told = f"your profile {path}, H200 2026-01-01"
    assert gnomon.ops([PRODUCT], on="H200")[0]["provenance"] == f"fitted: {told}"
    assert told in gnomon.predict("llama-3.1-8b", on="H200").time_s.source
    assert "your profile" not in gnomon.ops([PRODUCT], on="A100")[0]["provenance"]


@pytest.mark.parametrize(
    ("name", "inside", "told"),
    [
        ("h200-sxm-141gb", {"chip": "H100"}, "H100-SXM-80GB"),
        ("h200-sxm-141gb", {"framework": "sglang"}, "H200-SXM-141GB sglang"),
        ("h200-sxm-141gb.torch", {}, "H200-SXM-141GB"),
    ],
)
def test_a_profile_is_of_what_its_file_is_named_after(
    own_profiles: Path, name: str, inside: dict[str, str], told: str
) -> None:
    path = own_profiles / f"{name}.yaml"
    path.write_text(yaml.safe_dump(small_profile() | inside))
    with pytest.raises(CalibrationError, match=f"is named '{name}.yaml', and holds a profile of {told}$") as caught:
        gnomon.ops([PRODUCT | {"engine": "torch"}], on="H200")
    assert caught.value.where == str(path)


def test_shipped_profiles_are_of_known_chips() -> None:
    assert {path.stem.partition(".")[0] for path in catalog.profile_paths()} <= {
        n.lower() for n in catalog.chip_names()
    }


@pytest.mark.parametrize("name", ["H20", "H200", "MI300X", "T4"])
def test_no_draw_is_quicker_than_the_chip(name: str) -> None:
    """The mean of its draws may go below an operator's time, none below the peaks of the data sheet."""
    on = machine(name)
    batch = Batch.decode([64], [4096])
    op = Gemm(name="ffn.up", m=TOKENS, n=28672, k=8192, dtype=on.chip.half, count=3)
    seconds = on.op_seconds(op, batch)
    moved = 3 * (64 * 8192 + 28672 * 8192 + 64 * 28672) * 2
    draws = on.op_draws(op, batch, seconds)
    assert draws.min() >= moved / on.chip.memory_bandwidth_bytes_s * (1 - 1e-9)
    assert draws.max() == (float(seconds.sum()) * on.factors(op.name, "gemm", op.dtype)).max()


@pytest.mark.parametrize("name", ["host", "H200-SXM-141GB/gemm/bf16", "networks"])
def test_draws_are_even_all_together_and_in_their_first_half(name: str) -> None:
    """Bands of loads push the first half through the simulator: it has the spread of all of them."""
    found = normals(name)
    for part in (found, found[: DRAWS // 2]):
        assert np.mean(part) == pytest.approx(0.0, abs=1e-12)
        assert np.quantile(part, [0.05, 0.95]) == pytest.approx([-1.645, 1.645], abs=0.02)


@pytest.mark.parametrize(
    ("chip", "dtype", "width"), [("B200", "fp8", 1.0), ("H100", "fp8", 1.0), ("B200", "nvfp4", 0.5625)]
)
def test_a_narrowed_layer_takes_what_its_table_has(chip: str, dtype: str, width: float) -> None:
    """Tables time whole layers: narrowing their inputs and the GEMM are what was measured, however long each is."""
    found, batch = machine(chip), Batch.prefill(1, 3000)
    gemm = Gemm(name="up", m=TOKENS, n=4096, k=8192, dtype=dtype)
    narrow = Elementwise(
        name="up.quantise", rows=TOKENS, read_per_row=4 * 8192, written_per_row=8192 * width, narrows=dtype
    )
    shape = gemm.shape(batch) | {"quantised": np.ones(1)}
    layer = kernel_model("gemm").seconds(shape, dtype, found.chip, found.evidence("gemm", dtype).coefficients)
    alone = kernel_model("gemm").seconds(
        gemm.shape(batch), dtype, found.chip, found.evidence("gemm", dtype).coefficients
    )
    assert found.op_seconds(narrow, batch) == pytest.approx(layer - alone, rel=1e-9)
    assert found.source(narrow) == found.source(gemm)
    own = machine("H200")
    assert own.op_seconds(narrow, batch) == own.seconds("elementwise", "bf16", narrow.shape(batch))
