"""From a question of `gnomon predict` to one step of a network that is not a plain decoder, and its description."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.planning.deploy import refuse_techniques
from gnomon.spec import ConvolutionLayer, CrossAttention, ImageTokens, Model, NetworkStep, VisionPreprocessor
from gnomon.spec.questions.base import whole
from gnomon.spec.questions.step import PredictQuestion
from gnomon.units import format_count

PHASES = {
    "encoder": ("prefill", "forward"),
    "diffusion": ("forward",),
    "encoder-decoder": ("decode", "prefill"),
    "multimodal": ("decode", "prefill"),
}
"""By kind; the first is meant where none is given."""
LATENT = 8
"""Pixels per side of a latent pixel, in the autoencoders of published diffusion transformers (DiT, SD3, Flux)."""
WHY_NOT = {
    "encoder": "an encoder processes full sequences at once, bidirectionally",
    "diffusion": "a step of a diffusion transformer is one pass over its patches",
}


AUTO = "auto"
LEAVE_OUT = "Leave it out."


def refuse_auto(techniques: Sequence[str]) -> None:
    """Refuse `auto`, with which a search of plans chooses."""
    if AUTO in techniques:
        hint = "Only `gnomon plan serve` and `plan train` take it; name one, as `gnomon techniques` lists them."
        raise InputError("'auto' chooses among the techniques of plans", where="--with", hint=hint)


def refuse_beside(model: Model, techniques: Sequence[str]) -> None:
    """Refuse techniques for networks other than plain decoders, for which they are not modelled."""
    refuse_auto(techniques)
    if model.kind in PHASES:
        refuse_techniques(f"{model.name}, which is not a plain decoder", techniques)


def _extra(question: PredictQuestion) -> dict[str, int | str]:
    """The options that only such networks take, where given."""
    said = {name: getattr(question, name) for name in ("source", "images", "image", "steps")}
    return {f"--{name}": value for name, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkWork:
    """The step of a question, and its description."""

    phase: str
    step: NetworkStep
    what: str
    repeats: int = 1
    filled: dict[str, int | str | None]
    """The options of the question, with defaults filled in."""


def refuse_for_script(question: PredictQuestion) -> None:
    refuse_techniques("a module of your own", question.techniques)
    _refuse_clock("a module of your own", question)


def refuse_for_training(question: PredictQuestion) -> None:
    if question.steps is not None:
        raise InputError(f"{question.steps} does not apply to training", where="--steps", hint="Leave it out.")
    if question.sustained:
        raise InputError("training is always priced at the clock that it sustains", where="--sustained", hint=LEAVE_OUT)
    refuse_techniques("phase train", question.techniques, "Use `gnomon simulate train`, which takes --with.")


def _refuse_clock(what: str, question: PredictQuestion) -> None:
    """Refuse options of the clock for what is priced at one clock."""
    for flag, given in (("--sustained", question.sustained), ("--power-limit", question.power_limit_w is not None)):
        if given:
            raise InputError(f"it does not apply to {what}", where=flag, hint=LEAVE_OUT)


def refuse_extra(what: str, question: PredictQuestion) -> None:
    """Refuse options that only other networks take."""
    for flag, value in _extra(question).items():
        raise InputError(f"{value} does not apply to {what}", where=flag, hint="Leave it out.")


def network_work(model: Model, question: PredictQuestion) -> NetworkWork:
    """One step of a network, once the numbers make sense."""
    phase = _phase(model, question)
    for flag, value, least in (("--batch", question.sequences, 1), ("--context", question.context, 0)):
        if value < least:
            raise InputError(f"{value} is below {least}", where=flag)
    readers = {"encoder": _encoder, "diffusion": _diffusion, "encoder-decoder": _translated, "multimodal": _pictured}
    return readers[model.kind](model, question, phase)


def intake_of(model: Model) -> VisionPreprocessor:
    """The preprocessor of a model's one tower, once its fields are complete."""
    tower, *others = model.towers
    if others:
        names = ", ".join(one.name for one in model.towers)
        raise InputError(f"{model.name} has several towers ({names}), and only one can be priced", where="model")
    found = tower.intake
    small = [name for name in ("merge", "tiles", "align") if getattr(found, name) < 1]
    if model.kind == "multimodal" and (found.patch < 1 or not (found.any_size or found.side >= found.patch)):
        small.append("patch")
    if model.kind != "multimodal" and found.positions < 1:
        small.append("positions")
    if small:
        hint = "`gnomon models show qwen2.5-vl-7b --shapes` and `whisper-small` show one each."
        message = f"the intake of {model.name}'s {tower.name} does not say its {small[0]}"
        raise InputError(message, where=f"towers[0].intake.{small[0]}", hint=hint)
    return found


