"""What a vision tower adds to a step that encodes images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.cost.prompts import Work
from gnomon.cost.step import StepPrice

EACH = 16
"""Up to so many images every number is priced; beyond, sizes that grow by an eighth, and lines between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerCost:
    """Columns by the number of images that go through a tower at once."""

    images: tuple[int, ...]
    seconds: tuple[float, ...]
    clocked: tuple[float, ...]
    """Those of them that follow the clock."""
    joules: tuple[float, ...]
    draws: tuple[tuple[float, ...], ...]
    """Seconds under each draw."""

    @classmethod
    def priced(cls, price: Callable[[int], StepPrice], most: int) -> TowerCost:
        """A tower of which one step runs at most so many images."""
        images = list(range(1, min(most, EACH) + 1))
        while images[-1] < most:
            images.append(min(most, images[-1] + images[-1] // 8))
        prices = [price(count) for count in images]
        return cls(
            images=tuple(images),
            seconds=tuple(one.time_s.value for one in prices),
            clocked=tuple(sum(one.clocked.values()) for one in prices),
            joules=tuple(one.dynamic_j or 0.0 for one in prices),
            draws=tuple(map(tuple, np.array([one.time_s.draws for one in prices]).T.tolist())),
        )

    def work(self, images: int, draw: int | None = None) -> Work:
        """Seconds, those that follow the clock, and joules, at full clock."""
        seconds = self.seconds if draw is None else self.draws[draw]
        found = (np.interp(images, self.images, column) for column in (seconds, self.clocked, self.joules))
        first, clocked, joules = (float(value) for value in found)
        return first, min(clocked, first), joules
