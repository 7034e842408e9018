"""What batches take that pass through the stages of a pipeline: device and host of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from gnomon.cost.governor import Governor
from gnomon.cost.prompts import Work
from gnomon.cost.step import Curve, StepCost
from gnomon.cost.table import TableStepCost
from gnomon.spec.workload import Floats


class StageCost(Protocol):
    """Device and host seconds of a batch in one stage, apart: hosts prepare a batch while it is in earlier stages."""

    @property
    def governor(self) -> Governor | None:
        """Of the stage's chips."""

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        """Of the device alone."""

    def host_s(self, sequences: int) -> float:
        """Of the host, for a batch of so many decodes."""

    def mixed_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> Work: ...

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float: ...


@dataclass(frozen=True, slots=True)
class TableStage:
    """One stage by its table."""

    whole: TableStepCost
    device: TableStepCost
    """Without what the host needs at least for decodes."""

    @classmethod
    def of(cls, table: TableStepCost) -> TableStage:
        host = replace(table.host, decode_base_s=0.0, decode_sequence_s=0.0)
        return cls(table, table.under(host))

    @property
    def governor(self) -> Governor:
        return self.whole.governor

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        return self.device.decode_curve(sequences, slowdown)

    def host_s(self, sequences: int) -> float:
        return self.whole.host.decode(sequences)

    def mixed_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> Work:
        return self.whole.mixed_work(decodes, decode_context, chunks)

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return self.whole.launch(tokens, sequences, prompts)


@dataclass(frozen=True, slots=True)
class StagedStepCost:
    """As a StepCost: a batch that passes through all stages while there is no other, or, of the `busiest` stage, the
    least between two batches of a full pipeline. Both at full clock, so that there is no governor of the whole: each
    stage's chips have a part of the layers and a clock of their own."""

    stages: tuple[TableStage, ...]
    of_busiest: bool = False
    governor: Governor | None = None

    @classmethod
    def of(cls, tables: Sequence[TableStepCost]) -> StagedStepCost:
        return cls(tuple(map(TableStage.of, tables)))

    @property
    def busiest(self) -> StagedStepCost:
        return replace(self, of_busiest=True)

    def drawn(self, draw: int) -> StagedStepCost:
        """Operators and host under one draw of their errors."""
        return StagedStepCost.of([stage.whole.drawn(draw) for stage in self.stages])

    def _joined(self, times: Sequence[Floats]) -> Floats:
        return np.asarray(np.max(times, axis=0) if self.of_busiest else np.sum(times, axis=0))

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        curves = [stage.decode_curve(sequences, slowdown) for stage in self.stages]
        knots = np.unique(np.concatenate([curve.context for curve in curves]))
        device = self._joined([np.interp(knots, curve.context, curve.seconds) for curve in curves])
        return Curve(knots, np.maximum(device, max(stage.host_s(sequences) for stage in self.stages)))

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self.mixed_work(decodes, decode_context, chunks)[0]

    def mixed_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> Work:
        each = np.array([stage.mixed_work(decodes, decode_context, chunks) for stage in self.stages])
        seconds, clocked, joules = self._joined(list(each)).tolist()
        return seconds, clocked, joules

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return max(stage.launch(tokens, sequences, prompts) for stage in self.stages)

    def varied_curve(self, sequences: int, slowdown: float, variant: int) -> Curve:
        raise NotImplementedError("stages have neither adapters nor drafts")

    def varied_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], variant: int) -> Work:
        raise NotImplementedError("stages have neither adapters nor drafts")

    def varied_launch(self, tokens: int, variant: int) -> float:
        raise NotImplementedError("stages have neither adapters nor drafts")


def stage_costs(cost: StepCost) -> tuple[StageCost, ...]:
    """Of each stage."""
    return cast("tuple[StageCost, ...]", cost.stages)  # type: ignore[attr-defined]
