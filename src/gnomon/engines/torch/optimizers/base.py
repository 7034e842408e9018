"""The contract of an optimizer that the built-in runner runs: what it updates, and what it needs of the weights.

A file of this folder declares some in `OPTIMIZERS`, by the names that plans use (`gnomon.spec.training.OPTIMIZERS`).
The rule is made over the weights that a rank updates, its masters, each with its gradient in `grad`:

    class Lion(UpdateRule):
        name = "lion"

        def make(self, masters, place):
            from gnomon.engines.torch.lion_kernels import Lion  # torch is imported where it is used

            return Lion(list(masters.values()), lr=LEARNING_RATE)

    OPTIMIZERS = (Lion(),)

Masters are fp32 beside working weights of 16 bits, unless `fp32_masters` is false. They are long pieces of one flat
buffer, which elementwise rules do not mind; a rule that looks at matrices sets `by_weight`, gets each weight in its own
shape and under its own name (`layers.3.attn.q.weight`), and says with `zero` how far ranks may share its states. Under
ZeRO 2 and 3 that is a rank's rows of the weight, whose own shape is in `full_shape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gnomon.spec import Recipe, Strategy

LEARNING_RATE = 1e-3


class UpdateRule:
    """An optimizer by its name. Stateless; imports no torch."""

    name: ClassVar[str]
    fp32_masters: ClassVar[bool] = True
    """Whether weights and gradients are summed and updated in fp32; else in the working dtype."""
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp32")
    """Working dtypes that it trains."""
    by_weight: ClassVar[bool] = False
    """Whether it updates each weight by itself, not pieces of a flat buffer."""
    zero: ClassVar[tuple[int, ...]] = (0, 1, 2, 3)
    """ZeRO stages it runs under: 1 cuts a flat buffer anywhere, 2 and 3 cut each weight by its rows."""

    def check(self, strategy: Strategy, recipe: Recipe) -> None:
        """Raise InputError for what else it does not run with."""

    def make(self, masters: Mapping[str, Any], place: Any) -> Any:
        """What updates these parameters in `step()`, as a torch.optim.Optimizer does."""
        raise NotImplementedError
