"""Modules under torch.compile: chains of elementwise operators as one kernel each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from gnomon.engines.training import Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.style import compiled
from gnomon.techniques.base import TRAINING, Rejection, Technique, Trial, Values

LAUNCH_S = 10e-6
"""Host seconds per kernel of a compiled graph, which is launched from C++: an estimate, TorchTitan's."""


class TorchCompile(Technique[TrainingCase]):
    name = "torch-compile"
    work = (TRAINING,)
    title = "Chains of elementwise operators in one kernel"
    idea = (
        "A compiler joins what stands between two GEMMs into one kernel each, norms with the residual before them: "
        "values between them never reach memory, fewer kernels are launched, and less is saved for the backward pass."
    )
    trials = (Trial(paper="the-fused-kernel-library", words="torch-compile"),)
    changes = frozenset({"activation bytes"})
    follows: ClassVar = {
        "forward_s": "chains of elementwise operators are one kernel each",
        "backward_s": "chains of elementwise operators are one kernel each",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        style = case.traits.style
        yield style.fused_activation and not style.compiled, "the engine's kernels are joined already"

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        if case.traits.style.fused_activation:
            return case.traits
        launch_s = {mode: min(seconds, LAUNCH_S) for mode, seconds in case.traits.launch_s.items()}
        return replace(case.traits, style=replace(compiled(case.traits.style), compiled=True), launch_s=launch_s)


TECHNIQUES = (TorchCompile(),)