def _phase(model: Model, question: PredictQuestion) -> str:
    known = PHASES[model.kind]
    phase = question.phase or known[0]
    if phase in known:
        return phase
    if phase in ("decode", "prefill", "forward"):
        why = WHY_NOT.get(model.kind, "its decoder runs a prefill, then decode steps")
        raise InputError(f"{model.name} has no {phase}: {why}", where="--phase", hint=f"Use --phase {known[0]}.")
    raise unknown_name("phase", phase, known, where="--phase")


def _only(model: Model, question: PredictQuestion, *flags: str) -> None:
    for flag, value in _extra(question).items():
        if flag not in flags:
            raise InputError(f"{value} does not apply to {model.name} ({model.kind})", where=flag)


def _no_cache(model: Model, question: PredictQuestion) -> None:
    if question.context:
        message = f"{question.context:,} is given, but {model.name} has no KV cache"
        raise InputError(message, where="--context", hint="Leave it out; --tokens sets the sequence length.")


def _new_tokens(question: PredictQuestion, most: int, hint: str) -> int:
    if question.tokens is None:
        raise InputError("needs the tokens of a sequence", where="--tokens", hint=hint)
    tokens = whole(question.tokens, "--tokens")
    if not 1 <= tokens <= most:
        raise InputError(f"{tokens:,} is not between 1 and {most:,}, the maximum length", where="--tokens")
    return tokens


def _encoder(model: Model, question: PredictQuestion, phase: str) -> NetworkWork:
    _only(model, question)
    _no_cache(model, question)
    tokens = _new_tokens(question, model.max_context, f"Give --tokens {min(512, model.max_context)}.")
    batch = question.sequences
    what = f"one pass of {_sequences(batch)}, {tokens:,} tokens{_each(batch)}, bidirectional"
    step = NetworkStep(decode=False, sequences=batch, tokens=tokens)
    return NetworkWork(phase=phase, step=step, what=what, filled={"tokens": tokens})


def _diffusion(model: Model, question: PredictQuestion, phase: str) -> NetworkWork:
    _only(model, question, "--image", "--steps", *(["--source"] if model.towers else []))
    _no_cache(model, question)
    # A video has no side that follows from its patches.
    tokens, pixels = model.max_context, "" if model.towers else f"{_side(model)}x{_side(model)}"
    if question.image is not None:
        if question.tokens is not None:
            raise InputError("is given together with --tokens, which sets the same", where="--image", hint="Give one.")
        tokens, pixels = _latent_tokens(model, *size_of(question.image)), question.image
    elif question.tokens is not None:
        tokens, pixels = _new_tokens(question, 2**22, ""), ""
    repeats = _at_least(1, question.steps, "--steps")
    samples = "1 sample" if question.sequences == 1 else f"{question.sequences:,} samples"
    of = f", {pixels} pixels" if pixels else ""
    filled: dict[str, int | str | None] = {"image": pixels or None, "tokens": tokens, "steps": repeats}
    text: dict[str, Any] = {}
    if model.towers:
        intake, source = _source(model, question)
        text = {"taken": intake.length(source), "pieces": 1}
        of += f", attending to {source:,} tokens of text"
        filled["source"] = source
    what = f"{_times(repeats)} of {samples}{of} ({tokens:,} patches{_each(question.sequences)})"
    step = NetworkStep(decode=False, sequences=question.sequences, tokens=tokens, **text)
    return NetworkWork(phase=phase, step=step, what=what, repeats=repeats, filled=filled)


def _patch(model: Model) -> int:
    """Latent pixels a side of a patch."""
    return next((isqrt(part.kernel) for part in model.stem if isinstance(part, ConvolutionLayer)), 1)


def _side(model: Model) -> int:
    return isqrt(model.max_context) * _patch(model) * LATENT


def _latent_tokens(model: Model, height: int, width: int) -> int:
    unit = LATENT * _patch(model)
    for pixels in (height, width):
        if pixels % unit:
            near = max(1, round(pixels / unit)) * unit
            hint = f"The nearest multiple: {near}."
            raise InputError(f"{pixels} is not a multiple of {unit} pixels", where="--image", hint=hint)
    return height // unit * (width // unit)


def _source(model: Model, question: PredictQuestion) -> tuple[VisionPreprocessor, int]:
    """What takes the tokens that a network attends to, and how many these are."""
    intake = intake_of(model)
    source = intake.positions if question.source is None else whole(question.source, "--source")
    if not 1 <= source <= max(intake.positions, 1):
        message = f"{source:,} is not between 1 and {intake.positions:,}, the maximum length"
        raise InputError(message, where="--source")
    return intake, source


def _translated(model: Model, question: PredictQuestion, phase: str) -> NetworkWork:
    _only(model, question, "--source")
    intake, source = _source(model, question)
    sound = any(isinstance(part, ConvolutionLayer) for part in model.towers[0].stem)
    noun = "audio frames" if sound else "source tokens"
    usual = " (the maximum)" if question.source is None else ""
    over = f"{source:,} {noun}{usual}"
    return _decoded(model, question, phase, intake.length(source), 1, over, {"source": source})


