"""How an engine makes batches of sequences of several lengths: its usual way, or the one that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines import TrainingEngine, training_engine, training_engines
from gnomon.engines.training.traits import Packing
from gnomon.errors import InputError
from gnomon.spec import Model, NotModelled, TrainingLoad

PACKING, MASKING = "load.packing", "load.document_masking"


def check_packing(load: TrainingLoad, engine: TrainingEngine, model: Model) -> None:
    """Raise InputError, with what the engine has and which engine has the rest, for what it does not have."""
    sequences = load.sequences
    if sequences is None or not sequences.packing:
        return
    ways = {way.name: way for way in engine.traits(model).packings}
    if sequences.packing not in ways:
        beside = _beside(engine, model, sequences.packing)
        message = f"{engine.title} {engine.version} has no packing {sequences.packing}"
        raise InputError(message, where=PACKING, hint=f"Use {' or '.join(ways)}{beside}.")
    way, masking = ways[sequences.packing], sequences.document_masking
    if masking is not None and masking not in way.document_masking:
        raise InputError(_unmasked(engine, way, masking), where=MASKING, hint="Leave it out.")


def settled(load: TrainingLoad, engine: TrainingEngine, model: Model) -> TrainingLoad:
    """The load with what the engine decides about its sequences."""
    sequences = load.sequences
    if sequences is None:
        return load
    traits = engine.traits(model)
    name = sequences.packing or traits.packings[0].name
    way = next((one for one in traits.packings if one.name == name), Packing(name))
    masking = way.document_masking[0] if sequences.document_masking is None else sequences.document_masking
    found = replace(
        sequences,
        packing=name,
        document_masking=masking,
        pads_packs=way.pads,
        cuts_documents=traits.cuts_documents,
    )
    return replace(load, sequences=found)


def _unmasked(engine: TrainingEngine, way: Packing, masking: bool) -> str:
    which = "no document masking" if masking else "always document masking"
    return f"{engine.title} {engine.version} has {which} with packing {way.name}"


def _beside(engine: TrainingEngine, model: Model, packing: str) -> str:
    """Other engines that have it."""
    able = list(_able(engine, model, packing))
    return f", or the engine {' or '.join(able)}" if able else ""


def _able(engine: TrainingEngine, model: Model, packing: str) -> Iterator[str]:
    for name in training_engines():
        if name != engine.name and packing in [way.name for way in training_engine(name).traits(model).packings]:
            yield name


def idle_lengths(given: Mapping[str, Any], load: TrainingLoad) -> tuple[NotModelled, ...]:
    """Options about lengths without effect: all sequences are equal, or full whatever comes together."""
    sequences, named = load.sequences, {name: value for name, value in given.items() if value is not None}
    if sequences is None:
        why = "all sequences have as many tokens as --seq; --lengths gives them others"
    elif sequences.alike:
        why, named = "every sequence is padded or filled to --seq", _of(named, "sampling")
    elif not sequences.packs:
        why, named = "no sequence has several documents", _of(named, "document_masking")
    else:
        return ()
    return tuple(NotModelled(option=_flag(name, value), why=why) for name, value in named.items())


def _of(named: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: named[name]} if name in named else {}


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if not isinstance(value, bool) else flag if value else flag.replace("--", "--no-", 1)
