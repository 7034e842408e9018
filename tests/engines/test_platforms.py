"""Every chip that ships is on a platform of vLLM 0.24, or its answers say that it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

import gnomon
from gnomon import catalog
from gnomon.engines.vllm.platforms import (
    CAPABILITY,
    CUDA,
    GFX,
    ROCM,
    XPU,
    XPU_ARCHITECTURES,
    has_image,
    obstacle,
    platform_of,
)
from gnomon.errors import InputError
from gnomon.spec import EngineChoice, Plan, Strategy

CHIPS = catalog.chip_names()
RUN = {
    "cuda": ["H100", "H200", "A100", "L4", "T4", "RTX-4090", "RTX-2080Ti", "B200", "B300", "GB200", "DGX-Spark-GB10"],
    "rocm": ["MI210", "MI250X", "MI300A", "MI300X", "MI325X", "MI355X", "Radeon-7900XTX", "Radeon-R9700"],
    "xpu": ["Max-1550", "Arc-A770-16GB", "Arc-B580", "Arc-Pro-B60"],
}
NOT_RUN = [
    "V100-SXM2-16GB", "P100-SXM2-16GB", "K80", "M60", "Rubin-SXM", "MI25", "MI100", "Radeon-Pro-V520", "MI455X",
    "TPU-v5e", "TPU-v7x", "Gaudi2", "Gaudi3", "Trainium2", "Inferentia1", "Apple-M4-Max-40c", "Cloud-AI-100",
]  # fmt: skip


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_has_a_platform_or_a_reason(name: str) -> None:
    chip = catalog.chip(name)
    platform = platform_of(chip)
    assert (platform is None) == bool(obstacle(chip))
    if platform is not None:
        assert {"cuda": "NVIDIA", "rocm": "AMD", "xpu": "Intel"}[platform.name] == chip.vendor
    if chip.vendor == "NVIDIA" and chip.architecture != "Rubin":
        assert chip.architecture in CAPABILITY
    if chip.vendor == "AMD":
        assert chip.architecture in GFX
    if chip.vendor == "Intel":
        assert chip.architecture in (*XPU_ARCHITECTURES, "Gaudi")


@pytest.mark.parametrize(("platform", "names"), RUN.items())
def test_what_vllm_runs_on(platform: str, names: list[str]) -> None:
    for name in names:
        found = platform_of(catalog.chip(name))
        assert found is not None
        assert found.name == platform


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", NOT_RUN)
def test_what_it_does_not_run_on_is_said(name: str) -> None:
    """In the title and under `not_modelled`, of every kind of answer about a deployment."""
    chip = catalog.chip(name)
    dtype = chip.half
    model = "llama-3.2-1b"
    answers = [
        gnomon.predict(model, on=name, batch=1, context=16, dtype=dtype),
        gnomon.fit(model, on=name, dtype=dtype, context=256),
        gnomon.simulate_serving(
            model, on=name, dtype=dtype, rate=1.0, input=16, output=2, requests=2, settings={"max_model_len": 512}
        ),
    ]
    for answer in answers:
        assert "as if vLLM 0.24 ran there" in answer.title
        assert answer.not_modelled[0].option == chip.name
        assert f"vLLM 0.24 does not run on {chip.name}" in answer.not_modelled[0].why
    assert "not modelled" in gnomon_text(answers[0])
    assert "as if vLLM" not in gnomon.predict(model, on="H100", batch=1, context=16).title


def gnomon_text(answer: gnomon.spec.answers.Prediction) -> str:
    from gnomon.report import render

    return render(answer, colour=False)


def test_a_search_says_it_too() -> None:
    report = gnomon.plan_serving("llama-3.2-1b", fleet="TPU-v5e:1", rate=1.0, input=64, output=8)
    assert [entry.option for entry in report.not_modelled] == ["TPU-v5e"]
    assert any("does not run on TPU-v5e" in line for line in report.left_to_you)


def plan(chip: str) -> Plan:
    own = catalog.chip(chip)
    return Plan(
        model="llama-3.2-1b",
        chip=chip,
        replicas=2,
        strategy=Strategy(tp=2 if own.scaleup_size > 1 else 1),
        dtype="fp16",
        engine=EngineChoice(settings={"max_model_len": 1024}),
    )


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", [name for name in CHIPS if "fp16" in catalog.chip(name).rates_flops])
def test_scripts_and_manifests_are_for_the_chips_own_platform(name: str) -> None:
    """Or there is none: never another vendor's variable, resource or image."""
    found = platform_of(catalog.chip(name))
    if found is None:
        for target in ("vllm", "kubernetes"):
            with pytest.raises(InputError, match=r"vLLM 0\.24 does not run on"):
                gnomon.export(plan(name), target)
        forced = gnomon.export(plan(name), "vllm", force=True).files["launch.sh"]
        assert "VISIBLE_DEVICES" not in forced
        assert "ZE_AFFINITY_MASK" not in forced
        with pytest.raises(InputError):
            gnomon.export(plan(name), "kubernetes", force=True)
        return
    script = gnomon.export(plan(name), "vllm").files["launch.sh"]
    for other in (CUDA, ROCM, XPU):
        assert (f"{other.visible}=" in script) == (other.visible == found.visible)
    if not has_image(found, "0.24.0"):
        with pytest.raises(InputError, match=r"no image of vLLM 0\.24\.0 is published"):
            gnomon.export(plan(name), "kubernetes")
        return
    document, _ = yaml.safe_load_all(gnomon.export(plan(name), "kubernetes").files["deployment.yaml"])
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{found.image}:v0.24.0"
    assert container["resources"]["limits"] == {found.resource: plan(name).ranks}


def test_a_chip_of_ones_own_is_told_by_its_vendor_and_architecture() -> None:
    h100 = catalog.chip("H100")
    assert platform_of(replace(h100, name="mine")) is CUDA
    for vendor, architecture in (
        ("NVIDIA", "Feynman"),
        ("AMD", "CDNA9"),
        ("Intel", "Jaguar"),
        ("Acme", "One"),
        ("", ""),
    ):
        assert obstacle(replace(h100, vendor=vendor, architecture=architecture))
