"""Which experts tokens go to, drawn, and what a predictor says of it: plain arrays, the same in a run and in its
prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Loads = Mapping[int, int]
"""Rows of each expert that a layer's tokens visit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Experts of tokens, [steps, layers, tokens, choices], by a power law of popularity in each layer."""

    chosen: Any
    guessed: Any
    """The same as a predictor says; those it misses are experts that another token could visit."""
    popular: Any
    """[layers, experts], the most popular first."""

    def loads(self, step: int, *, guessed: bool = False) -> list[Loads]:
        """Of each layer in a step."""
        return [counted(layer) for layer in (self.guessed if guessed else self.chosen)[step]]

    def cached(self, layer: int, count: int) -> tuple[int, ...]:
        """The experts that most tokens visit."""
        return tuple(int(expert) for expert in self.popular[layer, :count])


def counted(chosen: Any) -> Loads:
    """Rows of each expert."""
    experts, rows = np.unique(chosen, return_counts=True)
    return {int(expert): int(count) for expert, count in zip(experts, rows, strict=True)}


def drawn(
    shape: tuple[int, int, int, int], experts: int, skew: float, accuracy: float, seed: int, *, stay: float = 0.0
) -> Routes:
    """Distinct experts for each token: the highest of log popularity and Gumbel noise; `shape` as in `Routes`. A share
    `stay` of tokens goes where those before them in the same sequence went."""
    generator = np.random.default_rng(seed)
    steps, layers, tokens, choices = shape
    popular = np.stack([generator.permutation(experts) for _ in range(layers)])
    scores = np.empty((layers, experts))
    np.put_along_axis(scores, popular, -skew * np.log(np.arange(1, experts + 1))[None].repeat(layers, 0), 1)

    def tokens_experts() -> Any:
        noisy = scores[None, :, None] + generator.gumbel(size=(steps, layers, tokens, experts))
        return np.argsort(-noisy, axis=-1)[..., :choices]

    chosen = tokens_experts()
    for step in range(1, steps if stay else 0):
        stays = generator.random((layers, tokens, 1)) < stay
        chosen[step] = np.where(stays, chosen[step - 1], chosen[step])
    guessed = np.where(generator.random(chosen.shape) < accuracy, chosen, tokens_experts())
    return Routes(chosen=chosen, guessed=guessed, popular=popular)


def rows_of(chosen: Any, expert: int) -> Sequence[int]:
    """Tokens [tokens, choices] that visit an expert."""
    found: list[int] = np.nonzero((chosen == expert).any(-1))[0].tolist()
    return found
