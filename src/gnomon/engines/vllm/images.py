"""Images of requests under vLLM: the encoder budget of a step, the encoder cache, the tower's time and its memory.

A step encodes at most as many embeddings as it has tokens (`max_num_batched_tokens`), or as the model's largest image
has, and the encoder cache holds as many (`compute_mm_encoder_budget`). The profiled step runs as many of the largest
images as that has room for, and keeps their embeddings beside the decoder's own step (`profile_run`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnomon.cost.step import StepPrice
from gnomon.cost.tower import TowerCost
from gnomon.engines.base import Deployment, MemoryUse
from gnomon.engines.vllm import networks
from gnomon.engines.vllm.drafts import NONE
from gnomon.engines.vllm.releases import Release
from gnomon.engines.working import working_bytes
from gnomon.errors import InputError
from gnomon.graph.dtypes import STATE, width
from gnomon.graph.support import check_tower
from gnomon.spec import ImageTokens, Model, NetworkStep
from gnomon.spec.serving import ImageLimits

LARGEST = {
    "qwen2_vl": 16384,
    "qwen2_5_vl": 16384,
    "qwen3_vl": 16384,
    "qwen3_vl_moe": 16384,
    "qwen3_5": 16384,
    "qwen3_5_moe": 16384,
}
"""Tokens of the largest image that preprocessors scale down to, where the model's configuration does not say: the
`max_pixels` of Qwen2-VL's and Qwen2.5-VL's preprocessor_config.json are 12,845,056, of 28 pixels a side per token, and
the `longest_edge` of Qwen3-VL's, which Qwen3.5 has too, 16,777,216, of 32 (recalled, 2026-11)."""
WHOLE = ("gemma3",)
"""Models whose image tokens see each other: vLLM does not split images (`is_mm_prefix_lm`)."""


def check(deployment: Deployment) -> None:
    """Refuse what is not simulated with images, and towers without a price."""
    if deployment.images is None:
        return
    method, strategy = deployment.settings["speculative_method"], deployment.strategy
    if method != NONE:
        raise InputError(
            f"Gnomon simulates no images with speculative_method={method}",
            where="--images",
            hint="Leave one of them out: --images, or speculative_method.",
        )
    if strategy.pp * strategy.dp > 1:
        raise InputError(
            "Gnomon simulates no images on data-parallel ranks or a pipeline",
            where="--images",
            hint="Leave it out, or use --tp alone.",
        )
    if why := networks.not_served(deployment.model):
        raise InputError(why, where="model")
    check_tower(deployment.model.towers[0], deployment.strategy.tp)


def largest(model: Model, taken: ImageTokens) -> ImageTokens:
    """The largest image that the model takes; the load's own where nothing says more."""
    intake = model.towers[0].intake
    if not intake.any_size:
        return intake.picture(intake.side * intake.tiles, intake.side)
    if intake.side:
        return intake.picture(intake.side, intake.side)
    most = LARGEST.get(model.family, 0)
    if most <= taken.merged:
        return taken
    patches = most * intake.merge**2
    return replace(taken, positions=patches, patches=patches, merged=most)


def budget(deployment: Deployment) -> int:
    """Embeddings of one step, and of the cache."""
    taken = _taken(deployment)
    return max(int(deployment.settings["max_num_batched_tokens"]), largest(deployment.model, taken).merged)


def limits(deployment: Deployment, release: Release) -> dict[str, Any]:
    """What the scheduler knows of images."""
    if deployment.images is None:
        return {}
    count, taken, room = deployment.images.count, deployment.images.taken, budget(deployment)
    return {
        "images": ImageLimits(
            count=count,
            tokens=taken.prompt,
            embeddings=taken.merged,
            budget=room,
            cache=room,
            whole=deployment.model.family in WHOLE,
            unsplit=release.unsplit_images,
        )
    }


def tower_cost(deployment: Deployment) -> TowerCost | None:
    """What encoding adds to a step; nothing without images."""
    if deployment.images is None:
        return None
    taken = deployment.images.taken

    def price(images: int) -> StepPrice:
        model, batch = networks.tower(
            deployment, NetworkStep(decode=False, sequences=1, tokens=1, taken=taken, pieces=images)
        )
        return model.price(batch)

    return TowerCost.priced(price, max(budget(deployment) // taken.merged, 1))


def beside(use: MemoryUse, deployment: Deployment) -> MemoryUse:
    """Memory where the tower's profiled step, or its embeddings beside the decoder's, need more than the decoder."""
    if deployment.images is None:
        return use
    model, room = deployment.model, budget(deployment)
    tower, most = model.towers[0], largest(model, _taken(deployment))
    positions = max(room // most.merged, 1) * most.sequences * most.positions
    working = working_bytes(tower.blocks, tower.hidden, positions, STATE, deployment.strategy.tp)
    kept = room * model.hidden * width("bf16")
    return networks.with_activations(use, max(working, use.parts["activations"] + kept))


def _taken(deployment: Deployment) -> ImageTokens:
    assert deployment.images is not None
    return deployment.images.taken
