"""Prompts and decodes as two streams of kernels on the same GPU, with one copy of the weights and one KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.cost.step import StepModel
from gnomon.engines.base import ServingCase
from gnomon.sim.serving.base import Policy
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.beside import BesidePolicy
from gnomon.spec import Requests
from gnomon.spec.serving import ServingLimits
from gnomon.techniques.base import SERVING, Maker, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.order import only_first_come


class SemiDisaggregated(Technique[ServingCase]):
    """Semi-PD. Two processes with CUDA's MPS, or two green contexts; a decode step runs while prompts do, each piece of
    which is as long as about one decode step."""

    name = "semi-disaggregated"
    work = (SERVING,)
    title = "Prefill and decode at once on shares of one GPU"
    idea = (
        "Prompts run on a share of the processors while decode steps run beside them: decodes do not wait for prompts, "
        "no KV cache is sent and weights are kept once; prompts take longer by their share."
    )
    trials = (Trial(paper="semi-pd", words="semi-disaggregated"), Trial(paper="nexus", words="semi-disaggregated"))
    parameters = (
        Parameter("share", "of the processors that prompts may use", default=0.8, low=0.1, high=1.0),
        Parameter("chunk", "tokens of prompts that run beside a decode step", default=512.0, low=16.0, high=8192.0,
                  whole=True),
    )  # fmt: skip
    excludes = ("shortest-first", "deadline-first", "reserve-output", "nano-batches", "streamed-layers")
    """Prompts and decodes are at different layers at a time, and each has a share of the processors already."""
    searched = False
    changes = frozenset({"schedule"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield case.strategy.dp > 1, "data-parallel ranks that step together are not split"

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        from gnomon.cost.shared import SharedStepModel  # one step compiles no table

        return SharedStepModel.of(found, float(values["share"]))

    def policy(self, make: Maker, case: ServingCase, values: Values) -> Maker:
        only_first_come(self.name, make)
        chunk = int(values["chunk"])

        def made(requests: Requests, limits: ServingLimits, cache: CacheModel) -> Policy:
            return BesidePolicy(requests, limits, cache, chunk)

        return made

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "kernels of both streams share memory bandwidth fully and processors as they were told"


TECHNIQUES = (SemiDisaggregated(),)
