"""What SGLang 0.5.23 captures as CUDA graphs: decode steps as a whole, steps with prompts between attention calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.sglang.options import MIB
from gnomon.spec import Chip, Model, Strategy

MOST_BY_MEMORY = ((20 * 1024, 8, 8), (35 * 1024, 48, 160), (60 * 1024, 32, 160), (160 * 1024, 256, 512))
LARGE_MEMORY = 512
"""Sequences of the largest captured decode step by the memory of the chip in MiB: with fewer than four tensor-parallel
ranks, and with more (`handle_gpu_memory_settings`)."""
MANY_RANKS = 4
LATENT_PROMPTS = 8192
"""Latent attention captures no longer steps with prompts."""


def decode_sizes(settings: Mapping[str, Any], chip: Chip, strategy: Strategy) -> tuple[int, ...]:
    """Sequences of captured decode steps; a smaller one is padded to the next."""
    if settings["disable_cuda_graph"]:
        return ()
    most = largest_decode(settings, chip, strategy)
    sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32), most}
    return tuple(sorted(size for size in sizes if size <= most))


def largest_decode(settings: Mapping[str, Any], chip: Chip, strategy: Strategy) -> int:
    """Sequences of the largest captured decode step."""
    given = settings["cuda_graph_max_bs"]
    if given is not None:
        return int(given)
    memory, many = chip.memory_bytes / MIB, strategy.tp * strategy.dp >= MANY_RANKS
    found = next((large if many else small for most, small, large in MOST_BY_MEMORY if memory < most), LARGE_MEMORY)
    return min(found, int(settings["max_running_requests"]))


def prompt_sizes(settings: Mapping[str, Any], model: Model, strategy: Strategy) -> tuple[int, ...]:
    """Tokens of captured steps with prompts: none with a pipeline, or where a model takes images."""
    chunk = int(settings["chunked_prefill_size"])
    off = settings["disable_cuda_graph"] or settings["disable_prefill_cuda_graph"]
    if off or chunk < 0 or strategy.pp > 1 or model.towers:
        return ()
    most = min(chunk, LATENT_PROMPTS) if latent(model) else chunk
    if settings["max_total_tokens"] is not None:
        most = min(most, int(settings["max_total_tokens"]))
    sizes = (
        *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
        *range(4608, most + 1, 512),
    )  # fmt: skip
    return tuple(size for size in sizes if size <= most)


def latent(model: Model) -> bool:
    """Whether the model's attention is latent."""
    from gnomon.spec import LatentAttention

    return any(isinstance(block.mixer, LatentAttention) for block in model.blocks)