def _pictured(model: Model, question: PredictQuestion, phase: str) -> NetworkWork:
    intake, attends = intake_of(model), attends_to_images(model)
    if phase == "decode" and not attends:
        _only(model, question)
        return _decoded(model, question, phase, None, 0, "", {})
    _only(model, question, "--images", "--image")
    count = 1 if question.images is None else _at_least(0, question.images, "--images")
    size = intake.usual if question.image is None else size_of(question.image)
    taken = image_taken(intake, *size)
    over = _pictures(intake, taken, count, size)
    filled: dict[str, int | str | None] = {"images": count, "image": f"{size[1]}x{size[0]}"}
    return _decoded(model, question, phase, taken, count, over, filled, 0 if attends else count * taken.prompt)


def attends_to_images(model: Model) -> bool:
    """Whether images are attended to by cross-attention, and not part of the prompt."""
    return any(isinstance(block.mixer, CrossAttention) for block in model.blocks)


def image_taken(intake: VisionPreprocessor, height: int, width: int, where: str = "--image") -> ImageTokens:
    """What a tower makes of an image; one that is larger than it takes is refused."""
    longest = max(height, width)
    if intake.any_size and intake.side and longest > intake.side:
        hint = "Give the size it is scaled down to."
        raise InputError(
            f"{longest} pixels are more than the maximum of {intake.side} per side", where=where, hint=hint
        )
    if not intake.any_size and not intake.always_tiles and intake.tiles > 1:
        covered = intake.covers(height, width)
        if covered > intake.tiles:
            hint = "Give the size it is scaled down to."
            message = (
                f"{width}x{height} takes {covered} tiles of {intake.side} pixels, and the maximum is {intake.tiles}"
            )
            raise InputError(message, where=where, hint=hint)
    return intake.picture(height, width)


def _pictures(intake: VisionPreprocessor, taken: ImageTokens, count: int, size: tuple[int, int]) -> str:
    if not count:
        return "no image"
    kept = intake.any_size or intake.tiles > 1
    how = f"of {size[1]}x{size[0]}" if kept else f"resized to {intake.side}x{intake.side}"
    tiles = f"{taken.sequences} tiles, " if taken.sequences > 1 else ""
    each = f"{tiles}{taken.sequences * taken.positions:,} positions in the tower, {taken.prompt:,} tokens"
    return f"{count:,} image{'s' if count > 1 else ''} {how} ({each}{_each(count)})"


def _decoded(
    model: Model,
    question: PredictQuestion,
    phase: str,
    taken: ImageTokens | None,
    pieces: int,
    over: str,
    filled: dict[str, int | str | None],
    added: int = 0,
) -> NetworkWork:
    """A step of a decoder behind a tower; `added` are the image tokens in the prompt."""
    batch = question.sequences
    if phase == "decode":
        if question.tokens not in (None, 1):
            raise InputError(f"a decode step makes 1 token per sequence, not {question.tokens}", where="--tokens")
        tokens, beside = 1, f", cross-attending to {over}" if over else ""
        what = f"one decode step of {_sequences(batch)} at context {question.context:,}{beside}"
    else:
        tokens = _new_tokens(question, model.max_context, "Give --tokens 128, the text's alone.")
        what = (
            f"one prefill of {_sequences(question.sequences)}, {tokens:,} tokens and {over}{_each(question.sequences)}"
        )
        what += f" over {question.context:,} cached" if question.context else ""
    step = NetworkStep(
        decode=phase == "decode",
        sequences=question.sequences,
        tokens=tokens + added,
        context=question.context,
        taken=taken,
        pieces=pieces,
    )
    return NetworkWork(phase=phase, step=step, what=what, filled=filled | {"tokens": tokens})


def size_of(text: str) -> tuple[int, int]:
    """Height and width of `1024x768`, which has the width first."""
    found = re.fullmatch(r"\s*(\d{1,5})\s*[xX×]\s*(\d{1,5})\s*", str(text))
    if not found or not all(int(side) for side in found.groups()):
        raise InputError(f"'{text}' is not an image size", where="--image", hint="Write it as 1024x1024.")
    return int(found.group(2)), int(found.group(1))


def _at_least(least: int, value: int | None, flag: str) -> int:
    number = 1 if value is None else whole(value, flag)
    if number < least:
        raise InputError(f"{number} is below {least}", where=flag)
    return number


def _sequences(batch: int) -> str:
    return "1 sequence" if batch == 1 else f"{batch:,} sequences"


def _each(batch: int) -> str:
    return "" if batch == 1 else " each"


def _times(repeats: int) -> str:
    return "one step" if repeats == 1 else f"{format_count(repeats)} steps"
