"""fp32 weights and moments in the host's memory, which its processors update with PyTorch's AdamW."""

from __future__ import annotations

from typing import Any

from gnomon.engines.torch.techniques.base import RunnerTechnique, RunningTechnique, Values
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob

RUN = {"share": 1.0, "stride": 0.0, "tier": "host"}
"""Values of its parameters that the runner has."""


class StatesOnHost(RunningTechnique):
    def home(self) -> Any:
        import torch

        return torch.device("cpu")


class StateOffloading(RunnerTechnique):
    name = "offload-optimizer"

    def check(self, job: TrainingJob, values: Values) -> None:
        for name, value in RUN.items():
            if values[name] != value:
                message = f"{name}={values[name]}: the built-in runner keeps all states in the host's memory"
                raise InputError(message, where="strategy.techniques", hint=f"Use {name}={value}.")

    def start(self, job: TrainingJob, values: Values, place: Any) -> RunningTechnique:
        return StatesOnHost()


TECHNIQUES = (StateOffloading(),)
