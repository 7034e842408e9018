"""On which chips TensorRT-LLM 1.2 runs: NVIDIA's from Ampere on (`docs/source/supported-hardware.md` of 1.2; sm 80, 86,
89, 90, 100, 103 and 120)."""

from __future__ import annotations

from gnomon.spec import Chip

TITLE = "TensorRT-LLM 1.2"
FAMILIES = ("Ampere", "Ada", "Hopper", "Blackwell")
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
VISIBLE, RESOURCE = "CUDA_VISIBLE_DEVICES", "nvidia.com/gpu"


def family(chip: Chip) -> str:
    """An architecture without its refinements: Blackwell of Blackwell Ultra."""
    return chip.architecture.partition(" ")[0]


def obstacle(chip: Chip) -> str:
    """Why TensorRT-LLM does not run on a chip; empty where it does."""
    if chip.vendor != "NVIDIA":
        return "it runs on NVIDIA's GPUs alone"
    return "" if family(chip) in FAMILIES else f"it has no kernels for {chip.architecture or 'an unknown architecture'}"


def not_run(chip: Chip) -> str:
    """The same as a sentence."""
    why = obstacle(chip)
    return f"{TITLE} does not run on {chip.name}: {why}" if why else ""
