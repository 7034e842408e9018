"""Requests come in only where the KV cache has room for their whole predicted answer."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.engines.base import ServingCase
from gnomon.sim.serving.base import Policy
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.reserving import ReservingPolicy
from gnomon.spec import Requests
from gnomon.spec.serving import ServingLimits
from gnomon.techniques.base import SERVING, Maker, Parameter, Rejection, Technique, Trial, Values

OWN_SCHEDULERS = ("speculative_method", "enable_lora", "kv_offloading_size")
"""Settings with which vLLM's scheduler is simulated by another policy."""


class ReserveOutput(Technique[ServingCase]):
    name = "reserve-output"
    work = (SERVING,)
    title = "Admission by the room that a request will need"
    idea = (
        "A request comes in only where the cache has room for its prompt and its predicted answer beside those of all "
        "that run, so that none is preempted and recomputed; fewer run at once while answers are short of their end."
    )
    trials = (Trial(paper="", words="reserve-output"),)
    parameters = (
        Parameter("share", "of a predicted answer that is reserved", default=1.0, high=1.0),
    )  # fmt: skip
    excludes = ("shortest-first", "deadline-first")
    searched = False
    changes = frozenset({"schedule"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        for name in OWN_SCHEDULERS:
            yield bool(case.settings.get(name)), f"with {name} requests are let in by another scheduler"
        yield case.settings.get("scheduling_policy") == "priority", "priorities let requests in by another scheduler"

    def policy(self, make: Maker, case: ServingCase, values: Values) -> Maker:
        if make is not ChunkedPolicy:
            return make
        share = float(values["share"])

        def made(requests: Requests, limits: ServingLimits, cache: CacheModel) -> Policy:
            return ReservingPolicy(requests, limits, cache, share)

        return made

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the length of every answer is known when its request arrives"


TECHNIQUES = (ReserveOutput(),)
