"""What techniques share that order the requests which wait: a priority of each, and a scheduler that goes by it."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.base import Case, ServingCase
from gnomon.errors import NotApplicableError
from gnomon.sim.serving.base import Policy
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.ordered import OrderedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.spec import Requests
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Ints
from gnomon.techniques.base import SERVING, Maker, Technique, Values

BY_PRIORITY = (ChunkedPolicy, SteppedPolicy)
"""Schedulers that go by priorities where they are asked to; the first in the form of `OrderedPolicy`."""
CLASS = 1 << 44
"""Between the priorities of a load, so that each class is ordered by itself; in ms, five centuries."""


def only_first_come(name: str, make: Maker) -> None:
    """Raise NotApplicableError where an option, or another engine, has requests let in by a scheduler of its own."""
    if make is not ChunkedPolicy:
        why = (
            "it is built into the scheduler that serves requests as they come, without priorities, adapters' slots, "
            "drafts, images or KV blocks in host memory"
        )
        raise NotApplicableError(name, why, where="--with", hint="Leave it out, or the option that brings another one.")


class WaitingOrder(Technique[ServingCase]):
    """Requests that wait come in by a number of their own, the lowest first; those that run are preempted by it, the
    highest first, where KV blocks run out. Priorities of the load stay above it."""

    work = (SERVING,)
    searched = False
    changes = frozenset({"requests", "schedule"})

    def order(self, found: Requests, values: Values) -> Ints:
        """A number of each request, from 0 to `CLASS`."""
        raise NotImplementedError

    def requests(self, found: Requests, case: Case, values: Values) -> Requests:
        order = self.order(found, values).clip(0, CLASS - 1)
        return replace(found, priority=order if found.priority is None else found.priority * CLASS + order)

    def policy(self, make: Maker, case: ServingCase, values: Values) -> Maker:
        if not (isinstance(make, type) and issubclass(make, BY_PRIORITY)):
            why = "the scheduler of this engine is simulated without priorities"
            raise NotApplicableError(self.name, why, where="--with", hint="Leave it out, or use --engine vllm.")
        ordered: Maker = OrderedPolicy if make is ChunkedPolicy else make

        def made(requests: Requests, limits: ServingLimits, cache: CacheModel) -> Policy:
            policy: Policy = ordered(requests, replace(limits, by_priority=True), cache)
            return policy

        return made
