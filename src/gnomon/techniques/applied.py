"""The techniques of one plan, applied one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from gnomon.cost.lines import Steps, Wait
from gnomon.engines.base import Case
from gnomon.errors import InputError, NotApplicableError
from gnomon.techniques.base import C, Rejection, Technique, Values, overrides

if TYPE_CHECKING:  # serving imports nothing of training, and one step no simulator
    from gnomon.engines.techniques import RouterMaker
    from gnomon.graph.layers import NodePass
    from gnomon.spec import Requests, ServingLimits

F = TypeVar("F")
WHERE = "strategy.techniques"
LEAVE_OUT = "Leave it out, or change what it names."


def rejections(one: Technique[C], case: C, values: Values) -> Iterator[Rejection]:
    """A technique's own reasons, the engine's, then those that hold for all that change the same."""
    yield from one.reject(case, values)
    if engine := getattr(getattr(case, "traits", None), "refuses", None):
        yield from engine(one.name, case, values)
    unequal = getattr(getattr(case, "load", None), "sequences", None) is not None
    why = "copies beside the passes are not timed with sequences that differ in length"
    yield unequal and overrides(one, "tasks"), why


@dataclass(frozen=True, slots=True)
class Applied(Generic[C]):
    """Techniques with their values. Without any, everything stays as it is."""

    pairs: tuple[tuple[Technique[C], Values], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one, _ in self.pairs)

    @property
    def values(self) -> dict[str, Values]:
        """Every parameter of every technique, defaults too."""
        return {one.name: dict(values) for one, values in self.pairs}

    def _that(self, *hooks: str) -> Iterator[tuple[Technique[C], Values]]:
        """Those that change one of these."""
        return (pair for pair in self.pairs if overrides(pair[0], *hooks))

    # Where they apply.

    def reject_reason(self, case: C) -> str:
        """Why the first technique that does not apply to the case, or to the first of its plans, does not; empty where
        all apply."""
        return next((f"{name} does not apply: {why}" for name, why in self._rejected(case)), "")

    def _rejected(self, case: C) -> Iterator[tuple[str, str]]:
        for one, values in self.pairs:
            for where, why in rejections(one, case, values):
                if why and np.ravel(where)[0]:
                    yield one.name, why if isinstance(why, str) else why(0)
            case = one.rewrite(case, values)

    def check(self, case: C) -> None:
        """Raise NotApplicableError where one does not apply."""
        for name, why in self._rejected(case):
            raise NotApplicableError(name, why, where=WHERE, hint=LEAVE_OUT)

    def rewrite(self, case: C) -> C:
        """The case with all techniques applied. Raises what `check` raises."""
        self.check(case)
        for one, values in self.pairs:
            case = one.rewrite(case, values)
        return case

    # What runs, and what it takes.

    @property
    def brings_gemm_kernels(self) -> bool:
        return any(one.brings_gemm_kernels(values) for one, values in self.pairs)

    @property
    def streams_weights(self) -> bool:
        return any(one.streams_weights(values) for one, values in self.pairs)

    def passes(self, case: C) -> tuple[NodePass, ...]:
        found = (one.program(case, values) for one, values in self.pairs)
        return tuple(one for one in found if one is not None)

    def costs(self, found: F, case: C) -> F:
        for one, values in self.pairs:
            found = one.costs(found, case, values)
        return found

    def memory(self, used: F, case: C) -> F:
        for one, values in self.pairs:
            used = one.memory(used, case, values)
        return used

    def kv_cache(self, used: F, case: C) -> F:
        for one, values in self.pairs:
            used = one.kv_cache(used, case, values)
        return used

    def waits(self, steps: Steps, case: C) -> dict[str, Wait]:
        """By technique; each sees the steps without the waits of the others."""
        found = {one.name: one.waits(steps, case, values) for one, values in self.pairs}
        return {name: wait for name, wait in found.items() if wait is not None and np.any(np.greater(wait.seconds, 0))}

    # Serving under load.

    def limits(self, found: ServingLimits, case: C) -> ServingLimits:
        for one, values in self._that("policy"):
            from gnomon.sim.serving.policies.chunked import ChunkedPolicy

            found = replace(found, policy=one.policy(found.policy or ChunkedPolicy, case, values))
        for one, values in self._that("cache"):
            from gnomon.sim.serving.caches.counted import CountedBlocks

            found = replace(found, cache=one.cache(found.cache or CountedBlocks, case, values))
        return found

    def requests(self, found: Requests, case: Case) -> Requests:
        for one, values in self.pairs:
            found = one.requests(found, case, values)
        return found

    @property
    def routes(self) -> bool:
        """Whether one of them brings a router, which may look at the replicas."""
        return any(True for _ in self._that("router"))

    @property
    def asks_otherwise(self) -> bool:
        """Whether one of them changes what clients send."""
        return any(True for _ in self._that("requests"))

    def router(self, make: RouterMaker, case: Case) -> RouterMaker:
        for one, values in self.pairs:
            make = one.router(make, case, values)
        return make

    def check_simulated(self, case: Any) -> None:
        """Raise InputError where a load cannot be simulated with them."""
        hint = "`gnomon predict` prices one step with it, `gnomon fit` reports what fits in memory."
        for one, _ in self.pairs:
            if not one.simulated:
                raise InputError(f"{one.name} cannot be simulated under load", where="--with", hint=hint)
            if case.strategy.pp > 1 and overrides(one, "policy"):
                message = f"{one.name} has a scheduler of its own, and loads on a pipeline are not simulated with one"
                raise InputError(message, where="--with", hint="Use --pp 1.")

    # What answers say.

    def metrics(self, used: Any, case: C) -> dict[str, Mapping[str, float]]:
        """Further figures, by technique."""
        found = {one.name: one.metrics(used, case, values) for one, values in self.pairs}
        return {name: metrics for name, metrics in found.items() if metrics}

    def assumed(self, case: C) -> dict[str, str]:
        """Assumptions about the machine that no input states, by technique."""
        found = {one.name: one.assumed(case, values) for one, values in self.pairs}
        return {name: text for name, text in found.items() if text}
