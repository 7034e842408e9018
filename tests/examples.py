"""How many examples a property test takes: all of them with `--whole`, some of them otherwise."""

from __future__ import annotations

from hypothesis import settings

WHOLE, SAMPLED = 100, 25
"""Of every hundred."""


def load_profile(*, whole: bool) -> None:
    """What tests that say no number take, and the share of all others."""
    count = WHOLE if whole else SAMPLED
    settings.register_profile("gnomon", deadline=None, derandomize=True, max_examples=count)
    settings.load_profile("gnomon")


def examples(count: int) -> int:
    return max(1, count * settings().max_examples // WHOLE)
