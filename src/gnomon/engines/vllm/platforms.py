"""On which chips vLLM 0.24 runs: its platforms, what starts a server there, and why it does not run on the others.

Sources: `vllm/platforms` of vLLM 0.24.0 (cuda, rocm and xpu are its own; tpu hands over to a plugin; on macOS only the
CPU platform answers), its installation pages (docs/getting_started/installation: `gpu.cuda.inc.md` of v0.21.0 and later
asks for compute capability 7.5, `gpu.rocm.inc.md` lists gfx90a, gfx942, gfx950, gfx1100/1101, gfx1150/1151 and
gfx1200/1201, `gpu.xpu.inc.md` Data Center and Arc GPUs), and the kernels inside its wheel, which are built for sm_75,
80, 86, 89, 90, 100 and 120. Images: `vllm/vllm-openai` and `vllm/vllm-openai-rocm` have a tag per release;
`vllm/vllm-openai-xpu` begins with v0.26.0. Kubernetes resources are those of the vendors' device plugins.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.spec import Chip

TITLE = "vLLM 0.24"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One of vLLM's own platforms: how a process is shown its chips, and how Kubernetes allocates them."""

    name: str
    visible: str
    """The environment variable that lists the chips a process may use."""
    resource: str
    """What a pod asks Kubernetes for."""
    image: str
    """Tagged with the version."""
    image_since: str = "0.1.0"
    """The first version of which an image is published."""


CUDA = Platform(
    name="cuda", visible="CUDA_VISIBLE_DEVICES", resource="nvidia.com/gpu", image="vllm/vllm-openai"
)  # fmt: skip
ROCM = Platform(
    name="rocm", visible="HIP_VISIBLE_DEVICES", resource="amd.com/gpu", image="vllm/vllm-openai-rocm"
)  # fmt: skip
XPU = Platform(
    name="xpu",
    visible="ZE_AFFINITY_MASK",
    resource="gpu.intel.com/xe",
    image="vllm/vllm-openai-xpu",
    image_since="0.26.0",
)

CAPABILITY = {
    "Kepler": "3.7",
    "Maxwell": "5.2",
    "Pascal": "6.1",
    "Volta": "7.0",
    "Turing": "7.5",
    "Ampere": "8.0",
    "Ada": "8.9",
    "Hopper": "9.0",
    "Blackwell": "10.0",
    "Blackwell Ultra": "10.3",
}
"""Compute capability of the oldest chip of an architecture (developer.nvidia.com/cuda-gpus)."""
CARDS = {"Ampere": "8.6", "Blackwell": "12.0"}
"""And of those whose memory is not HBM."""
ONE_BY_ONE = {"Jetson-AGX-Orin": "8.7", "Jetson-Orin": "8.7", "Jetson-AGX-Thor": "11.0", "DGX-Spark": "12.1"}
"""And of chips, by how their names begin."""
LEAST_CAPABILITY = "7.5"
GFX = {
    "Vega": "gfx900",
    "RDNA1": "gfx1011",
    "CDNA1": "gfx908",
    "CDNA2": "gfx90a",
    "CDNA3": "gfx942",
    "CDNA4": "gfx950",
    "CDNA5": "gfx1250",
    "RDNA3": "gfx1100",
    "RDNA4": "gfx1201",
}
"""AMD's target of an architecture (ROCm's accelerator and GPU specifications)."""
ROCM_GFX = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1150", "gfx1151", "gfx1200", "gfx1201")
XPU_ARCHITECTURES = ("Xe-HPC", "Alchemist", "Battlemage")
PLUGINS = {
    "Google": "on TPUs the plugin tpu-inference runs in its place",
    "AWS": "on Trainium and Inferentia the plugin vllm-neuron runs in its place",
    "Apple": "on Apple's chips its own package runs on the processor alone, and the plugin vllm-metal on the GPU",
    "Qualcomm": "Qualcomm keeps a fork of its own for it",
    "Gaudi": "on Gaudi the plugin vllm-gaudi runs in its place",
}
"""Programs outside vLLM's package: another scheduler, other kernels and other versions than those that are priced."""
NO_BF16 = ("Arc-A770",)
"""Chips that vLLM refuses bfloat16 on (`XPUPlatform.check_if_supports_dtype`)."""


NONE = (0, 0)


def capability(chip: Chip) -> tuple[int, int]:
    """Compute capability; `NONE` where a chip has none, or none that is known."""
    if chip.vendor != "NVIDIA":
        return NONE
    named = next((found for start, found in ONE_BY_ONE.items() if chip.name.startswith(start)), "")
    card = "" if chip.memory.startswith("HBM") else CARDS.get(chip.architecture, "")
    major, minor = _number(named or card or CAPABILITY.get(chip.architecture, "0.0"))
    return major, minor


def platform_of(chip: Chip) -> Platform | None:
    """The platform of vLLM's own package that a chip belongs to, where it runs there."""
    if obstacle(chip):
        return None
    return {"NVIDIA": CUDA, "AMD": ROCM, "Intel": XPU}[chip.vendor]


def obstacle(chip: Chip) -> str:
    """Why vLLM 0.24 does not run on a chip; empty where it does."""
    kind = chip.architecture
    if chip.vendor == "NVIDIA":
        found = CAPABILITY.get(kind)
        if found is None:
            return f"it has no kernels for {kind or 'an unknown architecture'}"
        if _number(found) < _number(LEAST_CAPABILITY):
            return f"it needs compute capability {LEAST_CAPABILITY} (Turing) or later, and {kind} has {found}"
        return ""
    if chip.vendor == "AMD":
        target = GFX.get(kind, "")
        return "" if target in ROCM_GFX else f"its ROCm platform does not list {target or kind}"
    if chip.vendor == "Intel" and kind in XPU_ARCHITECTURES:
        return ""
    outside = PLUGINS.get(kind) or PLUGINS.get(chip.vendor)
    return outside or f"it has no platform for chips of {chip.vendor or 'an unknown vendor'}"


def not_run(chip: Chip, title: str = TITLE) -> str:
    """Why vLLM does not run on a chip, as a sentence; empty where it does."""
    why = obstacle(chip)
    return f"{title} does not run on {chip.name}: {why}" if why else ""


def refused_dtype(chip: Chip, dtype: str) -> str:
    """Why vLLM refuses to compute in a format there; empty where it does not."""
    if dtype == "bf16" and chip.name.startswith(NO_BF16):
        return f"vLLM refuses bfloat16 on {chip.name}"
    return ""


def has_image(platform: Platform, version: str) -> bool:
    """Whether there is an image of a version for a platform."""
    return _number(version) >= _number(platform.image_since)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
