"""Images of a load on a replica: what the model's tower makes of them, and who does not take them."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.base import Deployment, Engine, ImagesTaken
from gnomon.errors import InputError
from gnomon.planning.steps.network_words import attends_to_images, image_taken, intake_of
from gnomon.spec import ImageTokens, Model, ServingLoad
from gnomon.spec.loads.images import RequestImages

WHERE = "--images"


def with_image_tokens(load: ServingLoad, model: Model) -> ServingLoad:
    """The load with the tokens that its images take in the prompts of a model, and their size where none was given."""
    if load.images is None:
        return load
    images, intake = _sized(load.images, model), intake_of(model)
    if not images.width:
        height, width = intake.usual
        images = replace(images, height=height, width=width)
    return replace(load, images=replace(images, tokens=taken_of(images, model).prompt))


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


def _sized(images: RequestImages, model: Model) -> RequestImages:
    if model.kind != "multimodal" or not model.towers:
        hint = "`gnomon models --kind multimodal` lists those that do."
        raise InputError(f"{model.name} takes no images", where=WHERE, hint=hint)
    if attends_to_images(model):
        hint = "`gnomon predict` prices one step of it."
        raise InputError(
            f"{model.name} attends to images by cross-attention, which is not simulated under load",
            where=WHERE,
            hint=hint,
        )
    return images
