"""Requests come in only where the KV cache has room for their whole predicted answer."""

from __future__ import annotations

from gnomon.engines.base import ServingCase
from gnomon.sim.serving.base import Policy
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.reserving import ReservingPolicy
from gnomon.spec import Requests
from gnomon.spec.serving import ServingLimits
from gnomon.techniques.base import SERVING, Maker, Parameter, Technique, Values
from gnomon.techniques.order import only_first_come


class ReserveOutput(Technique[ServingCase]):
    name = "reserve-output"
    work = (SERVING,)
    title = "Admission by the room that a request will need"
    idea = (
        "A request comes in only where the cache has room for its prompt and its predicted answer beside those of all "
        "that run, so that none is preempted and recomputed; fewer run at once while answers are short of their end."
    )
    parameters = (
        Parameter("share", "of a predicted answer that is reserved", default=1.0, high=1.0),
    )  # fmt: skip
    excludes = ("shortest-first", "deadline-first")
    searched = False
    changes = frozenset({"schedule"})

    def policy(self, make: Maker, case: ServingCase, values: Values) -> Maker:
        only_first_come(self.name, make)
        share = float(values["share"])

        def made(requests: Requests, limits: ServingLimits, cache: CacheModel) -> Policy:
            return ReservingPolicy(requests, limits, cache, share)

        return made

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "the length of every answer is known when its request arrives"


TECHNIQUES = (ReserveOutput(),)
