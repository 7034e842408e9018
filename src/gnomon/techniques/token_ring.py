"""Token ring: queries travel around the ring, and partial results come back in the other direction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gnomon.engines.training import Grid, Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.techniques.base import Choice, Rejection, Trial, Values
from gnomon.techniques.ring_attention import Ring


class TokenRing(Ring):
    name = "token-ring"
    title = "Ring attention with queries that travel"
    idea = (
        "Keys and values stay; queries go one way around the ring and partial results return the other way at the same "
        "time, which moves fewer bytes per direction where heads of keys are not grouped, and more where they are."
    )
    trials = (Trial(paper="tokenring", words="token-ring", against="ring-attention"),)
    excludes = ("ring-attention",)

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield from super().reject(case, values)
        latent = any(not hasattr(block.mixer, "kv_heads") for block in case.model.blocks)
        yield latent, f"{case.model.name} has layers whose mixer is not softmax attention"

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return replace(case.traits, style=replace(case.traits.style, queries_travel=True))

    def expressed_by_config(self, values: Values) -> bool:
        return False

    def ways(self, plans: Grid) -> Mapping[str, Choice] | None:
        """A plan with a ring has keys and values that travel."""
        return None


TECHNIQUES = (TokenRing(),)
