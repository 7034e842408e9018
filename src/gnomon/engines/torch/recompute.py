"""How the layers of the built-in runner recompute activations, by the names that plans use.

`MODES` has one function per name. It is given a layer (`model.LayerModule`), its number, the layers of its part and the
recipe, and gives what its forward pass calls: `layer.body`, or that under activation checkpointing. Adding a way to
recompute is one function and its line in `MODES`; what it does not run with is refused in `check`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.spec import Recipe
from gnomon.spec.training import RECOMPUTE

Forward = Callable[..., Any]
WHERE = "engine.settings.recompute"


def none(layer: Any, number: int, layers: range, recipe: Recipe) -> Forward:
    """Everything that the backward pass needs is kept."""
    return layer.body  # type: ignore[no-any-return]


def selective(layer: Any, number: int, layers: range, recipe: Recipe) -> Forward:
    """Results of GEMMs and attention are kept, all else is recomputed."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return _checkpointed(layer.body, context_fn=partial(create_selective_checkpoint_contexts, _keep))


def full(layer: Any, number: int, layers: range, recipe: Recipe) -> Forward:
    """Only the inputs of layers are kept."""
    return _checkpointed(layer.body)


MODES: dict[str, Callable[[Any, int, range, Recipe], Forward]] = {"none": none, "selective": selective, "full": full}


def check(recipe: Recipe) -> None:
    """Raise InputError for a way to recompute that the runner does not have."""
    name = recipe.recompute
    if name not in RECOMPUTE:
        raise unknown_name("recompute", name, RECOMPUTE, where=WHERE)
    if name not in MODES:
        message = f"the built-in runner does not recompute {name}"
        raise InputError(message, where=WHERE, hint=f"Use {' or '.join(MODES)}.")


def _checkpointed(body: Forward, **how: Any) -> Forward:
    from torch.utils.checkpoint import checkpoint

    # No random numbers inside, so the generator state need not be preserved.
    return partial(checkpoint, body, use_reentrant=False, preserve_rng_state=False, **how)


def _keep(_: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    from gnomon.engines.torch.model import SAVED

    return CheckpointPolicy.MUST_SAVE if operator in SAVED else CheckpointPolicy.PREFER_RECOMPUTE
