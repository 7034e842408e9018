"""Images of a load on a replica: what the model's tower makes of them, and who does not take them."""

from __future__ import annotations

import math
from dataclasses import replace

from gnomon.engines.base import Deployment, Engine, ImagesTaken
from gnomon.errors import InputError
from gnomon.planning.steps.network_words import attends_to_images, image_taken, intake_of
from gnomon.spec import ImageTokens, Model, ServingLoad
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.preprocessor import VisionPreprocessor

WHERE = "--images"


def with_image_tokens(load: ServingLoad, model: Model, where: str = WHERE) -> ServingLoad:
    """The load with the tokens that its images take in the prompts of a model, and their size where none was given:
    the usual one, or one of as many tokens where these are given."""
    if load.images is None:
        return load
    images, intake = _sized(load.images, model, where), intake_of(model)
    if not images.width:
        height, width = _size_of(intake, images.tokens, model, where) if images.tokens else intake.usual
        images = replace(images, height=height, width=width)
    return replace(load, images=replace(images, tokens=taken_of(images, model).prompt))


def _size_of(intake: VisionPreprocessor, tokens: int, model: Model, where: str) -> tuple[int, int]:
    """Pixels down and across of an image of so many tokens, as near to a square as there is one."""
    unit = intake.patch * intake.merge
    if intake.any_size:
        sides = [down for down in range(1, math.isqrt(tokens) + 1) if tokens % down == 0]
        sizes = [(down * unit, (tokens // down - intake.row_ends) * unit) for down in reversed(sides)]
    else:
        tiles = range(1, max(intake.tiles, 1) + 1)
        sizes = [intake.usual, *((down * intake.side, across * intake.side) for down in tiles for across in tiles)]
    for size in sizes:
        if min(size) > 0 and intake.picture(*size).prompt == tokens:
            return size
    usual = intake.picture(*intake.usual).prompt
    message = f"{model.name} makes no image of {tokens:,} tokens"
    raise InputError(message, where=where, hint=f"Its usual images have {usual:,}; without image_tokens all have.")


def taken_of(images: RequestImages, model: Model) -> ImageTokens:
    """What the tower makes of one of them."""
    return image_taken(intake_of(model), images.height, images.width, WHERE)


def with_images(engine: Engine, deployment: Deployment, images: RequestImages | None) -> Deployment:
    """The replica of a load; with images, once the engine is known to take them."""
    if images is None:
        return deployment
    if engine.networks is None:
        hint = "Leave it out, or use --engine vllm."
        raise InputError(f"loads with images are not simulated under {engine.title}", where=WHERE, hint=hint)
    taken = taken_of(_sized(images, deployment.model), deployment.model)
    found = replace(deployment, images=ImagesTaken(count=images.count, taken=taken))
    engine.networks.check_images(found)
    return found


def _sized(images: RequestImages, model: Model, where: str = WHERE) -> RequestImages:
    if model.kind != "multimodal" or not model.towers:
        hint = "`gnomon models --kind multimodal` lists those that do."
        raise InputError(f"{model.name} takes no images", where=where, hint=hint)
    if attends_to_images(model):
        hint = "`gnomon predict` prices one step of it."
        raise InputError(
            f"{model.name} attends to images by cross-attention, which is not simulated under load",
            where=where,
            hint=hint,
        )
    return images
