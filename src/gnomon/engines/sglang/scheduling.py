"""What SGLang's scheduler is told, and what makes it: a prediction of one step imports no simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

if TYPE_CHECKING:
    from gnomon.engines.sglang.policy import PrefillFirst
    from gnomon.engines.sglang.radix import RadixTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What of SGLang's options its scheduler reads, beyond the limits of a replica."""

    chunk_tokens: int | None = 8192
    """`chunked_prefill_size`; none where prompts are not cut."""
    prefill_tokens: int = 16384
    """`max_prefill_tokens`"""
    prefill_requests: int | None = None
    """`prefill_max_requests`"""
    mixed: bool = False
    """`enable_mixed_chunk`"""
    conservativeness: float = 1.0
    """`schedule_conservativeness`"""
    order: str = "fcfs"
    """`schedule_policy`"""
    radix: bool = True
    """Whether prompts are found in the cache: not `disable_radix_cache`."""

    @property
    def unshared(self) -> Scheduling:
        """What decides the same where no two prompts begin alike, and none is computed twice."""
        return replace(self, radix=True, order="fcfs" if self.order == "lpm" else self.order)

    def cache(self, requests: Requests, limits: ServingLimits) -> RadixTree:
        """The cache of a replica, empty."""
        from gnomon.engines.sglang.radix import RadixTree

        return RadixTree(requests, limits, self.radix)

    def policy(self, requests: Requests, limits: ServingLimits, cache: RadixTree) -> PrefillFirst:
        """The scheduler of a replica, with nothing in its batch."""
        from gnomon.engines.sglang.policy import PrefillFirst

        return PrefillFirst(requests, limits, cache, self)
