"""What layers save for their backward pass, in the host's memory: `gnomon.engines.torch.offload` moves it."""

from __future__ import annotations

from typing import Any

from gnomon.engines.torch.techniques.base import RunnerTechnique, RunningTechnique, Values
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob


class ActivationOffloading(RunnerTechnique):
    name = "offload-activations"

    def check(self, job: TrainingJob, values: Values) -> None:
        if values["modules"] != "all":
            message = f"modules={values['modules']}, but the built-in runner offloads all that a layer saves"
            raise InputError(message, where="strategy.techniques", hint="Leave modules out.")
        if job.recipe.recompute != "none":
            message = f"{job.recipe.recompute}, but the built-in runner offloads what layers save without recomputation"
            raise InputError(message, where="engine.settings.recompute", hint="Use none.")
        if job.strategy.tp > 1:
            message = f"{job.strategy.tp} is not 1: the built-in runner does not offload activations of cut layers"
            raise InputError(message, where="strategy.tp", hint="Use 1.")

    def start(self, job: TrainingJob, values: Values, place: Any) -> RunningTechnique:
        from gnomon.engines.torch.offload import ActivationsOnHost

        share = float(values["layers"]) / job.model.layers if values["layers"] else float(values["share"])
        beside = place.device.type == "cuda" and values["copies"] == "streams"
        return ActivationsOnHost(job.model.layers, share, int(values["in_flight"]), beside=beside)


TECHNIQUES = (ActivationOffloading(),)
