"""Steps in which prompts and decodes run at once, each as kernels of its own on a share of the processors.

Prompts are bound by the processors and take longer by the share that they are given; decodes are bound by memory and
may run on any of them. Both are done when the slower one is, or when the memory has moved what both read and write.
What a kernel waits for memory is the part of its seconds that does not follow the clock (`cost.governor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from gnomon.cost.prompts import Work
from gnomon.cost.step import StepModel
from gnomon.cost.table import TableStepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStepModel(StepModel):
    """A step model whose table has prompts beside decodes. Steps of one of both are priced as they were, but for
    prompts on their share."""

    prompt_share: float = 1.0

    @classmethod
    def of(cls, model: StepModel, prompt_share: float) -> Self:
        return cls(**{one.name: getattr(model, one.name) for one in fields(model)}, prompt_share=prompt_share)

    def table(self, *, max_context: int, max_tokens: int, max_sequences: int) -> TableStepCost:
        return SharedStepCost(self, max_context=max_context, max_tokens=max_tokens, max_sequences=max_sequences)


@dataclass(slots=True)
class SharedStepCost(TableStepCost):
    """See `gnomon.cost.step.StepCost`."""

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], missing: int = 0
    ) -> Work:
        assert isinstance(self.model, SharedStepModel)
        seconds, clocked, joules = TableStepCost.mixed_work(self, 0, 0, chunks, missing)
        alone = seconds + clocked * (1 / self.model.prompt_share - 1)
        if not decodes:
            return alone, clocked / self.model.prompt_share, joules
        decode_s, decode_clocked, decode_j = self.decode_work(decodes, decode_context)
        memory_s = seconds - clocked + decode_s - decode_clocked
        both = max(alone, decode_s, memory_s)
        return both, min(clocked / self.model.prompt_share + decode_clocked, both), joules + decode_j
