"""What of a network an engine recomputes: which ways it has, and whether a model has what they name."""

from __future__ import annotations

from gnomon.engines.training.layer_cost import layer_tapes
from gnomon.engines.training.traits import Traits
from gnomon.errors import InputError
from gnomon.graph.layers import Cut
from gnomon.spec import Model, TrainingLoad
from gnomon.spec.recompute import EVERY, FULL, MODULES, parse

WHERE = "engine.settings.recompute"


def check_recompute(model: Model, text: str, load: TrainingLoad, traits: Traits, title: str) -> None:
    """Raise InputError for a way to recompute that an engine does not have, and for modules that a model lacks."""
    choice = parse(text, WHERE)
    hint = f"Use {' or '.join(words(traits))}."
    if choice.layers:
        if choice.layers not in traits.recomputed_layers:
            raise InputError(f"{title} does not choose layers to recompute by {text}", where=WHERE, hint=hint)
    elif choice.modules:
        if missing := [name for name in choice.modules if name not in traits.recomputed_modules]:
            raise InputError(f"{title} does not recompute {missing[0]} by itself", where=WHERE, hint=hint)
        _check_modules(model, choice.modules, load, traits)
    elif choice.way not in traits.recompute:
        raise InputError(f"{title} does not recompute by {text}", where=WHERE, hint=hint)


def words(traits: Traits) -> list[str]:
    """How the ways of an engine are asked for."""
    found = list(traits.recompute)
    found += [f"modules={'+'.join(traits.recomputed_modules)}"] * bool(traits.recomputed_modules)
    return found + [f"{'' if layers == EVERY else f'{FULL}:'}{layers}=N" for layers in traits.recomputed_layers]


def _check_modules(model: Model, modules: tuple[str, ...], load: TrainingLoad, traits: Traits) -> None:
    tapes = layer_tapes(model, Cut(seq=load.seq), traits).values()
    names = [[node.name for node in tape.nodes] for tape in tapes]
    for name in modules:
        if not any(MODULES[name].of(layer) for layer in names):
            message = f"{model.name} has nothing to recompute as {name}: it lacks {MODULES[name].needs}"
            raise InputError(message, where=WHERE, hint="Leave it out.")
