"""Low-rank adapters beside frozen weights, in 16 bits or packed in 4, with magnitudes or without."""

from __future__ import annotations

from typing import Any

from gnomon.engines.torch.techniques.base import RunnerTechnique, RunningTechnique, Values
from gnomon.errors import InputError
from gnomon.sim.training import schedule
from gnomon.spec.training_job import TrainingJob

WHERE = "strategy.techniques"


class RunsLora(RunnerTechnique):
    name = "lora"
    packed = magnitudes = False

    def check(self, job: TrainingJob, values: Values) -> None:
        strategy, recipe = job.strategy, job.recipe
        if job.model.is_moe:
            message = f"the built-in runner trains no adapters beside experts, which {job.model.name} has"
            raise InputError(message, where="model", hint="Use a dense network.")
        if strategy.pp > 1 and schedule(recipe.schedule).splits_backward:
            message = (
                f"the built-in runner does not split backward passes over frozen weights, as {recipe.schedule} does"
            )
            raise InputError(message, where="engine.settings.schedule", hint="Use 1f1b.")
        if float(values["dropout"]) and (recipe.recompute != "none" or strategy.tp > 1):
            message = "the built-in runner keeps no random state for dropout that is recomputed, or on several ranks"
            raise InputError(message, where=WHERE, hint="Use dropout=0, or recompute none and tp 1.")
        if strategy.tp > 1 and (self.packed or self.magnitudes):
            raise InputError(
                f"the built-in runner has no {self.name} with tensor parallelism", where="strategy.tp", hint="Use 1."
            )
        if self.packed and strategy.dp > 1 and recipe.zero >= 2:
            message = f"packed weights are whole on every rank, and ZeRO is {recipe.zero}"
            raise InputError(message, where="engine.settings.zero", hint="Use 0 or 1.")

    def start(self, job: TrainingJob, values: Values, place: Any) -> RunningTechnique:
        from gnomon.engines.torch.adapters import AdapterShape, Adapting  # torch is imported where it is used

        shape = AdapterShape(
            rank=int(values["rank"]),
            targets=str(values["targets"]),
            dropout=float(values["dropout"]),
            packed=self.packed,
            double=values.get("double_quant") == "yes",
            magnitudes=self.magnitudes,
        )
        return Adapting(shape, job.dtype)


class RunsQlora(RunsLora):
    name = "qlora"
    packed = True


class RunsDora(RunsLora):
    name = "dora"
    magnitudes = True


TECHNIQUES = (RunsLora(), RunsQlora(), RunsDora())
