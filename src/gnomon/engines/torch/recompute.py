"""How the layers of the built-in runner recompute activations, by the words that plans use (`gnomon.spec.recompute`).

`MODES` has one function per way, `LAYERS` one per choice of layers. A way is given a layer (`model.LayerModule`) and
gives what its forward pass calls: `layer.body`, or that under activation checkpointing. Adding one is a function and
its line; what it does not run with is refused in `check`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import BLOCK, EVERY, NONE, parse

Forward = Callable[..., Any]
WHERE = "engine.settings.recompute"


def forward_of(layer: Any, number: int, layers: range, recipe: Recipe) -> Forward:
    """What the forward pass of a layer calls, which is the `number`-th of the network, in a part of some `layers`."""
    choice = parse(recipe.recompute)
    if choice.layers and not LAYERS[choice.layers](number - layers.start, choice.count):
        return MODES[NONE](layer)
    return MODES[choice.each](layer)


def none(layer: Any) -> Forward:
    """Everything that the backward pass needs is kept."""
    return layer.body  # type: ignore[no-any-return]


def selective(layer: Any) -> Forward:
    """Results of GEMMs and attention are kept, all else is recomputed."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return _checkpointed(layer.body, context_fn=partial(create_selective_checkpoint_contexts, _keep))


def full(layer: Any) -> Forward:
    """Only the inputs of layers are kept."""
    return _checkpointed(layer.body)


def by_operator(layer: Any) -> Forward:
    """Results of every second GEMM with weights and of attention are kept, all else is recomputed (TorchTitan's
    selection by operator)."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return _checkpointed(layer.body, context_fn=lambda: create_selective_checkpoint_contexts(_EverySecond()))


MODES: dict[str, Callable[[Any], Forward]] = {"none": none, "selective": selective, "full": full, "op": by_operator}
LAYERS: dict[str, Callable[[int, int], bool]] = {
    BLOCK: lambda place, count: place < count,
    EVERY: lambda place, count: (place + 1) % count == 0,
}
"""Whether a layer is recomputed, by its place in its part and the number of the choice."""


def check(strategy: Strategy, recipe: Recipe) -> None:
    """Raise InputError for a way to recompute that the runner does not have."""
    choice = parse(recipe.recompute, WHERE)
    if choice.each not in MODES or (choice.layers and choice.layers not in LAYERS):
        message = f"the built-in runner does not recompute by {choice.text}"
        hint = f"Use {' or '.join(MODES)}, full:{BLOCK}=N or {EVERY}=N."
        raise InputError(message, where=WHERE, hint=hint)
    if choice.layers == EVERY and strategy.vp > 1:
        message = f"the built-in runner does not count layers over {strategy.vp} model chunks"
        raise InputError(message, where=WHERE, hint=f"Use full:{BLOCK}=N, or a vp of 1.")


def _checkpointed(body: Forward, **how: Any) -> Forward:
    from torch.utils.checkpoint import checkpoint

    # No random numbers inside, so the generator state need not be preserved.
    return partial(checkpoint, body, use_reentrant=False, preserve_rng_state=False, **how)


def _keep(_: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    from gnomon.engines.torch.model import SAVED

    return CheckpointPolicy.MUST_SAVE if operator in SAVED else CheckpointPolicy.PREFER_RECOMPUTE


class _EverySecond:
    """Which operators of one pass over a layer are kept; the forward pass and the recomputed one count by
    themselves."""

    def __init__(self) -> None:
        self.matrices = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.utils.checkpoint import CheckpointPolicy

        from gnomon.engines.torch.model import EXCHANGED, MATRICES, SAVED

        kept = operator in SAVED or operator in EXCHANGED
        if operator in MATRICES:
            self.matrices[context.is_recompute] += 1
            kept = self.matrices[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
