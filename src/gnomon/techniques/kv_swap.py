"""More sessions than the KV cache holds: idle sessions are swapped out to host memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnomon.cost.host_link import LINK_SPREAD
from gnomon.cost.lines import Steps, Wait
from gnomon.cost.tiers import HOST, rooms
from gnomon.engines.base import MemoryUse, ServingCase
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import no_host


class KvSwap(Technique[ServingCase]):
    name = "kv-swap"
    work = (SERVING,)
    aliases = ("swapped-sessions",)
    title = "KV caches of idle sessions swapped to the host"
    idea = (
        "The KV cache of a session that waits for its user is swapped to host memory, and another is swapped in: many "
        "more sessions are open at once, and every turn begins with one cache copied out and one copied in."
    )
    trials = (Trial(paper="long-context-peak", words="kv-swap"),)
    parameters = (
        Parameter(
            "turn", "tokens generated before a session is swapped out", default=250.0, low=1.0, high=1e6, whole=True
        ),
        bandwidth("link_gb_s", "bandwidth of one chip's copies; 0 for the link's bandwidth"),
    )
    simulated = False

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield True, no_host(case.pool)

    def waits(self, steps: Steps, case: ServingCase, values: Values) -> Wait | None:
        """A mean decode step's share of the swap that ends a turn. Prefills wait for no swap."""
        batch = steps.batch
        if batch is None or not batch.decodes.any():
            return None
        seconds = batch.size * switch_s(case, steps.cached_bytes, values) / float(values["turn"])
        host = case.pool.host
        return Wait(seconds=seconds, spread=LINK_SPREAD, source=host.link.name if host else "")

    def metrics(self, used: MemoryUse, case: ServingCase, values: Values) -> Mapping[str, float]:
        """Sessions of the maximum context that cache and host hold, and the seconds of one swap."""
        context = used.context
        each = used.sequence_bytes(context, 1)
        if each <= 0 or case.pool.machine is None:
            return {}
        return {
            "sessions_in_cache": max(used.kv_blocks, 0) // max(used.blocks_of(context), 1),
            "sessions_on_host": rooms(case.pool.machine)[HOST] // (each * _neighbours(case)),
            "switch_s": switch_s(case, each, values),
        }


def switch_s(case: ServingCase, cached_bytes: float, values: Values) -> float:
    """Seconds to copy so many bytes per rank to the host, then as many back."""
    host = case.pool.machine
    assert host is not None  # checked by `reject`
    bandwidth = float(values["link_gb_s"]) * 1e9 or host.copy_bytes_s(_neighbours(case))
    return 2 * cached_bytes / bandwidth


def _neighbours(case: ServingCase) -> int:
    """Ranks that share one host."""
    return min(case.strategy.ranks, case.pool.machine_chips)


TECHNIQUES = (KvSwap(),)
