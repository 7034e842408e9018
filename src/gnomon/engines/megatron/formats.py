"""Recipes of eight bits and fewer in Megatron-LM's words, both ways."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.engines.megatron.options import Value
from gnomon.engines.training.imported import TrainingOptions
from gnomon.graph.gemm_recipes import BLOCKS, CURRENT, DELAYED, MXFP8, NVFP4

EIGHT = {DELAYED.name: "delayed", CURRENT.name: "tensorwise", BLOCKS.name: "blockwise", MXFP8.name: "mxfp8"}
"""What `--fp8-recipe` calls them."""
E4M3 = (BLOCKS.name, MXFP8.name)
"""Whose gradients have as many bits of mantissa as all else, as DeepSeek-V3 and NVIDIA's recipes have it; others are
`hybrid`, gradients with a bit less."""
SPELLED = {theirs: ours for ours, theirs in EIGHT.items()}


def flags(dtype: str) -> Mapping[str, Value]:
    """The options of a plan's format."""
    if dtype == NVFP4.name:
        return {"--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"}
    if dtype in EIGHT:
        return {"--fp8-format": "e4m3" if dtype in E4M3 else "hybrid", "--fp8-recipe": EIGHT[dtype]}
    return {}


def gathered(dtype: str) -> Mapping[str, Value]:
    """Those that keep and gather weights so. Scales of mxfp8 along both sides cannot be gathered: weights travel in
    bf16, in the buffer of the gradients."""
    return {"--fp8-param-gather": True, "--reuse-grad-buf-for-mxfp8-param-ag": dtype == MXFP8.name}


def wide(layers: tuple[int, ...]) -> dict[str, Value]:
    """Those of first and last layers in bf16."""
    if not layers:
        return {}
    first, last = layers
    counts: dict[str, Value] = {"--num-layers-at-start-in-bf16": first, "--num-layers-at-end-in-bf16": last}
    return {"--first-last-layers-bf16": True, **counts}


def read_wide(options: TrainingOptions, dtype: str) -> str:
    """First and last layers in bf16, as a plan writes them; nothing where all are."""
    ends = [options.whole(f"num-layers-at-{end}-in-bf16", default=1, least=0) for end in ("start", "end")]
    asked = options.flag("first-last-layers-bf16") and dtype in (*EIGHT, NVFP4.name)
    return ",".join(map(str, ends)) if asked else ""


def read_gathered(options: TrainingOptions, dtype: str) -> bool:
    """Whether options ask for that, in a format that has it."""
    asked = options.flag("fp8-param-gather")
    reused = options.flag("reuse-grad-buf-for-mxfp8-param-ag")
    if asked and dtype == MXFP8.name and not reused:
        options.unmodelled("no --reuse-grad-buf-for-mxfp8-param-ag", "priced with it, without a buffer of its own")
    return asked and dtype in EIGHT


def read(options: TrainingOptions) -> str:
    """The recipe that options ask for; empty where they ask for none."""
    recipe = options.choice(SPELLED, "fp8-recipe", default=DELAYED.name)
    four = options.choice({"nvfp4": NVFP4.name}, "fp4-recipe", default=NVFP4.name)
    if options.text("fp4-format", "fp4"):
        return four
    return recipe if options.text("fp8-format", "fp8") else ""
