"""What of a network a training job runs: the decoder on text alone, towers with what goes through them, layers that
predict further tokens."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError
from gnomon.planning.steps.network_words import attends_to_images, image_taken, intake_of, size_of
from gnomon.spec import Model, TrainingLoad
from gnomon.spec.answers import NotModelled
from gnomon.spec.network import TowerInput
from gnomon.spec.training import FURTHER, PROJECTOR, VISION

LEAVE_OUT = "Leave it out."


def trained_network(model: Model, load: TrainingLoad) -> Model:
    """The network as a job trains it. Errors name the fields of a plan."""
    found = _further(model, load)
    if model.kind == "multimodal":
        return _pictured(found, load)
    for name in ("images", "image", "freeze"):
        if value := getattr(load, name):
            raise InputError(
                f"{value} does not apply to {model.name}, which has no vision tower",
                where=f"load.{name}",
                hint=LEAVE_OUT,
            )
    if not model.towers:
        if load.source:
            message = f"{load.source} does not apply to {model.name}, which attends to nothing beside its sequence"
            raise InputError(message, where="load.source", hint=LEAVE_OUT)
        return found
    intake = intake_of(model)
    source = load.source or intake.positions
    if source > intake.positions:
        message = f"{source:,} is more than {intake.positions:,}, the maximum length"
        raise InputError(message, where="load.source", hint=f"Use at most {intake.positions}.")
    given = TowerInput(taken=intake.length(source))
    notes = [] if model.kind != "diffusion" else [_precomputed(source)]
    return replace(found, beside=(given,), not_modelled=(*found.not_modelled, *notes))


def _precomputed(source: int) -> NotModelled:
    why = f"steps read latents and {source:,} text vectors a sample that were computed before"
    return NotModelled(option="autoencoder and text encoder", why=why)


def _pictured(model: Model, load: TrainingLoad) -> Model:
    if load.source:
        raise InputError(f"{load.source} does not apply to {model.name}", where="load.source", hint="Give images.")
    if not load.images:
        return _on_text(model, load)
    intake = intake_of(model)
    size = size_of(load.image) if load.image else intake.usual
    taken = image_taken(intake, *size, where="load.image")
    prompt = 0 if attends_to_images(model) else load.images * taken.prompt
    if prompt > load.seq:
        message = f"{load.images} images of {size[1]}x{size[0]} are {prompt:,} tokens of a sequence of {load.seq:,}"
        raise InputError(message, where="load.images", hint=f"Use sequences of {prompt:,} tokens or more.")
    frozen = _frozen(load)
    given = TowerInput(taken=taken, pieces=load.images, frozen=VISION in frozen, frozen_tail=PROJECTOR in frozen)
    return replace(model, beside=(given,))


def _frozen(load: TrainingLoad) -> tuple[str, ...]:
    found = tuple(word.strip() for word in load.freeze.split(",") if word.strip())
    for word in found:
        if word not in (VISION, PROJECTOR):
            hint = f"Known: {VISION}, {PROJECTOR}, or both with a comma."
            raise InputError(f"unknown part '{word}' to freeze", where="load.freeze", hint=hint)
    return found


def _on_text(model: Model, load: TrainingLoad) -> Model:
    """The decoder alone, which is what text trains: the tower is neither run nor loaded."""
    for name in ("image", "freeze"):
        if value := getattr(load, name):
            raise InputError(f"{value} has no effect without images", where=f"load.{name}", hint="Give images too.")
    if attends_to_images(model):
        message = f"{model.name} has layers that attend to images, and none are given"
        raise InputError(message, where="load.images", hint="Use 1 or more.")
    why = "a step of text neither runs nor loads it: the decoder alone learns; --images N trains it too"
    left = NotModelled(option="vision tower", why=why)
    return replace(model.alone, not_modelled=(*model.not_modelled, left))


def _further(model: Model, load: TrainingLoad) -> Model:
    """With as many layers that predict further tokens as are asked for. Frameworks train none unless told to."""
    if load.mtp_layers:
        if not model.vocab or not model.has_head or model.towers:
            message = f"{load.mtp_layers} does not apply to {model.name}, which predicts no next token alone"
            raise InputError(message, where="load.mtp_layers", hint=LEAVE_OUT)
        template = model.mtp[0] if model.mtp else model.blocks[-1]
        return replace(model, mtp=(replace(template, count=load.mtp_layers),))
    if not model.mtp:
        return model
    count = sum(block.count for block in model.mtp)
    why = f"the model has {count}; steps train none of them unless --mtp-layers says so, as Megatron's --mtp-num-layers"
    note = NotModelled(option=FURTHER, why=why)
    return replace(model, mtp=(), not_modelled=(*model.not_modelled, note))
